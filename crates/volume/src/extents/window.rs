//! A file that is read from front to back, in large pieces.

use std::path::PathBuf;
use std::sync::Arc;

use esker_fs::ReadFile;

use super::folder::Folder;
use super::record::{ALIGNMENT, HEADER_BYTES, MAGIC, RecordHeader};
use crate::command::checksum;
use crate::error::{Error, Result};
use crate::place::Place;

/// The fewest bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// A segment, and the piece of it that was read last.
pub(super) struct Window<'a> {
    folder: &'a Folder,
    number: u32,
    pub(super) path: PathBuf,
    file: Arc<dyn ReadFile>,
    /// Bytes of the file.
    pub(super) len: u32,
    at: u32,
    piece: Vec<u8>,
}

/// What is at some offset of a segment.
pub(super) enum Unit<'a> {
    /// A record.
    Record(RecordHeader, &'a [u8]),
    /// A header whose payload is not there, or is damaged.
    Damaged(RecordHeader),
    /// Not a header.
    Unknown,
}

impl<'a> Window<'a> {
    pub(super) fn open(folder: &'a Folder, number: u32) -> Result<Window<'a>> {
        let path = folder.segment(number);
        let file = folder.open(&path)?;
        let len = folder.len(&*file, &path)?;
        Ok(Window {
            folder,
            number,
            path,
            file,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            at: 0,
            piece: Vec::new(),
        })
    }

    /// A range of the file; `None` where the file ends before its end.
    pub(super) fn get(&mut self, offset: u32, len: usize) -> Result<Option<&[u8]>> {
        let left = self.len.saturating_sub(offset) as usize;
        if len > left {
            return Ok(None);
        }
        let is_here = offset >= self.at && (offset - self.at) as usize + len <= self.piece.len();
        if !is_here {
            self.piece.clear();
            self.piece.resize(len.max(PIECE).min(left), 0);
            self.at = offset;
            let read = self.file.read_at(u64::from(offset), &mut self.piece);
            if let Err(e) = read {
                self.piece.clear();
                return Err(Error::io(&self.path, "read", e));
            }
        }
        let from = (offset - self.at) as usize;
        Ok(self.piece.get(from..from + len))
    }

    /// The header at `offset`.
    pub(super) fn header(&mut self, offset: u32) -> Result<Option<RecordHeader>> {
        let (disk, segment) = (self.folder.disk, self.number);
        let bytes = self.get(offset, HEADER_BYTES)?;
        Ok(bytes.and_then(|bytes| RecordHeader::decode(bytes, disk, Place { segment, offset })))
    }

    /// What is at `offset`.
    pub(super) fn unit(&mut self, offset: u32) -> Result<Unit<'_>> {
        let Some(header) = self.header(offset)? else {
            return Ok(Unit::Unknown);
        };
        // The zeros behind the payload may be missing.
        let end = HEADER_BYTES + header.bytes as usize;
        let record = self.get(offset, end)?;
        Ok(match record.and_then(|record| record.get(HEADER_BYTES..)) {
            Some(payload) if checksum(payload) == header.checksum => Unit::Record(header, payload),
            _ => Unit::Damaged(header),
        })
    }

    /// The first header at `from` or behind it.
    pub(super) fn next_header(&mut self, from: u32) -> Result<Option<(u32, RecordHeader)>> {
        let Some(mut offset) = from.checked_next_multiple_of(ALIGNMENT as u32) else {
            return Ok(None);
        };
        while let Some(magic) = self.get(offset, MAGIC.len())? {
            if magic == MAGIC
                && let Some(header) = self.header(offset)?
            {
                return Ok(Some((offset, header)));
            }
            let Some(next) = offset.checked_add(ALIGNMENT as u32) else {
                break;
            };
            offset = next;
        }
        Ok(None)
    }
}
