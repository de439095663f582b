//! The handshake from the client's side.

use std::io::{Read, Write};

use super::error::ClientError;
use super::protocol::{
    self, ALLOCATION, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, Fields, GREETING, OPTION_MAGIC,
    OptionReply, info, length_of, option, rep,
};

/// The longest data of a reply to an option.
const LONGEST_REPLY: u32 = 64 << 10;
/// The most replies to an option.
const MOST_REPLIES: usize = 1 << 16;

/// What was negotiated.
#[derive(Debug, Clone, Default)]
pub(super) struct Export {
    pub(super) size: u64,
    /// Bits of `can`.
    pub(super) flags: u16,
    pub(super) block_size: u32,
    pub(super) request_bytes: u32,
    pub(super) is_structured: bool,
    /// The number of the context that says what is allocated.
    pub(super) context: Option<u32>,
}

/// Chooses an export after [`begin`], with all that the server can do of what a client uses.
pub(super) fn choose(
    reader: &mut dyn Read,
    writer: &mut dyn Write,
    name: &str,
) -> Result<Export, ClientError> {
    let mut export = Export {
        // What the protocol supposes where a server does not say.
        block_size: 4096,
        request_bytes: 32 << 20,
        ..Export::default()
    };
    let mut names = length_of(name.as_bytes()).to_be_bytes().to_vec();
    names.extend_from_slice(name.as_bytes());
    export.is_structured = ask(reader, writer, option::STRUCTURED_REPLY, &[])?.is_ok();
    if export.is_structured {
        let mut data = names.clone();
        data.extend_from_slice(&1_u32.to_be_bytes());
        data.extend_from_slice(&length_of(ALLOCATION.as_bytes()).to_be_bytes());
        data.extend_from_slice(ALLOCATION.as_bytes());
        // A server that has no contexts may refuse the option.
        let replies = ask(reader, writer, option::SET_META_CONTEXT, &data)?;
        for (kind, data) in replies.unwrap_or_default() {
            if kind == rep::META_CONTEXT {
                export.context = Fields::new(&data).u32();
            }
        }
    }
    let mut data = names;
    data.extend_from_slice(&1_u16.to_be_bytes());
    data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
    let replies = ask(reader, writer, option::GO, &data)?.map_err(ClientError::Refused)?;
    let mut is_known = false;
    for (_, data) in replies.iter().filter(|(kind, _)| *kind == rep::INFO) {
        let malformed = ClientError::Protocol("malformed information");
        is_known |= export.learn(data).ok_or(malformed)?;
    }
    if is_known {
        Ok(export)
    } else {
        Err(ClientError::Protocol("the size of the export is missing"))
    }
}

/// Asks for encryption after [`begin`]; when it returns, the handshake of TLS follows.
pub(super) fn start_tls(reader: &mut dyn Read, writer: &mut dyn Write) -> Result<(), ClientError> {
    let replies = ask(reader, writer, option::STARTTLS, &[])?;
    replies.map(drop).map_err(ClientError::Refused)
}

/// The names of the exports.
pub(super) fn list(
    reader: &mut dyn Read,
    writer: &mut dyn Write,
) -> Result<Vec<String>, ClientError> {
    begin(reader, writer)?;
    let replies = ask(reader, writer, option::LIST, &[])?.map_err(ClientError::Refused)?;
    let mut names = Vec::new();
    for (_, data) in replies.iter().filter(|(kind, _)| *kind == rep::SERVER) {
        let name = Fields::new(data).text();
        let name = name.ok_or(ClientError::Protocol("a malformed name of an export"))?;
        names.push(name.to_owned());
    }
    // The server may have closed without an answer, as older ones do.
    let _ = ask(reader, writer, option::ABORT, &[]);
    Ok(names)
}

impl Export {
    /// Takes a piece of information. True where it is the size and the flags; `None` where it is
    /// malformed.
    fn learn(&mut self, data: &[u8]) -> Option<bool> {
        let mut fields = Fields::new(data);
        match fields.u16()? {
            info::EXPORT => {
                self.size = fields.u64()?;
                self.flags = fields.u16()?;
                Some(true)
            }
            info::BLOCK_SIZE => {
                let _least = fields.u32()?;
                self.block_size = fields.u32()?;
                self.request_bytes = fields.u32()?;
                Some(false)
            }
            _ => Some(false),
        }
    }
}

/// Reads the server's greeting and answers it. Reads not a byte more.
pub(super) fn begin(reader: &mut dyn Read, writer: &mut dyn Write) -> Result<(), ClientError> {
    let mut greeting = [0; 18];
    reader.read_exact(&mut greeting)?;
    let mut fields = Fields::new(&greeting);
    let is_right = fields.u64() == Some(GREETING) && fields.u64() == Some(OPTION_MAGIC);
    let flags = fields.u16().unwrap_or_default();
    if !is_right || flags & FLAG_FIXED_NEWSTYLE == 0 {
        return Err(ClientError::Protocol("no fixed newstyle greeting"));
    }
    let flags = u32::from(flags & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES));
    writer.write_all(&flags.to_be_bytes())?;
    Ok(writer.flush()?)
}

/// The replies before the acknowledgement, or the text of an error.
type Replies = Result<Vec<(u32, Vec<u8>)>, String>;

fn ask(
    reader: &mut dyn Read,
    writer: &mut dyn Write,
    option: u32,
    data: &[u8],
) -> Result<Replies, ClientError> {
    writer.write_all(&protocol::option(option, data))?;
    writer.flush()?;
    let mut replies = Vec::new();
    loop {
        let mut head = [0; OptionReply::BYTES];
        reader.read_exact(&mut head)?;
        let head = OptionReply::decode(&head).filter(|head| head.option == option);
        let head = head.ok_or(ClientError::Protocol("no reply to the option"))?;
        if head.length > LONGEST_REPLY || replies.len() > MOST_REPLIES {
            return Err(ClientError::Protocol("too much in reply to an option"));
        }
        let mut data = vec![0; head.length as usize];
        reader.read_exact(&mut data)?;
        if head.kind & rep::ERR != 0 {
            let text = String::from_utf8_lossy(&data).into_owned();
            return Ok(Err(if text.is_empty() {
                format!("error {} without a reason", head.kind & !rep::ERR)
            } else {
                text
            }));
        }
        if head.kind == rep::ACK {
            return Ok(Ok(replies));
        }
        replies.push((head.kind, data));
    }
}
