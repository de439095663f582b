//! Appending to a log.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::format::{
    DATA, DEMANDED, FRAME_LEN, HEADER_LEN, LogFormat, MARK, MARK_MAGIC, NEXT, PREFIX_LEN, TIME,
    checksum, header_checksum, seed, split_checksum,
};
use crate::error::{Error, Result};
use crate::fs::{Fs, WriteFile};

/// A larger buffer, left by a large record, is freed.
const KEPT_BUFFER: usize = 1 << 20;

/// Bytes preallocated at a time: as much as the log has, within these bounds.
const AHEAD: std::ops::RangeInclusive<u64> = 16 << 10..=1 << 20;

/// Writes one log file. After a failed sync, or a failed append that could not be rolled back,
/// every later call fails with [`Error::Poisoned`].
pub struct LogWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    number: u64,
    format: LogFormat,
    appending: Mutex<Appending>,
    len: AtomicU64,
    /// The end of the last record that is no marker.
    records_end: AtomicU64,
    synced: AtomicU64,
    /// An append was rolled back since the last sync.
    shortened: AtomicBool,
    failure: OnceLock<String>,
}

struct Appending {
    buffer: Vec<u8>,
    /// The offset in the last sync marker of the file.
    marked: u64,
    /// The durable length at the last append, and whether a sync preceded that.
    seen: u64,
    after_sync: bool,
    /// The file's length is recorded elsewhere: no more markers are appended.
    sealed: bool,
    /// The file's length, with the preallocated zeros; `None` after a failure.
    written_ahead: Option<u64>,
}

/// An append that failed.
#[derive(Debug)]
pub struct AppendError {
    /// Why.
    pub error: Error,
    /// True when the file is unchanged and the log can continue; false when it is in an unknown
    /// state and the log refuses further calls.
    pub rolled_back: bool,
}

impl From<AppendError> for Error {
    fn from(failed: AppendError) -> Error {
        failed.error
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for AppendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl LogWriter {
    /// Starts the log file `number` at `path`, truncating an existing one. `previous` is the number
    /// and the final length of the previous file, if that may still be replayed. Nothing is durable
    /// yet: that takes [`LogWriter::sync`] and a sync of the folder.
    ///
    /// Fails with [`Error::Io`]; the file is removed then.
    pub fn create(
        fs: &dyn Fs,
        path: &Path,
        format: LogFormat,
        number: u64,
        previous: Option<(u64, u64)>,
    ) -> Result<LogWriter> {
        let (before, before_len) = previous.unwrap_or((u64::MAX, 0));
        let mut header = Vec::with_capacity(HEADER_LEN);
        header.extend_from_slice(&format.magic);
        header.extend_from_slice(&format.version.to_le_bytes());
        header.extend_from_slice(&0_u32.to_le_bytes());
        for field in [number, before, before_len] {
            header.extend_from_slice(&field.to_le_bytes());
        }
        header.extend_from_slice(&header_checksum(&header).to_le_bytes());

        let file = fs.create(path).map_err(|e| Error::io(path, "create", e))?;
        if let Err(e) = file.append(&header) {
            drop(file);
            let _ = fs.remove(path);
            return Err(Error::io(path, "append", e));
        }
        Ok(LogWriter {
            file,
            path: path.to_path_buf(),
            number,
            format,
            appending: Mutex::new(Appending {
                buffer: Vec::new(),
                marked: 0,
                seen: 0,
                after_sync: false,
                sealed: false,
                written_ahead: format.is_split().then_some(0),
            }),
            len: AtomicU64::new(header.len() as u64),
            records_end: AtomicU64::new(header.len() as u64),
            synced: AtomicU64::new(0),
            shortened: AtomicBool::new(false),
            failure: OnceLock::new(),
        })
    }

    /// Appends one record whose payload is the concatenation of the parts, in one write, and
    /// returns its end. It is durable after the next [`LogWriter::sync`]. Called by one thread at a
    /// time.
    ///
    /// On failure the file is truncated to its previous length. Fails with [`Error::Io`], with
    /// [`Error::Limit`] for a payload of 4 GiB or more, and with [`Error::Poisoned`].
    pub fn append(&self, payload_parts: &[&[u8]]) -> std::result::Result<u64, AppendError> {
        let body = |buffer: &mut Vec<u8>, offset| {
            let seed = seed(self.number, offset);
            put_record(buffer, DATA, payload_parts, |body| {
                checksum(self.format, body, seed)
            });
        };
        let len = payload_parts.iter().map(|part| part.len() as u64).sum();
        self.put(Some((len, &body)))
    }

    /// As [`LogWriter::append`], given the [`rest_hash`](super::rest_hash) of the payload: a caller
    /// that appends under a lock hashes outside of it. `demanded` records that its writer waits
    /// until it is durable: readers of the log wait as well. With `time`, in milliseconds since
    /// 1970, a record of that comes first. Not for manifests.
    pub fn append_hashed(
        &self,
        payload: &[u8],
        rest_hash: u64,
        demanded: bool,
        time: Option<u64>,
    ) -> std::result::Result<u64, AppendError> {
        let body = |buffer: &mut Vec<u8>, offset| {
            let start = buffer.len();
            if let Some(time) = time {
                let seed = seed(self.number, offset);
                put_record(buffer, TIME, &[&time.to_le_bytes()], |body| {
                    checksum(self.format, body, seed)
                });
            }
            let seed = seed(self.number, offset + (buffer.len() - start) as u64);
            let kind = if demanded { DEMANDED } else { DATA };
            put_record(buffer, kind, &[payload], |body| {
                split_checksum(body, rest_hash, seed)
            });
        };
        self.put(Some((payload.len() as u64, &body)))
    }

    /// Appends a sync marker if one is due, and a record if there is one.
    fn put(&self, record: Option<(u64, &PutRecord<'_>)>) -> std::result::Result<u64, AppendError> {
        self.usable().map_err(|error| AppendError {
            error,
            rolled_back: false,
        })?;
        let limit = u64::from(u32::MAX);
        if let Some((value, _)) = record.filter(|(len, _)| *len > limit) {
            let error = Error::Limit {
                what: "a log record in bytes",
                limit,
                value,
            };
            return Err(AppendError {
                error,
                rolled_back: true,
            });
        }

        // Held during the write; there is one appending thread, and separate markers are rare and
        // short.
        let mut appending = self.appending.lock();
        let Appending {
            buffer,
            marked,
            seen,
            after_sync,
            sealed,
            written_ahead,
        } = &mut *appending;
        let start = self.len.load(Ordering::Relaxed);
        let synced = self.synced.load(Ordering::Acquire);
        buffer.clear();
        // Markers do not count: no one needs to know that a marker is durable.
        let is_due = !*sealed && synced.min(self.records_end.load(Ordering::Relaxed)) > *marked;
        if is_due {
            let (up_to, seed) = (synced.to_le_bytes(), seed(self.number, start));
            put_record(buffer, MARK, &[&MARK_MAGIC, &up_to], |body| {
                checksum(self.format, body, seed)
            });
        }
        if let Some((_, put)) = record {
            put(buffer, start + buffer.len() as u64);
        }
        if buffer.is_empty() {
            return Ok(start);
        }

        let written = self.file.append(buffer);
        let end = start + buffer.len() as u64;
        if buffer.capacity() > KEPT_BUFFER {
            *buffer = Vec::new();
        }
        match written {
            Ok(()) => {
                if is_due {
                    *marked = synced;
                }
                let mut is_synced_often = false;
                if record.is_some() {
                    self.records_end.store(end, Ordering::Release);
                    let is_synced = synced > std::mem::replace(seen, synced);
                    is_synced_often = std::mem::replace(after_sync, is_synced) && is_synced;
                }
                if is_synced_often && written_ahead.is_some_and(|there| there < end) {
                    // If that fails the log continues without.
                    let ahead = start.clamp(*AHEAD.start(), *AHEAD.end());
                    let done = self.file.write_ahead(ahead as usize);
                    *written_ahead = done.is_ok().then_some(end + ahead);
                }
                self.len.store(end, Ordering::Release);
                Ok(end)
            }
            Err(e) => {
                let error = Error::io(&self.path, "append", e);
                // Until the next sync a power cut may restore the truncated bytes.
                self.shortened.store(true, Ordering::Release);
                let rolled_back = self.file.truncate(start).is_ok();
                *written_ahead = written_ahead.map(|_| 0);
                if !rolled_back {
                    self.poison(&error);
                }
                Err(AppendError { error, rolled_back })
            }
        }
    }

    /// Appends a sync marker, if a sync is not marked yet: for files that are read concurrently, or
    /// appended to so rarely that the marker before the next record comes late. The marker itself
    /// is durable after the next sync. May run beside an append. Fails as [`LogWriter::append`]
    /// does.
    pub fn append_marker(&self) -> std::result::Result<(), AppendError> {
        self.put(None).map(|_| ())
    }

    /// Records that the log may continue in the file numbered `next`, and returns the offset from
    /// which it would. It need not: records can still be appended.
    pub fn end(&self, next: u64) -> std::result::Result<u64, AppendError> {
        let put = |buffer: &mut Vec<u8>, offset| {
            let seed = seed(self.number, offset);
            put_record(buffer, NEXT, &[&next.to_le_bytes()], |body| {
                checksum(self.format, body, seed)
            });
        };
        self.put(Some((8, &put)))
    }

    /// Fixes the file's length unless data is appended: no more markers are written.
    pub fn seal(&self) {
        self.appending.lock().sealed = true;
    }

    /// Truncates the preallocated zeros, when no more records will come. Durable after the next
    /// [`LogWriter::sync`]. A failure is ignored.
    pub fn trim(&self) {
        let mut appending = self.appending.lock();
        let len = self.len.load(Ordering::Relaxed);
        if self.usable().is_ok() && appending.written_ahead.is_some_and(|there| there > len) {
            let _ = self.file.truncate(len);
            appending.written_ahead = Some(0);
        }
    }

    /// Makes data appended before this call durable. May run beside an append. Always syncs, also
    /// when nothing was appended since the last sync: an append may have been rolled back.
    ///
    /// Fails with [`Error::Io`], and from then on with [`Error::Poisoned`]: after a failed sync the
    /// kernel may have dropped the data, and a later success proves nothing.
    pub fn sync(&self) -> Result<()> {
        self.usable()?;
        let up_to = self.len.load(Ordering::Acquire);
        // Before the sync: an append that is rolled back beside it needs another sync.
        self.shortened.store(false, Ordering::Release);
        if let Err(e) = self.file.sync() {
            let error = Error::io(&self.path, "sync", e);
            self.poison(&error);
            return Err(error);
        }
        self.synced.fetch_max(up_to, Ordering::AcqRel);
        Ok(())
    }

    /// The file's length in bytes, without a running append.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// True when there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() <= HEADER_LEN as u64
    }

    /// True when all records of the file are durable (except markers), and no append that was
    /// rolled back can reappear behind them.
    #[inline]
    pub fn is_durable(&self) -> bool {
        let end = self.records_end.load(Ordering::Acquire);
        self.synced_len() >= end && !self.shortened.load(Ordering::Acquire)
    }

    /// The length known to be durable.
    #[inline]
    pub fn synced_len(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    #[inline]
    fn usable(&self) -> Result<()> {
        match self.failure.get() {
            None => Ok(()),
            Some(cause) => Err(Error::Poisoned {
                cause: cause.clone(),
            }),
        }
    }

    fn poison(&self, error: &Error) {
        // The first failure is the cause of the others.
        let _ = self.failure.set(error.to_string());
    }
}

/// Encodes a record, to be appended at the given offset, into the buffer.
type PutRecord<'r> = dyn Fn(&mut Vec<u8>, u64) + 'r;

#[inline]
fn put_record(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]], checksum: impl Fn(&[u8]) -> u32) {
    let start = out.len();
    let payload_len: usize = parts.iter().map(|part| part.len()).sum();
    out.reserve(PREFIX_LEN + payload_len);
    out.extend_from_slice(&(payload_len as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.push(kind);
    for part in parts {
        out.extend_from_slice(part);
    }
    let Some((frame, body)) = out
        .get_mut(start..)
        .and_then(|record| record.split_at_mut_checked(FRAME_LEN))
    else {
        return;
    };
    if let Some(sum) = frame.last_chunk_mut() {
        *sum = checksum(body).to_le_bytes();
    }
}
