//! Images: the state of a group, for a replica that is behind the leader's log. The leader sends
//! piece after piece, each when the replica asks for it; a piece that got lost is asked for again,
//! so an interrupted image goes on where it was while the leader still holds it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use esker_coding::put_varint;

use super::input::ReadFailure;
use super::rows;
use crate::bytes::Bytes;
use crate::extents::Reader;
use crate::ids::{Ballot, GroupId, LayerId, NodeId, Slot};
use crate::map::{Extent, Image, ImageEntry, ImageMeta, Map};

/// Bytes of a piece.
pub(super) const PIECE_BYTES: usize = 512 << 10;
/// Bytes of data that a replica writes as one record.
pub(super) const RECORD_BYTES: usize = 128 << 10;
/// The most entries of a piece: each counts with more than 16 bytes, also a hole.
pub(super) const MOST_ENTRIES: usize = PIECE_BYTES / 16 + 1;
/// A piece that does not come for so many milliseconds is asked for again.
pub(super) const ASK_AGAIN: u64 = 1_000;
/// An image that the replica does not ask for, for so many milliseconds, is given up.
pub(super) const FORGET: u64 = 60_000;

/// In place of a piece's number: the replica has a state as new as the image.
pub(super) const UNWANTED: u64 = u64::MAX;
/// In place of an image's number: any image is wanted.
pub(super) const ANY: u64 = 0;
/// After so many milliseconds without a piece, an image from the present leader is as good.
pub(super) const STALLED: u64 = 5_000;

/// An image that is sent.
pub(super) struct Outgoing {
    pub(super) number: u64,
    /// The life of the node that it is for: a later one knows nothing of it.
    pub(super) life: Option<u64>,
    pub(super) image: Arc<Image>,
    /// The piece that is being read or was sent last, and where the one behind it begins.
    pub(super) piece: u64,
    pub(super) after: Option<Vec<u8>>,
    /// The last piece that was read, to be sent again when it is asked for again.
    pub(super) last: Option<(u64, bool, Bytes)>,
    pub(super) is_reading: bool,
    pub(super) asked: u64,
    /// When a piece was sent last.
    pub(super) sent: u64,
    pub(super) not_before: u64,
    pub(super) wants: Option<u64>,
}

/// A piece of an image, as it came.
pub(super) struct Piece<'a> {
    pub(super) image: u64,
    pub(super) number: u64,
    /// The entry that the image ends with.
    pub(super) at: (Slot, Ballot),
    pub(super) is_last: bool,
    pub(super) bytes: &'a Bytes,
}

/// An image that is being installed.
pub(super) struct Incoming {
    pub(super) from: NodeId,
    pub(super) number: u64,
    pub(super) at: (Slot, Ballot),
    pub(super) meta: ImageMeta,
    pub(super) next: u64,
    pub(super) asked: u64,
    /// The next piece was asked for and has not come.
    pub(super) is_asked: bool,
    /// What is left of the former state is being removed: no piece can be installed yet.
    pub(super) is_clearing: bool,
    /// When the last piece came.
    pub(super) came: u64,
    /// Pieces whose data are not durable yet: their end, their entries, whether none follows.
    pub(super) waiting: VecDeque<(u64, Vec<ImageEntry>, bool)>,
}

/// The images under way.
#[derive(Default)]
pub(super) struct Images {
    pub(super) next: u64,
    /// When the next piece may be read: all images share one rate.
    pub(super) not_before: u64,
    /// When images were asked for last, for groups whose state is incomplete.
    pub(super) missed: u64,
    pub(super) wanted: Vec<(GroupId, NodeId)>,
    pub(super) outgoing: BTreeMap<(NodeId, GroupId), Outgoing>,
    /// Replicas that have installed an image and not got the log behind it: up to where they have
    /// it, and since when.
    pub(super) joining: BTreeMap<(NodeId, GroupId), (Slot, u64)>,
    pub(super) incoming: BTreeMap<GroupId, Incoming>,
}

impl Images {
    /// Groups of which the next piece may be asked for, and was not.
    pub(super) fn to_ask(&self, most: usize) -> Vec<GroupId> {
        let incoming = self.incoming.iter();
        let incoming = incoming.filter(|(_, incoming)| !incoming.is_clearing);
        let pieces = incoming.map(|(group, incoming)| Pieces {
            group: *group,
            waiting: incoming.waiting.len(),
            is_asked: incoming.is_asked,
            has_last: incoming.waiting.back().is_some_and(|(.., last)| *last),
        });
        to_ask(&pieces.collect::<Vec<_>>(), most)
    }

    /// The leader's protocol says that the node is behind the log.
    pub(super) fn wanted(&mut self, group: GroupId, node: NodeId) {
        if !self.wanted.contains(&(group, node)) {
            self.wanted.push((group, node));
        }
    }

    /// Where the log of a group begins that replicas need which get an image, or have got one:
    /// without it they would need another image. `matched` is up to where a member has the log.
    pub(super) fn needs_log(
        &mut self,
        group: GroupId,
        now: u64,
        last: Slot,
        matched: impl Fn(NodeId) -> Option<Slot>,
    ) -> Option<Slot> {
        self.joining.retain(|(node, of), (have, since)| {
            if *of != group {
                return true;
            }
            let Some(matched) = matched(*node) else {
                return false;
            };
            if matched > *have {
                (*have, *since) = (matched, now);
            }
            // One that has all of it does not need what comes before.
            *have < last && *since + FORGET > now
        });
        let installing = self.outgoing.iter().filter(|((_, of), _)| *of == group);
        let installing = installing.map(|(_, out)| out.image.meta().slot);
        let joining = self.joining.iter().filter(|((_, of), _)| *of == group);
        installing.chain(joining.map(|(_, (have, _))| *have)).min()
    }

    /// Segments that an image reads from.
    pub(super) fn pins(&self, segment: u32) -> bool {
        self.outgoing
            .values()
            .any(|out| out.image.segments().contains(&segment))
    }
}

/// The pieces of an image that a replica has or waits for.
struct Pieces {
    group: GroupId,
    waiting: usize,
    is_asked: bool,
    has_last: bool,
}

/// Groups of which the next piece may be asked for, and was not. Pieces of all groups that are not
/// installed yet have `most` bytes together; each group may have one.
fn to_ask(groups: &[Pieces], most: usize) -> Vec<GroupId> {
    let count = |of: &Pieces| of.waiting + usize::from(of.is_asked);
    let mut all: usize = groups.iter().map(count).sum();
    let mut asked = Vec::new();
    for of in groups.iter().filter(|of| !of.is_asked && !of.has_last) {
        if of.waiting == 0 || (all + 1) * PIECE_BYTES <= most {
            all += 1;
            asked.push(of.group);
        }
    }
    asked
}

/// Reads a piece of an image, on a thread that reads: entries with their data, and where the next
/// piece begins.
pub(super) fn read_piece(
    map: &Map,
    reader: &Reader,
    image: &Image,
    after: Option<&[u8]>,
) -> Result<(Vec<u8>, Option<Vec<u8>>), ReadFailure> {
    let chunk = image
        .chunk(after, PIECE_BYTES)
        .map_err(ReadFailure::Failed)?;
    let mut bytes = Vec::with_capacity(PIECE_BYTES + 4096);
    // Blocks that follow each other: their layer, the first one, how many, whether they have data;
    // and the data.
    let runs = chunk.entries.chunk_by(|one, next| {
        one.layer == next.layer
            && one.block + 1 == next.block
            && one.extent.is_some() == next.extent.is_some()
    });
    for run in runs {
        let Some(first) = run.first() else { continue };
        put_varint(&mut bytes, u64::from(first.layer.0));
        put_varint(&mut bytes, first.block);
        put_varint(&mut bytes, run.len() as u64);
        bytes.push(u8::from(first.extent.is_some()));
        if first.extent.is_some() {
            let size = image.meta().block_size(first.layer).unwrap_or(0);
            let start = bytes.len();
            bytes.resize(start + size as usize * run.len(), 0);
            let data = bytes.get_mut(start..).unwrap_or_default();
            read_run(map, reader, image, run, size, data)?;
        }
    }
    Ok((bytes, chunk.after))
}

/// Reads the data of blocks that all have some.
fn read_run(
    map: &Map,
    reader: &Reader,
    image: &Image,
    run: &[ImageEntry],
    size: u32,
    mut data: &mut [u8],
) -> Result<(), ReadFailure> {
    for row in run.chunk_by(|one, next| rows::is_next(one.extent, next.extent, size)) {
        let Some((out, rest)) = data.split_at_mut_checked(row.len() * size as usize) else {
            break;
        };
        data = rest;
        let extents: Vec<_> = row.iter().map(|entry| entry.extent).collect();
        if rows::read_row(reader, &extents, out) {
            continue;
        }
        for (entry, out) in row.iter().zip(out.chunks_exact_mut(size.max(1) as usize)) {
            let Some(extent) = entry.extent else { continue };
            let of = (entry.layer, entry.block, extent);
            read_block(map, reader, image, &of, out)?;
        }
    }
    Ok(())
}

/// Reads a block of an image.
fn read_block(
    map: &Map,
    reader: &Reader,
    image: &Image,
    of: &(LayerId, u64, Extent),
    data: &mut [u8],
) -> Result<(), ReadFailure> {
    let (layer, block, extent) = *of;
    match reader.read_block(extent.place, extent.checksum, data) {
        Ok(()) => Ok(()),
        Err(error) if error.is_damage() && is_elsewhere(map, reader, image, of, data)? => Ok(()),
        Err(error) if error.is_damage() => Err(ReadFailure::Rot {
            layer,
            block,
            checksum: extent.checksum,
            place: extent.place,
        }),
        Err(error) => Err(ReadFailure::Failed(error)),
    }
}

/// Reads a block of an image from where it was written anew since, because its bytes were damaged.
fn is_elsewhere(
    map: &Map,
    reader: &Reader,
    image: &Image,
    (layer, block, extent): &(LayerId, u64, Extent),
    data: &mut [u8],
) -> Result<bool, ReadFailure> {
    let now = map.with_checksum(image.group(), *layer, *block, extent.checksum);
    let now = now.map_err(ReadFailure::Failed)?;
    let Some((now, _)) = now.filter(|(now, _)| now.place != extent.place) else {
        return Ok(false);
    };
    Ok(reader.read_block(now.place, now.checksum, data).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(group: u16, waiting: usize, is_asked: bool, has_last: bool) -> Pieces {
        let group = GroupId(group);
        Pieces {
            group,
            waiting,
            is_asked,
            has_last,
        }
    }

    #[test]
    fn pieces_of_all_groups_share_the_memory_for_them() {
        let most = 4 * PIECE_BYTES;
        let new: Vec<Pieces> = (0..6).map(|group| pieces(group, 0, false, false)).collect();
        assert_eq!(to_ask(&new, most).len(), 6, "one of each group");
        let some = [pieces(1, 1, false, false), pieces(2, 1, true, false)];
        assert_eq!(to_ask(&some, most), [GroupId(1)]);
        let full = [pieces(1, 2, false, false), pieces(2, 1, true, false)];
        assert!(to_ask(&full, most).is_empty());
        let ended = [pieces(1, 1, false, true), pieces(2, 0, false, false)];
        assert_eq!(to_ask(&ended, most), [GroupId(2)]);
    }

    /// What was written while a replica got an image was cut before it had got that: it needed
    /// another image, and so on for as long as there were writes.
    #[test]
    fn the_log_behind_an_image_waits_for_the_replica() {
        let (group, other, node) = (GroupId(1), GroupId(2), NodeId(3));
        let memory = Arc::new(esker_sim::memory::Memory::new());
        let map = Map::open(memory, std::path::Path::new("/map"), 1 << 20).unwrap();
        for slot in 1..=10 {
            let nothing = crate::command::Command::Nothing;
            let applied = map.apply(group, Slot(slot), Ballot(1), &nothing, None);
            applied.unwrap();
        }
        let mut images = Images::default();
        let last = Slot(100);
        let needs = |images: &mut Images, now, matched: Option<u64>| {
            images.needs_log(group, now, last, |_| matched.map(Slot))
        };
        assert_eq!(needs(&mut images, 0, None), None);
        let image = Arc::new(map.image(group).unwrap());
        let outgoing = Outgoing {
            number: 1,
            life: None,
            image,
            piece: 0,
            after: None,
            last: None,
            is_reading: false,
            asked: 0,
            sent: 0,
            not_before: 0,
            wants: None,
        };
        images.outgoing.insert((node, group), outgoing);
        assert_eq!(needs(&mut images, 0, None), Some(Slot(10)));
        assert_eq!(images.needs_log(other, 0, last, |_| None), None);
        // It is installed. What the replica says of its log may be older.
        images.outgoing.clear();
        images.joining.insert((node, group), (Slot(10), 0));
        images.joining.insert((node, other), (Slot(4), 0));
        assert_eq!(needs(&mut images, 1, Some(3)), Some(Slot(10)));
        assert_eq!(needs(&mut images, FORGET, Some(50)), Some(Slot(50)));
        assert_eq!(needs(&mut images, 2 * FORGET - 1, Some(50)), Some(Slot(50)));
        // One that does not go on is not waited for, nor one that has all.
        assert_eq!(needs(&mut images, 2 * FORGET, Some(50)), None);
        for matched in [None, Some(100)] {
            images.joining.insert((node, group), (Slot(10), FORGET));
            assert_eq!(needs(&mut images, FORGET, matched), None);
        }
        let has = |_| Some(Slot(4));
        assert_eq!(images.needs_log(other, 1, last, has), Some(Slot(4)));
    }
}
