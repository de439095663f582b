//! Framed, checksummed record files: the write-ahead log and the manifest.
//!
//! A file is a header of 48 bytes and records behind it. All integers are little-endian.
//!
//! ```text
//! header   magic 8 | format version u32 | zero u32 | number u64
//!          | previous number u64 | previous length u64 | xxh3-64 of the 40 bytes before
//! record   payload length u32 | checksum u32 | type u8 | payload
//! ```
//!
//! A record's checksum is the low half of the xxh3-64 of type and payload, seeded with the file's
//! number and the record's offset, so that a record in another place does not pass for one. Type 1
//! is data. Type 2 is a sync mark: magic 8 | offset u64, which says that the file was durable up to
//! that offset before the mark was written.
//!
//! The marks tell a torn tail from damage. A power cut may leave anything of what was not synced, so
//! a bad record ends the log if it can be such a leftover. It cannot when a mark behind it says that
//! it was durable, or when the file was closed and its length recorded elsewhere: then it is damage,
//! and an error.

mod replay;
mod writer;

#[cfg(test)]
mod tests;

pub use replay::{LogHeader, Replayed, Tail, replay};
pub use writer::{AppendError, LogWriter};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What a log file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogKind {
    /// Batches of writes.
    Wal,
    /// Edits to the set of live files.
    Manifest,
}

impl LogKind {
    fn magic(self) -> [u8; 8] {
        match self {
            LogKind::Wal => *b"ESKERLOG",
            LogKind::Manifest => *b"ESKERMAN",
        }
    }

    /// The format version that this build writes, and the newest that it reads. All older ones are read.
    fn format(self) -> u32 {
        match self {
            LogKind::Wal => 1,
            // 2: an edit may say up to which write the log was synced.
            LogKind::Manifest => 3,
        }
    }
}

const HEADER_LEN: usize = 48;
/// Length and checksum, which the checksum does not cover.
const FRAME_LEN: usize = 8;
/// What a record has in front of its payload.
const PREFIX_LEN: usize = FRAME_LEN + 1;
const MARK_PAYLOAD_LEN: usize = 16;
const MARK_LEN: usize = PREFIX_LEN + MARK_PAYLOAD_LEN;
const DATA: u8 = 1;
const MARK: u8 = 2;
/// Bytes that ordinary data is unlikely to hold, and that do not overlap themselves.
const MARK_MAGIC: [u8; 8] = [0xe5, b'S', b'Y', b'N', b'C', 0xd1, 0x0a, 0x9b];

/// The seed of the record at `offset` of file `number`.
#[inline]
fn seed(number: u64, offset: u64) -> u64 {
    number
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(offset)
}

/// The checksum over `body`: a record's type and payload.
#[inline]
fn checksum(body: &[u8], seed: u64) -> u32 {
    xxh3_64_with_seed(body, seed) as u32
}

fn header_checksum(fields: &[u8]) -> u64 {
    xxh3_64(fields)
}

/// Puts the checksums of a log file right: that of the header, and of each record as its length
/// says, so that fuzzing gets behind them.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn reseal(file: &mut [u8], number: u64) {
    let Some((header, records)) = file.split_at_mut_checked(HEADER_LEN) else {
        return;
    };
    if let Some((fields, sum)) = header.split_last_chunk_mut() {
        *sum = header_checksum(fields).to_le_bytes();
    }
    let (mut rest, mut offset) = (records, HEADER_LEN as u64);
    while let Some((len, after)) = rest.split_first_chunk_mut::<4>() {
        let body_len = u32::from_le_bytes(*len) as usize + 1;
        let Some((sum, after)) = after.split_first_chunk_mut::<4>() else {
            return;
        };
        let Some((body, after)) = after.split_at_mut_checked(body_len) else {
            return;
        };
        *sum = checksum(body, seed(number, offset)).to_le_bytes();
        offset += (FRAME_LEN + body_len) as u64;
        rest = after;
    }
}
