//! The framing of log files: formats, lengths, types of records, checksums. The head of the module
//! describes them.

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
    pub(super) fn is_log(self) -> bool {
        self.magic != LogFormat::MANIFEST.magic
    }

    /// True for files whose checksums are made in two steps, and that may be preallocated.
    pub(super) fn is_split(self) -> bool {
        self.is_log() && (self.version >= 2 || self.magic != LogFormat::WAL.magic)
    }
}

pub(super) const HEADER_LEN: usize = 48;
/// Length and checksum, which the checksum does not cover.
pub(super) const FRAME_LEN: usize = 8;
/// Bytes of a record before its payload.
pub(super) const PREFIX_LEN: usize = FRAME_LEN + 1;
pub(super) const MARK_PAYLOAD_LEN: usize = 16;
pub(super) const MARK_LEN: usize = PREFIX_LEN + MARK_PAYLOAD_LEN;
pub(super) const DATA: u8 = 1;
pub(super) const MARK: u8 = 2;
/// Data whose writer waits for a sync.
pub(super) const DEMANDED: u8 = 3;
pub(super) const NEXT: u8 = 4;
pub(super) const TIME: u8 = 5;
/// Bytes that are unlikely in ordinary data, and that do not overlap themselves.
pub(super) const MARK_MAGIC: [u8; 8] = [0xe5, b'S', b'Y', b'N', b'C', 0xd1, 0x0a, 0x9b];

/// The seed of the record at `offset` of file `number`.
#[inline]
pub(super) fn seed(number: u64, offset: u64) -> u64 {
    number
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(offset)
}

/// The part of a payload that is hashed separately, in logs since format 2.
pub(super) const HEAD_LEN: usize = 8;

/// The checksum over `body`: a record's type and payload.
#[inline]
pub(super) fn checksum(format: LogFormat, body: &[u8], seed: u64) -> u32 {
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
pub(super) fn split_checksum(body: &[u8], rest_hash: u64, seed: u64) -> u32 {
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

pub(super) fn header_checksum(fields: &[u8]) -> u64 {
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
