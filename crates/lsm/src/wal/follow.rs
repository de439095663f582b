//! Reading a log while it is written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::replay::Log;
use super::{DATA, HEADER_LEN, LogKind};
use crate::error::{Error, Result};
use crate::fs::{Fs, ReadFile};

/// A reader of one log segment that goes on where it stopped, as the segment grows.
pub struct Follower {
    file: Arc<dyn ReadFile>,
    path: PathBuf,
    number: u64,
    format: u32,
    offset: u64,
    /// A part of the file that was read already, and where it begins.
    chunk: Vec<u8>,
    chunk_at: u64,
}

impl Follower {
    /// Opens segment `number` at `path`, of which the first `end` bytes are written.
    ///
    /// Fails as [`replay`](super::replay()) does.
    pub fn open(fs: &dyn Fs, path: &Path, number: u64, end: u64) -> Result<Follower> {
        let file = fs.open(path).map_err(|e| Error::io(path, "open", e))?;
        let mut follower = Follower {
            file,
            path: path.to_path_buf(),
            number,
            format: 0,
            offset: HEADER_LEN as u64,
            chunk: Vec::new(),
            chunk_at: 0,
        };
        let found = follower.with_log(end, |log| log.header(LogKind::Wal))?;
        let (_, format) = found.map_err(|why| Error::corruption(path, 0, why))?;
        follower.format = format;
        Ok(follower)
    }

    /// The payload of the next record within the file's first `end` bytes, which must be written, if `accept` takes
    /// it: otherwise the next call reads it again.
    ///
    /// # Errors
    /// [`Error::Corruption`]: what was written is not there any more. [`Error::Io`].
    pub fn next(
        &mut self,
        end: u64,
        accept: impl FnOnce(&[u8]) -> Result<bool>,
    ) -> Result<Option<Vec<u8>>> {
        while self.offset < end {
            let offset = self.offset;
            let read = self.with_log(end, |log| {
                Ok(log
                    .record(offset)?
                    .map(|(body, next)| (body.to_vec(), next)))
            })?;
            let (mut body, next) =
                read.map_err(|why| Error::corruption(&self.path, offset, why))?;
            if body.first() != Some(&DATA) {
                self.offset = next;
                continue;
            }
            body.remove(0);
            if !accept(&body)? {
                return Ok(None);
            }
            self.offset = next;
            return Ok(Some(body));
        }
        Ok(None)
    }

    /// Where the next record begins, for errors.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn with_log<T>(&mut self, end: u64, read: impl FnOnce(&mut Log<'_>) -> Result<T>) -> Result<T> {
        let mut log = Log {
            file: self.file.clone(),
            path: &self.path,
            kind: LogKind::Wal,
            format: self.format,
            number: self.number,
            len: end,
            // All of it lies within what was written when it was read, which does not change any more.
            chunk: std::mem::take(&mut self.chunk),
            chunk_at: self.chunk_at,
        };
        let result = read(&mut log);
        (self.chunk, self.chunk_at) = (log.chunk, log.chunk_at);
        result
    }
}
