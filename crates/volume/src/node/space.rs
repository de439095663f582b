//! Space: the log is cut, segments that nothing refers to are removed, vacuum copies what is live
//! out of segments that are mostly garbage, scrub checks every block.

use std::collections::BTreeMap;

use super::input::{LiveBlock, ReadFailure};
use crate::command::Command;
use crate::error::Error;
use crate::extents::{HEADER_BYTES, Kind, Reader, RecordHeader};
use crate::ids::{GroupId, LayerId};
use crate::map::{Map, Source};
use crate::place::Place;

/// Bytes of a segment that vacuum reads at a time, and of blocks that scrub checks.
pub(super) const PIECE_BYTES: u32 = 1 << 20;
/// What a block counts for that is not checked.
const PASSED_BYTES: u32 = 64;
/// Milliseconds between two looks at what can be removed.
pub(super) const LOOK: u64 = 100;
/// A segment that vacuum has passed is not chosen again for so many milliseconds: what is still
/// live in it cannot be moved now.
pub(super) const PASS_AGAIN: u64 = 300_000;
/// A scrub that could not read goes on after so many milliseconds.
pub(super) const SCRUB_AGAIN: u64 = 1_000;
/// Milliseconds without anything to write, after which the end is said to be durable.
pub(super) const IDLE: u64 = 200;

/// What vacuum and scrub are at.
#[derive(Default)]
pub(super) struct Vacuum {
    /// Bytes that were moved since the start.
    pub(super) moved: u64,
    /// Segments that were removed since the start.
    pub(super) freed: u64,
    /// Blocks that the last or present scrub has checked.
    pub(super) scrubbed: u64,
    pub(super) copying: Option<Copying>,
    /// The segments that were passed, and when.
    pub(super) passed: BTreeMap<u32, u64>,
    pub(super) scrub: Option<Scrub>,
    pub(super) is_flushing: bool,
    pub(super) is_merging: bool,
    pub(super) flushed_at: u64,
    pub(super) looked: u64,
    /// The end of the log when it was seen last, and since when it has not moved.
    pub(super) seen_end: u64,
    pub(super) seen_at: u64,
    /// The end that a record says to be durable, with that record.
    pub(super) stated_end: u64,
    pub(super) not_before: u64,
}

impl Vacuum {
    /// A scrub is running.
    pub(super) fn is_scrubbing(&self) -> bool {
        self.scrub.is_some()
    }
}

/// A segment whose live blocks are being copied.
pub(super) struct Copying {
    pub(super) segment: u32,
    pub(super) next: u32,
    pub(super) is_reading: bool,
}

/// A scrub, and behind which entry of the map it goes on.
pub(super) struct Scrub {
    pub(super) after: Option<(GroupId, LayerId, u64)>,
    pub(super) is_reading: bool,
    pub(super) not_before: u64,
}

/// Reads the live blocks of a part of a segment, with their data, and where the next part begins:
/// on a thread that reads.
pub(super) fn read_live(
    map: &Map,
    reader: &Reader,
    segment: u32,
    from: u32,
) -> Result<(Vec<LiveBlock>, Option<u32>), ReadFailure> {
    let (mut at, mut live) = (from, Vec::new());
    while at - from < PIECE_BYTES {
        let place = Place {
            segment,
            offset: at,
        };
        let header = match reader.read_header(place) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok((live, None)),
            // Damage: what is behind is found by the map, when the segment is looked at as a whole.
            Err(error) if error.is_damage() => return by_map(map, reader, segment, live),
            Err(error) => return Err(ReadFailure::Failed(error)),
        };
        match live_of(map, reader, &header, place, &mut live) {
            Err(ReadFailure::Failed(error)) if error.is_damage() => {
                return by_map(map, reader, segment, live);
            }
            done => done?,
        }
        at += header.occupied() as u32;
    }
    Ok((live, Some(at)))
}

pub(super) fn live_of(
    map: &Map,
    reader: &Reader,
    header: &RecordHeader,
    place: Place,
    live: &mut Vec<LiveBlock>,
) -> Result<(), ReadFailure> {
    if !matches!(header.kind, Kind::Entry | Kind::Moved) || header.bytes < 16 {
        return Ok(());
    }
    // A damaged head may say other blocks than the record has.
    let payload = reader.read_payload(header, place);
    let payload = payload.map_err(ReadFailure::Failed)?;
    let (source, first, checksums, data, count) = match header.kind {
        Kind::Moved => {
            let Some((number, data)) = payload.split_first_chunk() else {
                return Ok(());
            };
            let layer = LayerId(header.slot as u32);
            let (first, count) = (
                u64::from_le_bytes(*number),
                (header.slot >> 32) as usize + 1,
            );
            (Source::Layer(layer), first, None, data, count)
        }
        _ => match Command::decode(&payload) {
            Some((
                Command::Write {
                    blocks, checksums, ..
                },
                data,
            )) => {
                let count = checksums.len();
                let source = Source::Volume(blocks.volume);
                (source, blocks.first, Some(checksums), data, count)
            }
            _ => return Ok(()),
        },
    };
    let size = data.len() / count.max(1);
    if size == 0 {
        return Ok(());
    }
    let begins = place.offset + (HEADER_BYTES + payload.len() - data.len()) as u32;
    for (number, data) in data.chunks_exact(size).enumerate() {
        let from = Place {
            segment: place.segment,
            offset: begins + (number * size) as u32,
        };
        let block = first + number as u64;
        let layer = map
            .refers(header.group, source, block, from)
            .map_err(ReadFailure::Failed)?;
        let Some(layer) = layer else { continue };
        live.push(LiveBlock {
            group: header.group,
            layer,
            block,
            place: from,
            checksum: checksums
                .as_ref()
                .and_then(|sums| sums.get(number).copied()),
            data: data.to_vec(),
        });
    }
    Ok(())
}

/// The live blocks of a segment whose records cannot all be read, by a scan of the map.
pub(super) fn by_map(
    map: &Map,
    reader: &Reader,
    segment: u32,
    mut live: Vec<LiveBlock>,
) -> Result<(Vec<LiveBlock>, Option<u32>), ReadFailure> {
    let mut blocks = map.live_blocks(Some(segment));
    while let Some(found) = blocks.next_block().map_err(ReadFailure::Failed)? {
        let Some(size) = size_of(map, found.group, found.layer)? else {
            continue;
        };
        let mut data = vec![0; size as usize];
        // Damaged bytes are healed when their checksum is seen to differ.
        drop(reader.read(found.extent.place, &mut data));
        live.push(LiveBlock {
            group: found.group,
            layer: found.layer,
            block: found.block,
            place: found.extent.place,
            checksum: Some(found.extent.checksum),
            data,
        });
    }
    Ok((live, None))
}

/// Bytes of a block; `None` where an image replaces the group's state, or the layer is gone.
fn size_of(map: &Map, group: GroupId, layer: LayerId) -> Result<Option<u32>, ReadFailure> {
    match map.layer_block_size(group, layer) {
        Err(Error::Incomplete { .. }) => Ok(None),
        size => size.map_err(ReadFailure::Failed),
    }
}

/// Checks blocks of the map: returns those that are damaged, how many were checked, and the last
/// one unless that was all.
pub(super) fn read_scrub(
    map: &Map,
    reader: &Reader,
    after: Option<(GroupId, LayerId, u64)>,
) -> Result<super::input::ReadResult, ReadFailure> {
    let mut blocks = map.live_blocks_after(after);
    let (mut damaged, mut checked, mut bytes) = (Vec::new(), 0, 0);
    while let Some(found) = blocks.next_block().map_err(ReadFailure::Failed)? {
        let size = size_of(map, found.group, found.layer)?;
        let mut data = vec![0; size.unwrap_or(0) as usize];
        let read = match size {
            Some(_) => reader.read_block(found.extent.place, found.extent.checksum, &mut data),
            None => Ok(()),
        };
        match read {
            Ok(()) | Err(Error::Gone { .. }) => {}
            Err(error) if error.is_damage() => damaged.push((
                found.group,
                found.layer,
                found.block,
                found.extent.checksum,
                found.extent.place,
            )),
            Err(error) => return Err(ReadFailure::Failed(error)),
        }
        checked += u64::from(size.is_some());
        bytes += u64::from(size.unwrap_or(PASSED_BYTES));
        if bytes >= u64::from(PIECE_BYTES) {
            let last = Some((found.group, found.layer, found.block));
            return Ok(super::input::ReadResult::Scrubbed {
                damaged,
                checked,
                last,
            });
        }
    }
    Ok(super::input::ReadResult::Scrubbed {
        damaged,
        checked,
        last: None,
    })
}
