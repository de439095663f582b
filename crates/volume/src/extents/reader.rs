//! Reading records and blocks.

use std::sync::Arc;

use super::record::{HEADER_BYTES, RecordHeader};
use super::shared::Shared;
use crate::command::checksum;
use crate::error::{Error, Result};
use crate::place::Place;

/// Reads segments, also what is not written yet. Any thread may read, beside the thread that
/// appends.
#[derive(Clone)]
pub struct Reader {
    shared: Arc<Shared>,
}

/// Keeps a segment readable while it is held, also after its removal.
pub struct Pin {
    shared: Arc<Shared>,
    segment: u32,
}

impl Reader {
    pub(super) fn new(shared: Arc<Shared>) -> Reader {
        Reader { shared }
    }

    /// Unlinks the files of segments that were given up, but for a few that later segments are
    /// written over. What they were is gone for good when it returns.
    ///
    /// # Errors
    /// Those of reading the folder, renaming and removing.
    pub fn unlink(&self, segments: &[u32]) -> Result<()> {
        self.shared.unlink(segments)
    }

    /// Fills `out` from `place`. The bytes are not verified.
    ///
    /// # Errors
    /// `Gone` where the segment was removed, `Corruption` where the segment ends before, and those
    /// of reading.
    pub fn read(&self, place: Place, out: &mut [u8]) -> Result<()> {
        read(&self.shared, place, out, false)
    }

    /// The record at `place`, verified.
    ///
    /// # Errors
    /// Those of [`Reader::read`], and `Corruption` where there is no record or its payload is
    /// damaged.
    pub fn read_record(&self, place: Place) -> Result<(RecordHeader, Vec<u8>)> {
        let mut head = [0; HEADER_BYTES];
        self.read(place, &mut head)?;
        let header = RecordHeader::decode(&head, self.shared.folder.disk, place);
        let header = header.ok_or_else(|| self.damage(place, "no record begins here"))?;
        let payload = self.read_payload(&header, place)?;
        Ok((header, payload))
    }

    /// The payload of the record with this header at `place`, verified.
    ///
    /// # Errors
    /// Those of [`Reader::read`], and `Corruption` where it is damaged.
    pub fn read_payload(&self, header: &RecordHeader, place: Place) -> Result<Vec<u8>> {
        let mut payload = vec![0; header.bytes as usize];
        let behind = Place {
            offset: place.offset.saturating_add(HEADER_BYTES as u32),
            ..place
        };
        self.read(behind, &mut payload)?;
        if checksum(&payload) == header.checksum {
            Ok(payload)
        } else {
            Err(self.damage(place, "the record's payload is damaged"))
        }
    }

    /// The header of the record at `place`; `None` where the segment ends there.
    ///
    /// # Errors
    /// Those of [`Reader::read`], and `Corruption` where there is no record.
    pub fn read_header(&self, place: Place) -> Result<Option<RecordHeader>> {
        let mut head = [0; HEADER_BYTES];
        if u64::from(place.offset) + HEADER_BYTES as u64 > self.shared.len(place.segment)? {
            return Ok(None);
        }
        self.read(place, &mut head)?;
        let header = RecordHeader::decode(&head, self.shared.folder.disk, place);
        header
            .map(Some)
            .ok_or_else(|| self.damage(place, "no record begins here"))
    }

    /// The file of a segment.
    pub fn path(&self, segment: u32) -> std::path::PathBuf {
        self.shared.folder.segment(segment)
    }

    /// Fills `out` with the block at `place`, whose data have this checksum.
    ///
    /// # Errors
    /// Those of [`Reader::read`], and `Corruption` where the checksum differs.
    pub fn read_block(&self, place: Place, sum: u64, out: &mut [u8]) -> Result<()> {
        self.read(place, out)?;
        if checksum(out) == sum {
            Ok(())
        } else {
            Err(self.damage(place, "the block is damaged"))
        }
    }

    /// Keeps the segment readable, through the value returned, also after its removal.
    ///
    /// # Errors
    /// `Gone` where the segment was removed.
    pub fn pin(&self, segment: u32) -> Result<Pin> {
        self.shared.pin(segment)?;
        Ok(Pin {
            shared: self.shared.clone(),
            segment,
        })
    }

    fn damage(&self, place: Place, what: &str) -> Error {
        let path = self.shared.folder.segment(place.segment);
        Error::corruption(&path, u64::from(place.offset), what)
    }
}

impl Pin {
    /// The segment.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// Fills `out` from `offset` of the segment. The bytes are not verified.
    ///
    /// # Errors
    /// Those of [`Reader::read`], except `Gone`.
    pub fn read(&self, offset: u32, out: &mut [u8]) -> Result<()> {
        let segment = self.segment;
        read(&self.shared, Place { segment, offset }, out, true)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.shared.unpin(self.segment);
    }
}

fn read(shared: &Shared, place: Place, out: &mut [u8], is_pinned: bool) -> Result<()> {
    let parts = shared.parts(place.segment, place.offset, out, is_pinned)?;
    for chunk in &parts.running {
        // The overlap of the chunk and the range, as offsets of both.
        let (skip, into) = if chunk.offset >= place.offset {
            (0, (chunk.offset - place.offset) as usize)
        } else {
            ((place.offset - chunk.offset) as usize, 0)
        };
        chunk
            .bytes
            .copy(skip, out.get_mut(into..).unwrap_or_default());
    }
    let Some(in_file) = out.get_mut(..parts.in_file).filter(|part| !part.is_empty()) else {
        return Ok(());
    };
    let file = match parts.file {
        Some(file) => file,
        None => shared.open(place.segment)?,
    };
    let read = file.read_at(u64::from(place.offset), in_file);
    read.map_err(|e| {
        let path = shared.folder.segment(place.segment);
        match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::corruption(&path, u64::from(place.offset), "the file ends before")
            }
            _ => Error::io(&path, "read", e),
        }
    })
}
