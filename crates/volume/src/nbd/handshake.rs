//! The handshake from the server's side: fixed newstyle, option after option, until the client has
//! chosen an export. [`Handshake`] has no I/O; [`haggle`] drives it.

use std::io::{self, Read, Write};
use std::sync::Arc;

use super::device::{Device, Exports, Refused};
use super::options::{self, Wanted};
use super::protocol::{
    ALLOCATION, ALLOCATION_ID, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING, LONGEST_STRING,
    OPTION_MAGIC, OptionHead, OptionReply, can, info, option, rep, shorten, text,
};

/// The most data of an option in bytes; more ends the connection.
const LONGEST_OPTION: u32 = 64 << 10;

/// Whether the connection is encrypted, or can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tls {
    /// The server has no certificate.
    Absent,
    /// The client may ask for it.
    Offered,
    /// The client must ask for it first.
    Required,
    /// The connection is encrypted.
    Done,
}

/// What follows an option.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The next option.
    Option,
    /// The reply is sent, and the connection is encrypted.
    Encrypt,
    /// The reply is sent, and requests follow.
    Requests,
    /// The reply is sent, and the connection ends.
    End,
}

/// What a client has chosen.
pub(super) struct Chosen {
    /// The export's device, opened.
    pub(super) device: Arc<dyn Device>,
    /// Replies are structured.
    pub(super) is_structured: bool,
    /// The client may ask for the allocation of ranges.
    pub(super) has_allocation: bool,
}

/// A device that is opened and not yet handed to the transmission; told that it is closed unless it
/// is.
struct Opened {
    name: String,
    device: Option<Arc<dyn Device>>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(device) = self.device.take() {
            device.closed();
        }
    }
}

/// The state of a handshake.
pub(super) struct Handshake<'a> {
    exports: &'a dyn Exports,
    request_bytes: u32,
    tls: Tls,
    client: Option<String>,
    is_fixed: bool,
    no_zeroes: bool,
    is_structured: bool,
    /// The export that the allocation was selected for.
    allocation_of: Option<String>,
    opened: Option<Opened>,
}

impl<'a> Handshake<'a> {
    pub(super) fn new(exports: &'a dyn Exports, request_bytes: u32, tls: Tls) -> Handshake<'a> {
        Handshake {
            exports,
            request_bytes,
            tls,
            client: None,
            is_fixed: false,
            no_zeroes: false,
            is_structured: false,
            allocation_of: None,
            opened: None,
        }
    }

    /// What the server says first.
    pub(super) fn greeting() -> Vec<u8> {
        let mut out = GREETING.to_be_bytes().to_vec();
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        out
    }

    /// Takes the client's flags. False where they are unknown, and the connection has to end.
    pub(super) fn client_flags(&mut self, flags: u32) -> bool {
        self.is_fixed = flags & u32::from(FLAG_FIXED_NEWSTYLE) != 0;
        self.no_zeroes = flags & u32::from(FLAG_NO_ZEROES) != 0;
        flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) == 0
    }

    /// The connection is encrypted now, by a client whose certificate has this name. What was
    /// negotiated before is forgotten: an attacker may have written it.
    pub(super) fn encrypted(&mut self, client: Option<String>) {
        self.tls = Tls::Done;
        self.client = client;
        self.is_structured = false;
        self.allocation_of = None;
        self.opened = None;
    }

    /// What the client has chosen, after [`Next::Requests`].
    pub(super) fn chosen(mut self) -> Option<Chosen> {
        let mut opened = self.opened.take()?;
        let device = opened.device.take()?;
        let has_allocation = self.allocation_of.as_ref() == Some(&opened.name);
        Some(Chosen {
            device,
            is_structured: self.is_structured,
            has_allocation,
        })
    }

    /// Answers an option: appends the replies to `out`.
    pub(super) fn option(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
        if !self.is_fixed && option != option::EXPORT_NAME {
            return Next::End;
        }
        if self.tls == Tls::Required && !matches!(option, option::STARTTLS | option::ABORT) {
            if option == option::EXPORT_NAME {
                return Next::End;
            }
            refuse(out, option, rep::ERR_TLS_REQD, "this server requires TLS");
            return Next::Option;
        }
        match option {
            option::EXPORT_NAME => return self.export_name(data, out),
            option::ABORT => {
                OptionReply::put(out, option, rep::ACK, &[]);
                return Next::End;
            }
            option::INFO | option::GO => return self.go(option, data, out),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(option, data, out);
            }
            option::LIST | option::STARTTLS | option::STRUCTURED_REPLY if !data.is_empty() => {
                refuse(out, option, rep::ERR_INVALID, "this option has no data");
            }
            option::LIST => self.list(out),
            option::STARTTLS => return self.start_tls(out),
            option::STRUCTURED_REPLY => {
                self.is_structured = true;
                OptionReply::put(out, option, rep::ACK, &[]);
            }
            _ => refuse(out, option, rep::ERR_UNSUP, "this option is not known"),
        }
        Next::Option
    }

    fn start_tls(&mut self, out: &mut Vec<u8>) -> Next {
        match self.tls {
            Tls::Offered | Tls::Required => {
                OptionReply::put(out, option::STARTTLS, rep::ACK, &[]);
                return Next::Encrypt;
            }
            Tls::Absent => {
                let text = "this server has no TLS";
                refuse(out, option::STARTTLS, rep::ERR_POLICY, text);
            }
            Tls::Done => {
                let text = "the connection is encrypted already";
                refuse(out, option::STARTTLS, rep::ERR_INVALID, text);
            }
        }
        Next::Option
    }

    fn list(&self, out: &mut Vec<u8>) {
        for name in self.exports.list() {
            let Some(name) = text(name.as_bytes()) else {
                continue;
            };
            let mut data = u32::try_from(name.len())
                .unwrap_or(0)
                .to_be_bytes()
                .to_vec();
            data.extend_from_slice(name.as_bytes());
            OptionReply::put(out, option::LIST, rep::SERVER, &data);
        }
        OptionReply::put(out, option::LIST, rep::ACK, &[]);
    }

    /// The old way to choose an export, which cannot answer with an error.
    fn export_name(&mut self, data: &[u8], out: &mut Vec<u8>) -> Next {
        let Some(device) = text(data).and_then(|name| self.open(name).ok()) else {
            return Next::End;
        };
        out.extend_from_slice(&device.size().to_be_bytes());
        out.extend_from_slice(&self.flags(&*device).to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; 124]);
        }
        Next::Requests
    }

    fn go(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
        let Some(wanted) = options::wanted(data) else {
            refuse(out, option, rep::ERR_INVALID, "the option is malformed");
            return Next::Option;
        };
        match self.open(wanted.name) {
            Ok(device) => {
                self.inform(option, &wanted, &*device, out);
                OptionReply::put(out, option, rep::ACK, &[]);
            }
            Err(refused) => {
                refuse_export(out, option, &refused);
                return Next::Option;
            }
        }
        match option {
            option::GO => Next::Requests,
            _ => Next::Option,
        }
    }

    fn inform(&self, option: u32, wanted: &Wanted<'_>, device: &dyn Device, out: &mut Vec<u8>) {
        let mut tell = |kind: u16, value: &[u8]| {
            let data = [&kind.to_be_bytes(), value].concat();
            OptionReply::put(out, option, rep::INFO, &data);
        };
        let flags = self.flags(device).to_be_bytes();
        let export = [device.size().to_be_bytes().as_slice(), &flags].concat();
        tell(info::EXPORT, &export);
        if wanted.kinds.contains(&info::NAME) {
            tell(info::NAME, wanted.name.as_bytes());
        }
        if let Some(description) = device.description()
            && wanted.kinds.contains(&info::DESCRIPTION)
        {
            let text = shorten(&description, LONGEST_STRING);
            tell(info::DESCRIPTION, text.as_bytes());
        }
        // Also where it was not asked for: a client may ignore it.
        let largest = 1 << self.request_bytes.max(512).ilog2();
        let preferred = device.block_size().checked_next_power_of_two();
        let preferred = preferred.unwrap_or(largest).clamp(512, largest);
        let sizes = [1, preferred, self.request_bytes].map(u32::to_be_bytes);
        tell(info::BLOCK_SIZE, sizes.as_flattened());
    }

    fn contexts(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        let is_set = option == option::SET_META_CONTEXT;
        if is_set {
            self.allocation_of = None;
        }
        let Some(contexts) = options::contexts(data) else {
            return refuse(out, option, rep::ERR_INVALID, "the option is malformed");
        };
        if is_set && !self.is_structured {
            let text = "structured replies were not negotiated";
            return refuse(out, option, rep::ERR_INVALID, text);
        }
        if let Err(refused) = self.open(contexts.name) {
            return refuse_export(out, option, &refused);
        }
        let (id, is_there) = if is_set {
            (ALLOCATION_ID, contexts.set_allocation())
        } else {
            (0, contexts.list_allocation())
        };
        if is_there {
            let data = [&id.to_be_bytes(), ALLOCATION.as_bytes()].concat();
            OptionReply::put(out, option, rep::META_CONTEXT, &data);
        }
        if is_set && is_there {
            self.allocation_of = Some(contexts.name.to_owned());
        }
        OptionReply::put(out, option, rep::ACK, &[]);
    }

    /// Opens the export, unless it is the one that an earlier option opened.
    fn open(&mut self, name: &str) -> Result<Arc<dyn Device>, Refused> {
        if let Some(opened) = &self.opened
            && opened.name == name
            && let Some(device) = &opened.device
        {
            return Ok(Arc::clone(device));
        }
        // The one before is closed first, so that a client never has two.
        self.opened = None;
        let device = self.exports.open(name, self.client.as_deref())?;
        self.opened = Some(Opened {
            name: name.to_owned(),
            device: Some(Arc::clone(&device)),
        });
        Ok(device)
    }

    fn flags(&self, device: &dyn Device) -> u16 {
        let mut flags = can::HAS_FLAGS | can::FLUSH | can::FUA | can::MULTI_CONN;
        flags |= if device.read_only() {
            can::READ_ONLY
        } else {
            can::TRIM | can::WRITE_ZEROES
        };
        if self.is_structured {
            flags |= can::DF;
        }
        flags
    }
}

fn refuse(out: &mut Vec<u8>, option: u32, kind: u32, text: &str) {
    let text = shorten(text, LONGEST_STRING);
    OptionReply::put(out, option, kind, text.as_bytes());
}

fn refuse_export(out: &mut Vec<u8>, option: u32, refused: &Refused) {
    match refused {
        Refused::Unknown => refuse(out, option, rep::ERR_UNKNOWN, "there is no such export"),
        Refused::Forbidden(why) => refuse(out, option, rep::ERR_POLICY, why),
        Refused::Unavailable(why) => refuse(out, option, rep::ERR_UNKNOWN, why),
        Refused::Stopping => refuse(out, option, rep::ERR_SHUTDOWN, "the server stops"),
    }
}

/// Greets the client and takes its flags. False where the connection has to end.
pub(super) fn greet(
    handshake: &mut Handshake<'_>,
    reader: &mut dyn Read,
    writer: &mut dyn Write,
) -> io::Result<bool> {
    writer.write_all(&Handshake::greeting())?;
    writer.flush()?;
    let mut flags = [0; 4];
    reader.read_exact(&mut flags)?;
    Ok(handshake.client_flags(u32::from_be_bytes(flags)))
}

/// Answers options until something else than an option follows. Reads not a byte more.
pub(super) fn haggle(
    handshake: &mut Handshake<'_>,
    reader: &mut dyn Read,
    writer: &mut dyn Write,
) -> io::Result<Next> {
    loop {
        let mut head = [0; OptionHead::BYTES];
        reader.read_exact(&mut head)?;
        let Some(head) = OptionHead::decode(&head) else {
            return Ok(Next::End);
        };
        if head.length > LONGEST_OPTION {
            return Ok(Next::End);
        }
        let mut data = vec![0; head.length as usize];
        reader.read_exact(&mut data)?;
        let mut out = Vec::new();
        let next = handshake.option(head.option, &data, &mut out);
        writer.write_all(&out)?;
        writer.flush()?;
        if next != Next::Option {
            return Ok(next);
        }
    }
}
