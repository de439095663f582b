//! What segments begin with, read without opening them: where reading back has to begin.

use std::path::Path;
use std::sync::Arc;

use esker_fs::Fs;

use super::folder::{Folder, SEGMENT_HEADER};
use super::record::{HEADER_BYTES, Kind, RecordHeader};
use crate::error::{Error, Result};
use crate::place::Place;

/// The first record of a segment begins here.
pub const FIRST_RECORD: u32 = SEGMENT_HEADER;

/// The segments of a formatted folder, rising; none where it is not formatted.
///
/// # Errors
/// Those of reading the folder.
pub fn numbers(fs: Arc<dyn Fs>, dir: &Path) -> Result<Vec<u32>> {
    match Folder::find(fs, dir)? {
        Some(folder) => folder.numbers(),
        None => Ok(Vec::new()),
    }
}

/// The headers of the `Base` records that a segment begins with. Empty where the segment is damaged
/// there.
///
/// # Errors
/// Those of reading.
pub fn heads(fs: Arc<dyn Fs>, dir: &Path, segment: u32) -> Result<Vec<RecordHeader>> {
    let Some(folder) = Folder::find(fs, dir)? else {
        return Ok(Vec::new());
    };
    if folder.header(segment)?.is_none() {
        return Ok(Vec::new());
    }
    let path = folder.segment(segment);
    let file = folder.open(&path)?;
    let len = folder.len(&*file, &path)?;
    let (mut place, mut heads) = (
        Place {
            segment,
            offset: FIRST_RECORD,
        },
        Vec::new(),
    );
    while u64::from(place.offset) + HEADER_BYTES as u64 <= len {
        let mut bytes = [0; HEADER_BYTES];
        let read = file.read_at(u64::from(place.offset), &mut bytes);
        read.map_err(|error| Error::io(&path, "read", error))?;
        match RecordHeader::decode(&bytes, folder.disk, place) {
            Some(header) if header.kind == Kind::Base => {
                place.offset = place.offset.saturating_add(header.occupied() as u32);
                heads.push(header);
            }
            Some(_) => break,
            None => return Ok(Vec::new()),
        }
    }
    Ok(heads)
}
