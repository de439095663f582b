//! Framed, checksummed record files: the write-ahead log and the manifest, and logs of other crates
//! ([`LogFormat`]).
//!
//! A file is a header of 48 bytes and records behind it. All integers are little-endian.
//!
//! ```text
//! header   magic 8 | format version u32 | zero u32 | number u64
//!          | previous number u64 | previous length u64 | xxh3-64 of the 40 bytes before
//! record   payload length u32 | checksum u32 | type u8 | payload
//! ```
//!
//! A record's checksum is seeded with the file's number and the record's offset, so that a
//! misplaced record is invalid. Type 1 is data. Type 2 is a sync marker: magic 8 | offset u64,
//! which says that the file was durable up to that offset before the marker was written. In a log,
//! type 3 is data whose writer waits until it is durable, and type 4 (number u64) names the
//! possible next segment for readers beside the writer, and type 5 (milliseconds since 1970 u64)
//! says when the data behind it was appended. In a manifest, and in logs of format 1, the checksum
//! is the low half of the xxh3-64 of type and payload. In other logs it is that of the type, the
//! payload's first eight bytes (of a batch: its first sequence number, which it gets only when it
//! is appended) and the xxh3-64 of the rest, so that writers can hash their batch before they take
//! the lock.
//!
//! A log that is often synced is *preallocated*: there are zeros behind its end, and records
//! overwrite them. So a sync need not record a new length. Zeros up to the end of the file are not
//! a torn record but the end of the log.
//!
//! The sync markers distinguish a torn tail from damage. A power cut may leave any part of the
//! unsynced bytes, so a bad record ends the log if it can be such a remnant. It cannot when a later
//! marker says that it was durable, or when the file was closed and its length recorded elsewhere:
//! then it is damage, and an error.

mod follow;
mod replay;
mod writer;

#[cfg(test)]
mod tests;

pub use follow::Follower;
pub use replay::{LogHeader, Record, Replayed, Tail, replay};
pub use writer::{AppendError, LogWriter};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What tells the files of a log from those of others: how each file begins. Other crates have logs
/// of their own with a magic number of their own: records, markers, torn tails and following are
/// the same in all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogFormat {
    /// The first eight bytes of each file.
    pub magic: [u8; 8],
    /// The version of what the records hold, 1 at least: new files get it, and files up to it are
    /// read.
    pub version: u32,
}

impl LogFormat {
    /// The engine's write-ahead log: batches of writes.
    ///
    /// 2: checksums in two steps, and zeros behind the end. 3: records of the types 3 and 4. 4: of
    /// type 5.
    pub const WAL: LogFormat = LogFormat {
        magic: *b"ESKERLOG",
        version: 4,
    };

    /// The engine's manifest: edits to the set of live files.
    ///
    /// 2: an edit may record the last synced write. 3: the order of commits, dropped numbers,
    /// tables that share a file. 4: trees get other names. 5: the store has no log of its own; no
    /// other manifest has it.
    pub const MANIFEST: LogFormat = LogFormat {
        magic: *b"ESKERMAN",
        version: 5,
    };

    /// True for files of log records, as all but the manifest's are: with records of all types,
    /// checksums in two steps, and zeros behind the end; the first version of the write-ahead log
    /// had only the types.
    fn is_log(self) -> bool {
        self.magic != LogFormat::MANIFEST.magic
    }

    /// True for files whose checksums are made in two steps, and that may be preallocated.
    fn is_split(self) -> bool {
        self.is_log() && (self.version >= 2 || self.magic != LogFormat::WAL.magic)
    }
}

const HEADER_LEN: usize = 48;
/// Length and checksum, which the checksum does not cover.
const FRAME_LEN: usize = 8;
/// Bytes of a record before its payload.
const PREFIX_LEN: usize = FRAME_LEN + 1;
const MARK_PAYLOAD_LEN: usize = 16;
const MARK_LEN: usize = PREFIX_LEN + MARK_PAYLOAD_LEN;
const DATA: u8 = 1;
const MARK: u8 = 2;
/// Data whose writer waits for a sync.
const DEMANDED: u8 = 3;
const NEXT: u8 = 4;
const TIME: u8 = 5;
/// Bytes that are unlikely in ordinary data, and that do not overlap themselves.
const MARK_MAGIC: [u8; 8] = [0xe5, b'S', b'Y', b'N', b'C', 0xd1, 0x0a, 0x9b];

/// The seed of the record at `offset` of file `number`.
#[inline]
fn seed(number: u64, offset: u64) -> u64 {
    number
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(offset)
}

/// The part of a payload that is hashed separately, in logs since format 2.
const HEAD_LEN: usize = 8;

/// The checksum over `body`: a record's type and payload.
#[inline]
fn checksum(format: LogFormat, body: &[u8], seed: u64) -> u32 {
    if format.is_split() {
        split_checksum(body, rest_hash(body.get(1..).unwrap_or(&[])), seed)
    } else {
        xxh3_64_with_seed(body, seed) as u32
    }
}

/// The hash of a log record's payload without its first eight bytes.
#[inline]
pub fn rest_hash(payload: &[u8]) -> u64 {
    xxh3_64(payload.get(HEAD_LEN..).unwrap_or(&[]))
}

#[inline]
fn split_checksum(body: &[u8], rest_hash: u64, seed: u64) -> u32 {
    let mut fields = [0; 1 + HEAD_LEN + 8];
    let head = body.len().min(1 + HEAD_LEN);
    if let (Some(to), Some(from)) = (fields.get_mut(..head), body.get(..head)) {
        to.copy_from_slice(from);
    }
    if let Some(to) = fields.last_chunk_mut() {
        *to = rest_hash.to_le_bytes();
    }
    xxh3_64_with_seed(&fields, seed) as u32
}

fn header_checksum(fields: &[u8]) -> u64 {
    xxh3_64(fields)
}

/// Corrects the checksums of a log file: that of the header, and of each record by its length, so
/// that fuzzing reaches the parsers behind them.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn reseal(file: &mut [u8], number: u64) {
    let Some((header, records)) = file.split_at_mut_checked(HEADER_LEN) else {
        return;
    };
    if let Some((fields, sum)) = header.split_last_chunk_mut() {
        *sum = header_checksum(fields).to_le_bytes();
    }
    let version = header.get(8..).and_then(|rest| rest.first_chunk());
    let format = LogFormat {
        magic: header.first_chunk().copied().unwrap_or_default(),
        version: version.map_or(0, |bytes| u32::from_le_bytes(*bytes)),
    };
    let (mut rest, mut offset) = (records, HEADER_LEN as u64);
    while let Some((len, after)) = rest.split_first_chunk_mut::<4>() {
        let body_len = u32::from_le_bytes(*len) as usize + 1;
        let Some((sum, after)) = after.split_first_chunk_mut::<4>() else {
            return;
        };
        let Some((body, after)) = after.split_at_mut_checked(body_len) else {
            return;
        };
        *sum = checksum(format, body, seed(number, offset)).to_le_bytes();
        offset += (FRAME_LEN + body_len) as u64;
        rest = after;
    }
}
