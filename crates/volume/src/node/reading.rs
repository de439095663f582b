//! Reads from this node's disk, on threads beside the core: the map says where blocks are, and each
//! is checked.

use super::input::{ReadFailure, ReadKind, ReadResult, ReadWork};
use super::rows;
use crate::error::Error;
use crate::extents::Reader;
use crate::ids::{GroupId, LayerId};
use crate::map::{self, Extent, Map};
use crate::wire::Source;

/// How often a lookup is repeated when vacuum has moved a block in between.
const TRIES: usize = 8;

/// Entries of layers that one task merges.
const MERGED: usize = 4096;

/// Entries of a former state that one task removes.
const CLEARED: usize = 64 << 10;

/// Carries out a read.
pub fn run(map: &Map, reader: &Reader, work: &ReadWork) -> Result<ReadResult, ReadFailure> {
    match work.kind {
        ReadKind::Bytes {
            source,
            offset,
            length,
        } => bytes(map, reader, work.group, source, offset, length).map(ReadResult::Bytes),
        ReadKind::Allocation {
            source,
            offset,
            length,
        } => {
            let runs = allocation(map, work.group, source, offset, length)?;
            Ok(ReadResult::Runs(runs))
        }
        ReadKind::Piece {
            ref image,
            ref after,
        } => {
            let (bytes, next) = super::images::read_piece(map, reader, image, after.as_deref())?;
            Ok(ReadResult::Piece(bytes, next))
        }
        ReadKind::Live { segment, from } => {
            let (live, next) = super::space::read_live(map, reader, segment, from)?;
            Ok(ReadResult::Live(live, next))
        }
        ReadKind::Scrub { after } => super::space::read_scrub(map, reader, after),
        ReadKind::Unlink { ref segments } => reader
            .unlink(segments)
            .map(|()| ReadResult::Done)
            .map_err(ReadFailure::Failed),
        ReadKind::Flush => map
            .flush()
            .map(|()| ReadResult::Done)
            .map_err(ReadFailure::Failed),
        ReadKind::Merge => {
            let merged = map.merge_layers(MERGED);
            merged
                .map(|_| ReadResult::Done)
                .map_err(ReadFailure::Failed)
        }
        ReadKind::Clear { .. } => {
            let cleared = map.clear_former(work.group, CLEARED);
            cleared
                .map(|is_all| ReadResult::Cleared { is_all })
                .map_err(ReadFailure::Failed)
        }
        ReadKind::Block {
            layer,
            block,
            checksum,
        } => {
            let found = map.with_checksum(work.group, layer, block, checksum);
            let Some((extent, block_size)) = found.map_err(ReadFailure::Failed)? else {
                return Err(ReadFailure::NoVolume);
            };
            let mut data = vec![0; block_size as usize];
            read_block(map, reader, work.group, block, &extent, &mut data)?
                .ok_or(ReadFailure::NoVolume)?;
            Ok(ReadResult::Bytes(data))
        }
    }
}

fn bytes(
    map: &Map,
    reader: &Reader,
    group: GroupId,
    source: Source,
    offset: u64,
    length: u32,
) -> Result<Vec<u8>, ReadFailure> {
    let block_size = map
        .source_block_size(group, source)
        .map_err(ReadFailure::Failed)?
        .ok_or(ReadFailure::NoVolume)?;
    let block = u64::from(block_size);
    let end = offset + u64::from(length);
    let blocks = offset / block..end.div_ceil(block);
    'again: for _ in 0..TRIES {
        let found = look(map, group, source, &blocks)?;
        let mut all = vec![0; ((blocks.end - blocks.start) * block) as usize];
        let mut numbers = blocks.clone();
        let mut rest = all.as_mut_slice();
        for row in found.chunk_by(|one, next| rows::is_next(*one, *next, block_size)) {
            let Some((out, behind)) = rest.split_at_mut_checked(row.len() * block_size as usize)
            else {
                break;
            };
            rest = behind;
            let is_read = rows::read_row(reader, row, out);
            let slots = out.chunks_exact_mut(block_size as usize);
            for (number, (found, out)) in
                numbers.by_ref().take(row.len()).zip(row.iter().zip(slots))
            {
                let Some(extent) = found.filter(|_| !is_read) else {
                    continue;
                };
                if read_block(map, reader, group, number, &extent, out)?.is_none() {
                    continue 'again;
                }
            }
        }
        let start = (offset % block) as usize;
        if start == 0 && length as usize == all.len() {
            return Ok(all);
        }
        let part = all.get(start..start + length as usize);
        return Ok(part.unwrap_or_default().to_vec());
    }
    Err(ReadFailure::Failed(Error::Corruption {
        path: reader.path(0),
        offset,
        what: "the map names a segment that does not exist".to_string(),
    }))
}

/// Where blocks of a source are.
fn look(
    map: &Map,
    group: GroupId,
    source: Source,
    blocks: &std::ops::Range<u64>,
) -> Result<Vec<Option<Extent>>, ReadFailure> {
    let count = (blocks.end - blocks.start) as u32;
    map.look(group, source, blocks.start, count)
        .map_err(|error| match error {
            Error::UnknownVolume { .. } | Error::UnknownLayer { .. } => ReadFailure::NoVolume,
            error => ReadFailure::Failed(error),
        })
}

/// Reads a block; `None` where its segment was removed since the lookup.
fn read_block(
    map: &Map,
    reader: &Reader,
    group: GroupId,
    block: u64,
    extent: &Extent,
    out: &mut [u8],
) -> Result<Option<()>, ReadFailure> {
    match reader.read_block(extent.place, extent.checksum, out) {
        Ok(()) => Ok(Some(())),
        Err(Error::Gone { .. }) => Ok(None),
        Err(error) if error.is_damage() => {
            let any = map::Source::Layer(LayerId(u32::MAX));
            let layer = map
                .refers(group, any, block, extent.place)
                .map_err(ReadFailure::Failed)?;
            // Nothing refers to it any more: the caller looks again.
            let Some(layer) = layer else { return Ok(None) };
            let (checksum, place) = (extent.checksum, extent.place);
            Err(ReadFailure::Rot {
                layer,
                block,
                checksum,
                place,
            })
        }
        Err(error) => Err(ReadFailure::Failed(error)),
    }
}

fn allocation(
    map: &Map,
    group: GroupId,
    source: Source,
    offset: u64,
    length: u32,
) -> Result<Vec<(u64, bool)>, ReadFailure> {
    let block_size = map
        .source_block_size(group, source)
        .map_err(ReadFailure::Failed)?
        .ok_or(ReadFailure::NoVolume)?;
    let block = u64::from(block_size);
    let end = offset + u64::from(length);
    let blocks = offset / block..end.div_ceil(block);
    let found = look(map, group, source, &blocks)?;
    let mut runs: Vec<(u64, bool)> = Vec::new();
    for (number, found) in blocks.zip(found) {
        let bytes = (number * block + block).min(end) - (number * block).max(offset);
        match runs.last_mut() {
            Some(last) if last.1 == found.is_some() => last.0 += bytes,
            _ => runs.push((bytes, found.is_some())),
        }
    }
    Ok(runs)
}
