//! Reading a log file.

use std::path::Path;
use std::sync::Arc;

use super::format::{
    DATA, DEMANDED, FRAME_LEN, HEADER_LEN, LogFormat, MARK, MARK_LEN, MARK_MAGIC, NEXT, PREFIX_LEN,
    TIME, checksum, header_checksum, seed,
};
use crate::coding::Reader;
use crate::error::{Error, Result};
use crate::fs::{Fs, ReadFile};

/// Bytes per read.
const CHUNK: u64 = 256 << 10;

/// The header of a log file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogHeader {
    /// The log that the file belongs to, with the file's version.
    pub format: LogFormat,
    /// The file's number.
    pub number: u64,
    /// The number and the final length of the previous file, if that could still be replayed when
    /// this one was started.
    pub previous: Option<(u64, u64)>,
}

/// A record of a log file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'r> {
    /// Appended data.
    Data {
        /// The payload.
        payload: &'r [u8],
        /// Whether the writer acknowledges it only when it is durable.
        demanded: bool,
    },
    /// A sync marker.
    Mark {
        /// The file was durable up to this offset before the marker was written.
        durable: u64,
    },
    /// The possible next segment of the log.
    Next {
        /// Its number.
        number: u64,
    },
    /// When the records from here to the next one of these were appended; 0 where it is not known.
    Time {
        /// In milliseconds since 1970.
        millis: u64,
    },
}

/// The end of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tail {
    /// With its last record.
    Clean,
    /// With bytes that no sync covered and that are no record: the remains of a write in a crash.
    Torn {
        /// Their offset.
        offset: u64,
        /// Why they are no record.
        why: String,
    },
}

/// The result of [`replay`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// The header; `None` when it was torn itself, and then there are no records.
    pub header: Option<LogHeader>,
    /// The end of the last valid record that is no sync marker, in bytes.
    pub end: u64,
    /// How the log ends.
    pub tail: Tail,
    /// The last offset that a sync marker confirmed as durable; 0 without any.
    pub synced: u64,
}

/// Passes every record of the log file `number` at `path` to `visit`, in order, with its offset.
/// `sealed` is the exact length recorded at a clean close.
///
/// Linear in the file's length. Memory: one chunk of 256 KiB, or the longest record.
///
/// Fails with [`Error::Corruption`] for a bad record that a sync marker or `sealed` says was
/// durable (also when records before it were visited), for a sealed file of another length, and for
/// the file of another kind or number; with [`Error::NewerFormat`]; with [`Error::Io`]; and with
/// errors of `visit`.
pub fn replay(
    fs: &dyn Fs,
    path: &Path,
    format: LogFormat,
    number: u64,
    sealed: Option<u64>,
    visit: &mut dyn FnMut(u64, Record<'_>) -> Result<()>,
) -> Result<Replayed> {
    let file = fs.open(path).map_err(|e| Error::io(path, "open", e))?;
    let len = file
        .len()
        .map_err(|e| Error::io(path, "read the length of", e))?;
    let mut log = Log {
        file,
        path,
        format,
        number,
        len,
        at_a_time: CHUNK,
        chunk: Vec::new(),
        chunk_at: 0,
    };

    let other_length = |sealed: u64| {
        let what = format!("the file has {len} bytes, and had {sealed} when it was closed");
        Error::corruption(path, len.min(sealed), what)
    };
    if let Some(sealed) = sealed.filter(|sealed| *sealed > len) {
        return Err(other_length(sealed));
    }
    let header = match log.header()? {
        Ok(header) => {
            log.format = header.format;
            header
        }
        Err(why) => {
            let tail = log.torn(0, why, sealed)?;
            return Ok(Replayed {
                header: None,
                end: 0,
                tail,
                synced: 0,
            });
        }
    };
    if let Some(sealed) = sealed {
        if sealed < len && !log.is_written_ahead(sealed)? {
            return Err(other_length(sealed));
        }
        log.len = sealed;
    }
    let mut offset = HEADER_LEN as u64;
    let (mut end, mut synced) = (offset, 0);
    while offset < log.len {
        let (record, next) = match log.record(offset)? {
            Ok(found) => found,
            Err(why) => {
                if log.is_written_ahead(offset)? {
                    break;
                }
                let tail = log.torn(offset, why, sealed)?;
                return Ok(Replayed {
                    header: Some(header),
                    end,
                    tail,
                    synced,
                });
            }
        };
        match record {
            Record::Mark { durable } => synced = durable,
            _ => end = next,
        }
        visit(offset, record)?;
        offset = next;
    }
    Ok(Replayed {
        header: Some(header),
        end,
        tail: Tail::Clean,
        synced,
    })
}

/// Decodes the payload of a sync marker.
fn mark(payload: &[u8]) -> Option<u64> {
    let mut fields = Reader::new(payload);
    let magic = fields.take(MARK_MAGIC.len())?;
    let up_to = fields.u64()?;
    (magic == MARK_MAGIC && fields.is_empty()).then_some(up_to)
}

pub(super) struct Log<'a> {
    pub(super) file: Arc<dyn ReadFile>,
    pub(super) path: &'a Path,
    /// With the file's version, once the header was read.
    pub(super) format: LogFormat,
    pub(super) number: u64,
    pub(super) len: u64,
    /// Bytes per read, except for longer records.
    pub(super) at_a_time: u64,
    /// A range of the file, and its offset.
    pub(super) chunk: Vec<u8>,
    pub(super) chunk_at: u64,
}

/// The unit at an offset, or why it is invalid.
pub(super) type Found<T> = std::result::Result<T, String>;

impl Log<'_> {
    /// The `n` bytes at `offset`; fewer where the file ends before.
    fn bytes(&mut self, offset: u64, n: u64) -> Result<&[u8]> {
        let n = n.min(self.len.saturating_sub(offset));
        let in_chunk = offset.checked_sub(self.chunk_at);
        let there = in_chunk
            .and_then(|at| at.checked_add(n))
            .is_some_and(|e| e <= self.chunk.len() as u64);
        if !there {
            // `n` is at most the length of the file, so an untrusted length is not used.
            let fill = n.max(self.at_a_time).min(self.len.saturating_sub(offset));
            self.chunk
                .resize(usize::try_from(fill).unwrap_or(usize::MAX), 0);
            self.chunk_at = offset;
            let read = self.file.read_at(offset, &mut self.chunk);
            read.map_err(|e| Error::io(self.path, "read", e))?;
        }
        let from = (offset - self.chunk_at) as usize;
        Ok(self
            .chunk
            .get(from..)
            .and_then(|rest| rest.get(..n as usize))
            .unwrap_or_default())
    }

    /// The header, with the file's version.
    pub(super) fn header(&mut self) -> Result<Found<LogHeader>> {
        let (path, number, format) = (self.path, self.number, self.format);
        let bytes = self.bytes(0, HEADER_LEN as u64)?;
        let Some((fields, sum)) = bytes.split_last_chunk() else {
            return Ok(Err("no whole header".into()));
        };
        if fields.len() + sum.len() < HEADER_LEN {
            return Ok(Err("no whole header".into()));
        }
        if header_checksum(fields) != u64::from_le_bytes(*sum) {
            return Ok(Err("the header has a wrong checksum".into()));
        }
        let damaged = |what: String| Error::corruption(path, 0, what);
        let mut fields = Reader::new(fields);
        if fields.take(8) != Some(&format.magic) {
            let magic = String::from_utf8_lossy(&format.magic);
            return Err(damaged(format!("not a file of kind {magic}")));
        }
        let short = || damaged("a short header".into());
        let found = fields.u32().ok_or_else(short)?;
        if found > format.version {
            return Err(Error::NewerFormat {
                path: path.into(),
                found,
                supported: format.version,
            });
        }
        let reserved = fields.u32().ok_or_else(short)?;
        if found == 0 || reserved != 0 {
            return Err(damaged(format!(
                "an impossible header: format {found}, {reserved}"
            )));
        }
        let own = fields.u64().ok_or_else(short)?;
        if own != number {
            return Err(damaged(format!(
                "the log numbered {own} in place of {number}"
            )));
        }
        let before = fields.u64().ok_or_else(short)?;
        let before_len = fields.u64().ok_or_else(short)?;
        let previous = (before != u64::MAX).then_some((before, before_len));
        Ok(Ok(LogHeader {
            format: LogFormat {
                version: found,
                ..format
            },
            number,
            previous,
        }))
    }

    /// The record at `offset`, and the offset of the next one.
    pub(super) fn record(&mut self, offset: u64) -> Result<Found<(Record<'_>, u64)>> {
        let left = self.len - offset;
        let (format, number, path) = (self.format, self.number, self.path);
        let Some(payload_len) = Reader::new(self.bytes(offset, FRAME_LEN as u64)?).u32() else {
            return Ok(Err(format!("{left} bytes, too few for a record")));
        };
        let whole = PREFIX_LEN as u64 + u64::from(payload_len);
        if whole > left {
            return Ok(Err(format!(
                "a record of {whole} bytes where the file has {left}"
            )));
        }
        let mut record = Reader::new(self.bytes(offset, whole)?);
        let (_, sum) = (record.u32(), record.u32());
        let body = record.rest();
        if sum != Some(checksum(format, body, seed(number, offset))) {
            return Ok(Err("a record with a wrong checksum".into()));
        }
        // A valid checksum means that the record was written like this: other errors in it are not
        // a torn write.
        let impossible = |what: &str| Error::corruption(path, offset, what);
        let record = match body.split_first() {
            Some((&DATA, payload)) => Record::Data {
                payload,
                demanded: false,
            },
            Some((&DEMANDED, payload)) if format.is_log() => Record::Data {
                payload,
                demanded: true,
            },
            Some((&MARK, payload)) => {
                let durable = mark(payload).filter(|durable| *durable <= offset);
                let durable = durable.ok_or_else(|| impossible("an impossible sync marker"))?;
                Record::Mark { durable }
            }
            Some((&NEXT, payload)) if format.is_log() => {
                let number = payload.try_into().map(u64::from_le_bytes);
                let number = number.map_err(|_| impossible("an impossible next segment"))?;
                Record::Next { number }
            }
            Some((&TIME, payload)) if format.is_log() => {
                let millis = payload.try_into().map(u64::from_le_bytes);
                let millis = millis.map_err(|_| impossible("an impossible time"))?;
                Record::Time { millis }
            }
            _ => return Err(impossible("a record of an unknown type")),
        };
        Ok(Ok((record, offset + whole)))
    }

    /// True when there are only zeros from `offset` on, in a log that may be preallocated.
    fn is_written_ahead(&mut self, offset: u64) -> Result<bool> {
        if !self.format.is_split() {
            return Ok(false);
        }
        let mut at = offset;
        while at < self.len {
            let chunk = self.bytes(at, CHUNK)?;
            if chunk.is_empty() || chunk.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += chunk.len() as u64;
        }
        Ok(true)
    }

    /// Classifies the bad unit at `offset`: the end of the log, or damage of durable bytes.
    fn torn(&mut self, offset: u64, why: String, sealed: Option<u64>) -> Result<Tail> {
        if sealed.is_some() {
            return Err(Error::corruption(self.path, offset, why));
        }
        if let Some(at) = self.marker_over(offset)? {
            let what = format!("{why}, and the sync marker at {at} says that it was durable");
            return Err(Error::corruption(self.path, offset, what));
        }
        Ok(Tail::Torn { offset, why })
    }

    /// The offset of a sync marker behind `offset` that covers it. The bytes between may be
    /// anything, so this checks every offset.
    fn marker_over(&mut self, offset: u64) -> Result<Option<u64>> {
        let mut at = offset;
        while self.len.saturating_sub(at) >= MARK_LEN as u64 {
            let (format, number) = (self.format, self.number);
            let chunk = self.bytes(at, CHUNK)?;
            for (place, record) in (at..).zip(chunk.windows(MARK_LEN)) {
                let Some((frame, body)) = record.split_at_checked(FRAME_LEN) else {
                    continue;
                };
                let Some((&MARK, payload)) = body.split_first() else {
                    continue;
                };
                if mark(payload).is_some_and(|up_to| up_to > offset)
                    && Reader::new(frame).u64()
                        == Some(mark_frame(format, body, seed(number, place)))
                {
                    return Ok(Some(place));
                }
            }
            at += (chunk.len() - MARK_LEN + 1) as u64;
        }
        Ok(None)
    }
}

/// The frame of a sync marker as one number: length and checksum.
fn mark_frame(format: LogFormat, body: &[u8], seed: u64) -> u64 {
    let payload_len = (MARK_LEN - PREFIX_LEN) as u64;
    payload_len | u64::from(checksum(format, body, seed)) << 32
}
