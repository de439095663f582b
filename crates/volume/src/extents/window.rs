//! A file that is read from front to back, in large pieces.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_fs::ReadFile;

use super::folder::Folder;
use super::record::{ALIGNMENT, HEADER_BYTES, MAGIC, RecordHeader};
use crate::command::checksum;
use crate::error::{Error, Result};
use crate::place::Place;

/// The fewest bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// Bytes of a sector: where a disk cannot read some, others beside them may be readable.
const SECTOR: u64 = 512;

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
    /// Up to where a sector could not be read, and why: it is as if it were damaged.
    unreadable: Option<(u64, Error)>,
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
            unreadable: None,
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
            if let Err(error) = self.read(offset) {
                self.piece.clear();
                return Err(error);
            }
        }
        let from = (offset - self.at) as usize;
        Ok(self.piece.get(from..from + len))
    }

    /// Fills the piece from `offset`. Sectors that cannot be read are as if they were damaged.
    fn read(&mut self, offset: u32) -> Result<()> {
        let io = |path: &Path, error| Error::io(path, "read", error);
        let read = self.file.read_at(u64::from(offset), &mut self.piece);
        let Err(error) = read.map_err(|error| io(&self.path, error)) else {
            return Ok(());
        };
        if !error.is_damage() {
            return Err(error);
        }
        let mut at = u64::from(offset);
        let first = (at + 1).next_multiple_of(SECTOR) - at;
        let first = self.piece.len().min(first as usize);
        let (head, rest) = self.piece.split_at_mut(first);
        for sector in std::iter::once(head).chain(rest.chunks_mut(SECTOR as usize)) {
            let read = self.file.read_at(at, sector);
            match read.map_err(|error| io(&self.path, error)) {
                Ok(()) => {}
                Err(error) if error.is_damage() => {
                    sector.fill(0);
                    let end = at + sector.len() as u64;
                    if self.unreadable.as_ref().is_none_or(|(last, _)| *last < end) {
                        self.unreadable = Some((end, error));
                    }
                }
                Err(error) => return Err(error),
            }
            at += sector.len() as u64;
        }
        Ok(())
    }

    /// Fails where a sector behind `offset` could not be read: what it had may have been synced, so
    /// the log does not end before it.
    pub(super) fn check_read(&mut self, offset: u32) -> Result<()> {
        match self.unreadable.take_if(|(end, _)| *end > u64::from(offset)) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
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
