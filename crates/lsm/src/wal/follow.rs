//! Following a log that is being written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{HEADER_LEN, LogFormat};
use super::replay::{Found, Log, LogHeader, Record};
use crate::error::{Error, Result};
use crate::fs::{Fs, ReadFile};

/// Bytes per read: the rest is not written yet, and will be read again.
const CHUNK: u64 = 16 << 10;

/// A reader of one log file that continues where it stopped, as the file grows.
pub struct Follower {
    file: Arc<dyn ReadFile>,
    path: PathBuf,
    header: LogHeader,
    offset: u64,
    /// The end of the last record that is no marker.
    end: u64,
    /// A range of the file in memory, and its offset.
    chunk: Vec<u8>,
    chunk_at: u64,
}

impl Follower {
    /// Opens the log file `number` at `path`, whose header is written, to read from `offset` on:
    /// the end of a record, or 0 for the first.
    ///
    /// Fails as [`replay`](super::replay()) does.
    pub fn open(
        fs: &dyn Fs,
        path: &Path,
        format: LogFormat,
        number: u64,
        offset: u64,
    ) -> Result<Follower> {
        let file = fs.open(path).map_err(|e| Error::io(path, "open", e))?;
        let mut log = Log {
            len: HEADER_LEN as u64,
            at_a_time: HEADER_LEN as u64,
            file: file.clone(),
            path,
            format,
            number,
            chunk: Vec::new(),
            chunk_at: 0,
        };
        let len = file.len();
        log.len = len.map_err(|e| Error::io(path, "read the length of", e))?;
        let found = log.header()?;
        let header = found.map_err(|why| Error::corruption(path, 0, why))?;
        Ok(Follower {
            file,
            path: path.to_path_buf(),
            header,
            offset: offset.max(HEADER_LEN as u64),
            end: offset.max(HEADER_LEN as u64),
            chunk: Vec::new(),
            chunk_at: 0,
        })
    }

    /// The file's header.
    pub fn header(&self) -> LogHeader {
        self.header
    }

    /// Passes the next record within the file's first `end` bytes, which must be written, to
    /// `visit`; returns its result, and `None` behind the last record. The next call continues
    /// behind the record, unless `visit` refused it with `None`.
    ///
    /// # Errors
    /// [`Error::Corruption`]: written bytes are missing. [`Error::Io`]. Errors of `visit`.
    pub fn next<T>(
        &mut self,
        end: u64,
        visit: impl FnOnce(Record<'_>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let offset = self.offset;
        if offset >= end {
            return Ok(None);
        }
        let visited = self.visit(end, visit)?;
        visited.map_err(|why| Error::corruption(&self.path, offset, why))
    }

    /// As [`Follower::next`], up to the current end. Bytes that are no valid record count as not
    /// written yet.
    pub fn next_written<T>(
        &mut self,
        mut visit: impl FnMut(Record<'_>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        // The chunk in memory first.
        for _ in 0..2 {
            let len = self.file.len();
            let len = len.map_err(|e| Error::io(&self.path, "read the length of", e))?;
            if self.offset >= len {
                return Ok(None);
            }
            let in_chunk = self.offset.checked_sub(self.chunk_at);
            let was_read = in_chunk.is_some_and(|at| at < self.chunk.len() as u64);
            if let Ok(visited) = self.visit(len, &mut visit)? {
                return Ok(visited);
            }
            self.chunk.clear();
            if !was_read {
                break;
            }
        }
        Ok(None)
    }

    /// The end of the last record read that is no sync marker: the next file continues from there.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The offset of the next record.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn visit<T>(
        &mut self,
        len: u64,
        visit: impl FnOnce(Record<'_>) -> Result<Option<T>>,
    ) -> Result<Found<Option<T>>> {
        let mut log = Log {
            file: self.file.clone(),
            path: &self.path,
            format: self.header.format,
            number: self.header.number,
            len,
            at_a_time: CHUNK,
            chunk: std::mem::take(&mut self.chunk),
            chunk_at: self.chunk_at,
        };
        let visited = log.record(self.offset).and_then(|found| match found {
            Ok((record, next)) => {
                let is_mark = matches!(record, Record::Mark { .. });
                Ok(Ok((visit(record)?, is_mark, next)))
            }
            Err(why) => Ok(Err(why)),
        });
        (self.chunk, self.chunk_at) = (log.chunk, log.chunk_at);
        Ok(visited?.map(|(visited, is_mark, next)| {
            if visited.is_some() {
                self.offset = next;
                self.end = if is_mark { self.end } else { next };
            }
            visited
        }))
    }
}
