//! The numbers of the NBD protocol, and its messages as bytes (`doc/proto.md` of
//! NetworkBlockDevice/nbd). All numbers are big-endian. No I/O.

/// The first eight bytes that a server sends: `NBDMAGIC`.
pub(super) const GREETING: u64 = 0x4e42_444d_4147_4943;
/// Before the server's handshake flags, and before each option: `IHAVEOPT`.
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before each reply to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Before each request.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Before each simple reply.
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Before each chunk of a structured reply.
pub(super) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Bit 0 of the handshake flags of both sides.
pub(super) const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// Bit 1 of the handshake flags of both sides.
pub(super) const FLAG_NO_ZEROES: u16 = 2;

/// Options of the handshake.
pub(super) mod option {
    pub(in super::super) const EXPORT_NAME: u32 = 1;
    pub(in super::super) const ABORT: u32 = 2;
    pub(in super::super) const LIST: u32 = 3;
    pub(in super::super) const STARTTLS: u32 = 5;
    pub(in super::super) const INFO: u32 = 6;
    pub(in super::super) const GO: u32 = 7;
    pub(in super::super) const STRUCTURED_REPLY: u32 = 8;
    pub(in super::super) const LIST_META_CONTEXT: u32 = 9;
    pub(in super::super) const SET_META_CONTEXT: u32 = 10;
}

/// Kinds of replies to options.
pub(super) mod rep {
    pub(in super::super) const ACK: u32 = 1;
    pub(in super::super) const SERVER: u32 = 2;
    pub(in super::super) const INFO: u32 = 3;
    pub(in super::super) const META_CONTEXT: u32 = 4;
    /// Set in all errors.
    pub(in super::super) const ERR: u32 = 1 << 31;
    pub(in super::super) const ERR_UNSUP: u32 = ERR | 1;
    pub(in super::super) const ERR_POLICY: u32 = ERR | 2;
    pub(in super::super) const ERR_INVALID: u32 = ERR | 3;
    pub(in super::super) const ERR_TLS_REQD: u32 = ERR | 5;
    pub(in super::super) const ERR_UNKNOWN: u32 = ERR | 6;
    pub(in super::super) const ERR_SHUTDOWN: u32 = ERR | 7;
}

/// Kinds of information about an export.
pub(super) mod info {
    pub(in super::super) const EXPORT: u16 = 0;
    pub(in super::super) const NAME: u16 = 1;
    pub(in super::super) const DESCRIPTION: u16 = 2;
    pub(in super::super) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export can do.
pub(super) mod can {
    pub(in super::super) const HAS_FLAGS: u16 = 1;
    pub(in super::super) const READ_ONLY: u16 = 1 << 1;
    pub(in super::super) const FLUSH: u16 = 1 << 2;
    pub(in super::super) const FUA: u16 = 1 << 3;
    pub(in super::super) const TRIM: u16 = 1 << 5;
    pub(in super::super) const WRITE_ZEROES: u16 = 1 << 6;
    pub(in super::super) const DF: u16 = 1 << 7;
    pub(in super::super) const MULTI_CONN: u16 = 1 << 8;
}

/// Commands.
pub(super) mod command {
    pub(in super::super) const READ: u16 = 0;
    pub(in super::super) const WRITE: u16 = 1;
    pub(in super::super) const DISC: u16 = 2;
    pub(in super::super) const FLUSH: u16 = 3;
    pub(in super::super) const TRIM: u16 = 4;
    pub(in super::super) const WRITE_ZEROES: u16 = 6;
    pub(in super::super) const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub(super) mod flag {
    pub(in super::super) const FUA: u16 = 1;
    pub(in super::super) const NO_HOLE: u16 = 1 << 1;
    pub(in super::super) const DF: u16 = 1 << 2;
    pub(in super::super) const REQ_ONE: u16 = 1 << 3;
}

/// Chunks of structured replies.
pub(super) mod chunk {
    /// The flag of the last chunk.
    pub(in super::super) const DONE: u16 = 1;
    pub(in super::super) const NONE: u16 = 0;
    pub(in super::super) const OFFSET_DATA: u16 = 1;
    pub(in super::super) const OFFSET_HOLE: u16 = 2;
    pub(in super::super) const BLOCK_STATUS: u16 = 5;
    /// Set in all kinds of errors.
    pub(in super::super) const ERR: u16 = 1 << 15;
    pub(in super::super) const ERROR: u16 = ERR | 1;
}

/// The one metadata context: which ranges are allocated.
pub(super) const ALLOCATION: &str = "base:allocation";
/// The number by which replies name that context; any would do.
pub(super) const ALLOCATION_ID: u32 = 1;
/// The status of a range that is not allocated and reads as zeros.
pub(super) const HOLE_AND_ZERO: u32 = 3;
/// The longest string of the protocol, in bytes.
pub(super) const LONGEST_STRING: usize = 4096;

/// Takes numbers and byte strings from the front of a message. `None` at its end.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields(bytes)
    }

    pub(super) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A length of 32 bits and that many bytes of text.
    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.u32()?).ok()?;
        text(self.bytes(length)?)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }
}

/// A string of the protocol: UTF-8 without NUL, at most 4096 bytes. `None` for other bytes.
pub(super) fn text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (bytes.len() <= LONGEST_STRING && !text.contains('\0')).then_some(text)
}

/// Text cut to at most `most` bytes, at a border of characters, without NUL.
pub(super) fn shorten(text: &str, most: usize) -> &str {
    let text = text.split('\0').next().unwrap_or_default();
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// A request, without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// Bits of `flag`.
    pub(super) flags: u16,
    /// One of `command`.
    pub(super) kind: u16,
    /// What the reply names the request by.
    pub(super) cookie: u64,
    /// The first byte.
    pub(super) offset: u64,
    /// How many bytes.
    pub(super) length: u32,
}

impl Request {
    /// The length of the encoding.
    pub(super) const BYTES: usize = 28;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Request::BYTES);
        out.extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.kind.to_be_bytes());
        out.extend_from_slice(&self.cookie.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        out
    }

    /// `None` where the bytes do not begin with a request.
    pub(super) fn decode(bytes: &[u8]) -> Option<Request> {
        let mut fields = Fields::new(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Request {
            flags: fields.u16()?,
            kind: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        })
    }
}

/// The head of an option: its number and the length of its data.
pub(super) struct OptionHead {
    pub(super) option: u32,
    pub(super) length: u32,
}

impl OptionHead {
    /// The length of the encoding.
    pub(super) const BYTES: usize = 16;

    /// `None` where the bytes do not begin with an option.
    pub(super) fn decode(bytes: &[u8]) -> Option<OptionHead> {
        let mut fields = Fields::new(bytes);
        if fields.u64()? != OPTION_MAGIC {
            return None;
        }
        Some(OptionHead {
            option: fields.u32()?,
            length: fields.u32()?,
        })
    }
}

/// An option with its data.
pub(super) fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut out = OPTION_MAGIC.to_be_bytes().to_vec();
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&length_of(data).to_be_bytes());
    out.extend_from_slice(data);
    out
}

/// The head of a reply to an option.
pub(super) struct OptionReply {
    /// The option it answers.
    pub(super) option: u32,
    /// One of `rep`.
    pub(super) kind: u32,
    /// The length of the data that follow.
    pub(super) length: u32,
}

impl OptionReply {
    /// The length of the encoding.
    pub(super) const BYTES: usize = 20;

    /// `None` where the bytes do not begin with a reply to an option.
    pub(super) fn decode(bytes: &[u8]) -> Option<OptionReply> {
        let mut fields = Fields::new(bytes);
        if fields.u64()? != OPTION_REPLY_MAGIC {
            return None;
        }
        Some(OptionReply {
            option: fields.u32()?,
            kind: fields.u32()?,
            length: fields.u32()?,
        })
    }

    /// Appends a reply with its data.
    pub(super) fn put(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
        out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        out.extend_from_slice(&option.to_be_bytes());
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&length_of(data).to_be_bytes());
        out.extend_from_slice(data);
    }
}

/// The length of data as the protocol's 32 bits; nothing that is encoded here is longer.
pub(super) fn length_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).unwrap_or(u32::MAX)
}

/// The head of a reply to a request, as a client reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyHead {
    /// A whole reply, except for the data of a read.
    Simple { error: u32, cookie: u64 },
    /// A part of a structured reply.
    Chunk { flags: u16, kind: u16, cookie: u64 },
}

impl ReplyHead {
    /// The bytes that both kinds have; a chunk has four more with its length.
    pub(super) const BYTES: usize = 16;

    /// `None` where the bytes do not begin with a reply.
    pub(super) fn decode(bytes: &[u8]) -> Option<ReplyHead> {
        let mut fields = Fields::new(bytes);
        match fields.u32()? {
            SIMPLE_REPLY_MAGIC => Some(ReplyHead::Simple {
                error: fields.u32()?,
                cookie: fields.u64()?,
            }),
            CHUNK_MAGIC => Some(ReplyHead::Chunk {
                flags: fields.u16()?,
                kind: fields.u16()?,
                cookie: fields.u64()?,
            }),
            _ => None,
        }
    }
}
