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
mod format;
mod replay;
mod writer;

#[cfg(test)]
mod tests;

pub use follow::Follower;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use format::reseal;
pub use format::{LogFormat, rest_hash};
pub use replay::{LogHeader, Record, Replayed, Tail, replay};
pub use writer::{AppendError, LogWriter};
