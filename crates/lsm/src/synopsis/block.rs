//! The synopsis block of a table's partition: for each data block its sequence bounds, and for each
//! attribute slot a zone map and a value filter.
//!
//! ```text
//! bounds      n x (min_seq u64, max_seq u64)
//! slots       per slot, per data block: zone map, filter (bytes behind their length; empty = none)
//! ends        per slot: u32, where its part ends
//! n u32, slots u32
//! ```
//!
//! Slot by slot, because a lookup probes one attribute of all blocks: it reads one contiguous
//! range.

use xxhash_rust::xxh3::xxh3_64;

use super::fingerprints::MapBuilder;
use super::zone::{
    ANYTHING, Zone, ZoneRef, cover, cover_box, put_zone, read_zone, shorten_greatest, shorten_least,
};
use crate::attributes::Summary;
use crate::coding::{Own, Reader, put_bytes, put_varint};
use crate::entry::{MAX_SEQ, Seq};

/// Bits of a value filter per distinct value unless set otherwise, and bits set by a value: 0.1 %
/// false positives.
pub(crate) const BITS_PER_VALUE: usize = 16;
const PROBES: usize = 6;

/// Builds the synopsis block of one partition after another, and the zone maps and fingerprint maps
/// of the table.
pub(crate) struct SynopsisBuilder {
    slots: Vec<Slot>,
    /// The open partition, and the bits of a block's number within its partition.
    partition: usize,
    shift: u32,
    bounds: Vec<(Seq, Seq)>,
    open: (Seq, Seq),
    bits_per_value: usize,
}

/// The state of one attribute.
#[derive(Default)]
struct Slot {
    // State of the open data block.
    holds: bool,
    min: Vec<u8>,
    max: Vec<u8>,
    hashes: Vec<u64>,
    /// Instead of filters: the locations of the table's values.
    map: Option<MapBuilder>,
    /// Without synopses of blocks and partitions.
    coarse: bool,
    /// Boxes instead of the least and the greatest value: of the numbers from here on.
    boxes: Option<usize>,
    // State of the finished blocks of the partition.
    records: Vec<u8>,
    zone: Option<Zone>,
    // State of the finished blocks of the table.
    table_zone: Option<Zone>,
}

const NO_BOUNDS: (Seq, Seq) = (MAX_SEQ, 0);

impl SynopsisBuilder {
    /// For tables with these summaries per attribute slot, partitions of at most this many blocks,
    /// and value filters with this many bits per distinct value.
    pub(crate) fn new(
        summaries: &[Summary],
        partition_blocks: usize,
        bits_per_value: usize,
    ) -> SynopsisBuilder {
        let slot = |summary: &Summary| Slot {
            map: (*summary == Summary::Fingerprints).then(MapBuilder::default),
            coarse: *summary == Summary::Zones,
            boxes: match summary {
                Summary::Boxes(from) => Some(*from),
                _ => None,
            },
            ..Slot::default()
        };
        SynopsisBuilder {
            slots: summaries.iter().map(slot).collect(),
            partition: 0,
            shift: usize::BITS - partition_blocks.saturating_sub(1).leading_zeros(),
            bounds: Vec::new(),
            open: NO_BOUNDS,
            bits_per_value,
        }
    }

    /// Adds the sequence number of an entry to the open block.
    #[inline]
    pub(crate) fn add_seq(&mut self, seq: Seq) {
        self.open = (self.open.0.min(seq), self.open.1.max(seq));
    }

    /// Adds an attribute value of an entry to the open block.
    pub(crate) fn add_value(&mut self, slot: usize, value: &[u8]) {
        let slot = self.slots.own_mut(slot);
        if let Some(from) = slot.boxes {
            slot.add_to_box(value.get(from..).unwrap_or(&[]));
            return;
        }
        if !slot.coarse {
            let hash = xxh3_64(value);
            match &mut slot.map {
                Some(map) => map.add(hash, self.partition << self.shift | self.bounds.len()),
                None if slot.hashes.last() != Some(&hash) => slot.hashes.push(hash),
                None => {}
            }
        }
        let first = !slot.holds;
        slot.holds = true;
        if first || value < slot.min.as_slice() {
            slot.min.clear();
            slot.min.extend_from_slice(value);
        }
        if first || value > slot.max.as_slice() {
            slot.max.clear();
            slot.max.extend_from_slice(value);
        }
    }

    /// Bits of a block's number within its partition; the bits above are the partition's number.
    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    /// Takes the map of a slot, if it has one.
    pub(crate) fn take_map(&mut self, slot: usize) -> Option<MapBuilder> {
        self.slots.get_mut(slot)?.map.take()
    }

    /// Takes the table's zone map of a slot; `None` when the table holds no value of it.
    pub(crate) fn take_zone(&mut self, slot: usize) -> Option<Zone> {
        self.slots.get_mut(slot)?.table_zone.take()
    }

    /// Approximate bytes of the fingerprint maps so far.
    pub(crate) fn map_size(&self) -> usize {
        let maps = self.slots.iter().filter_map(|slot| slot.map.as_ref());
        maps.map(MapBuilder::size).sum()
    }

    /// Ends the open data block.
    pub(crate) fn end_block(&mut self) {
        self.bounds
            .push(std::mem::replace(&mut self.open, NO_BOUNDS));
        for slot in &mut self.slots {
            slot.end_block(self.bits_per_value);
        }
    }

    /// Bytes of the synopsis block so far.
    pub(crate) fn size(&self) -> usize {
        self.bounds.len() * 16
            + self
                .slots
                .iter()
                .map(|s| s.records.len() + 4)
                .sum::<usize>()
            + 8
    }

    /// Appends the synopsis block, calls `zone` with each slot's zone map of the partition, returns
    /// the partition's sequence bounds, and begins the next partition.
    pub(crate) fn finish(
        &mut self,
        out: &mut Vec<u8>,
        mut zone: impl FnMut(usize, Option<Zone>),
    ) -> (Seq, Seq) {
        let mut all = NO_BOUNDS;
        for &(min, max) in &self.bounds {
            all = (all.0.min(min), all.1.max(max));
            out.extend_from_slice(&min.to_le_bytes());
            out.extend_from_slice(&max.to_le_bytes());
        }
        let mut end = 0;
        for slot in &self.slots {
            out.extend_from_slice(&slot.records);
        }
        for (i, slot) in self.slots.iter_mut().enumerate() {
            end += slot.records.len() as u32;
            out.extend_from_slice(&end.to_le_bytes());
            slot.records.clear();
            zone(i, slot.zone.take());
        }
        out.extend_from_slice(&(self.bounds.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.slots.len() as u32).to_le_bytes());
        self.bounds.clear();
        self.partition += 1;
        all
    }
}

impl Slot {
    /// Widens the box of the open block.
    fn add_to_box(&mut self, corner: &[u8]) {
        let (min, max) = (std::mem::take(&mut self.min), std::mem::take(&mut self.max));
        let mut all = self.holds.then_some((min, Some(max)));
        cover_box(&mut all, Some((corner, Some(corner))));
        self.holds = true;
        // Without a greatest value it holds anything: values of several lengths, which do not
        // occur.
        let (min, max) = all.unwrap_or_default();
        (self.min, self.max) = (min, max.unwrap_or_default());
    }

    fn end_block(&mut self, bits_per_value: usize) {
        if !self.holds {
            put_zone(&mut self.records, None);
            put_bytes(&mut self.records, &[]);
            return;
        }
        self.holds = false;
        if self.boxes.is_some() {
            let zone = if self.min.is_empty() {
                Some(ANYTHING)
            } else {
                Some((self.min.as_slice(), Some(self.max.as_slice())))
            };
            cover_box(&mut self.table_zone, zone);
            cover_box(&mut self.zone, zone);
            put_zone(&mut self.records, zone);
            put_bytes(&mut self.records, &[]);
            return;
        }
        shorten_least(&mut self.min);
        let bounded = shorten_greatest(&mut self.max);
        let max = bounded.then_some(self.max.as_slice());
        let zone = Some((self.min.as_slice(), max));
        cover(&mut self.table_zone, zone);
        let zone = if self.coarse { Some(ANYTHING) } else { zone };
        put_zone(&mut self.records, zone);
        cover(&mut self.zone, zone);
        // A single value that the zone map holds unshortened needs no filter.
        if self.coarse || self.map.is_some() || max == Some(&self.min) {
            put_bytes(&mut self.records, &[]);
        } else {
            self.hashes.sort_unstable();
            self.hashes.dedup();
            put_filter(&mut self.records, &self.hashes, bits_per_value);
        }
        self.hashes.clear();
    }
}

/// Appends a Bloom filter over values with these hashes, behind its length; with 0 bits none, which
/// admits all values.
fn put_filter(out: &mut Vec<u8>, hashes: &[u64], bits_per_value: usize) {
    let len = (hashes.len() * bits_per_value).div_ceil(8);
    put_varint(out, len as u64);
    if len == 0 {
        return;
    }
    let start = out.len();
    out.resize(start + len, 0);
    let filter = out.own_mut(start..);
    for &hash in hashes {
        for bit in probes(hash, len) {
            *filter.own_mut(bit >> 3) |= 1 << (bit & 7);
        }
    }
}

/// The bit positions of a value in a filter of `len` bytes.
#[inline]
fn probes(hash: u64, len: usize) -> impl Iterator<Item = usize> {
    let bits = len as u64 * 8;
    let mut state = hash;
    (0..PROBES).map(move |_| {
        // The upper half of an odd multiple serves as a new hash; scaled, not reduced modulo.
        let bit = ((state >> 32).wrapping_mul(bits) >> 32) as usize;
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        bit
    })
}

/// A view of a synopsis block.
#[derive(Clone, Copy)]
pub(crate) struct Synopsis<'a> {
    bounds: &'a [[u8; 16]],
    records: &'a [u8],
    ends: &'a [[u8; 4]],
}

impl<'a> Synopsis<'a> {
    /// Parses `bytes`; `None` when they are malformed.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Synopsis<'a>> {
        let (rest, tail) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
        let mut tail = Reader::new(tail);
        let (n, slots) = (tail.u32()? as usize, tail.u32()? as usize);
        let (bounds, rest) = rest.split_at_checked(n.checked_mul(16)?)?;
        let ends = slots.checked_mul(4)?;
        let (records, ends) = rest.split_at_checked(rest.len().checked_sub(ends)?)?;
        Some(Synopsis {
            bounds: bounds.as_chunks().0,
            records,
            ends: ends.as_chunks().0,
        })
    }

    /// Number of data blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.bounds.len()
    }

    /// Number of attribute slots.
    pub(crate) fn slots(&self) -> usize {
        self.ends.len()
    }

    /// Least and greatest sequence number of each data block.
    #[inline]
    pub(crate) fn bounds(&self) -> impl Iterator<Item = (Seq, Seq)> + 'a {
        self.bounds.iter().map(|pair| {
            let pair = u128::from_le_bytes(*pair);
            (pair as u64, (pair >> 64) as u64)
        })
    }

    /// The records of one attribute, block by block.
    pub(crate) fn slot(&self, slot: usize) -> Option<SlotRecords<'a>> {
        let end = |i: usize| {
            self.ends
                .get(i)
                .map(|end| u32::from_le_bytes(*end) as usize)
        };
        let start = if slot == 0 { 0 } else { end(slot - 1)? };
        Some(SlotRecords {
            reader: Reader::new(self.records.get(start..end(slot)?)?),
        })
    }
}

/// The records of one attribute in a synopsis block, in the order of the data blocks.
pub(crate) struct SlotRecords<'a> {
    reader: Reader<'a>,
}

impl<'a> SlotRecords<'a> {
    /// The next data block's record; `None` when it is malformed or at the end.
    #[inline]
    pub(crate) fn next_block(&mut self) -> Option<BlockSynopsis<'a>> {
        let zone = read_zone(&mut self.reader)?;
        Some(BlockSynopsis {
            zone,
            filter: self.reader.bytes()?,
        })
    }
}

/// The synopsis of one attribute in one data block.
#[derive(Clone, Copy)]
pub(crate) struct BlockSynopsis<'a> {
    /// The zone map, or `None`: the block holds no value of the attribute.
    pub(crate) zone: Option<ZoneRef<'a>>,
    filter: &'a [u8],
}

impl BlockSynopsis<'_> {
    /// The hash for [`BlockSynopsis::may_hold`].
    pub(crate) fn hash(value: &[u8]) -> u64 {
        xxh3_64(value)
    }

    /// False when the value filter rules the value out.
    #[inline]
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        self.filter.is_empty()
            || probes(hash, self.filter.len()).all(|bit| {
                self.filter
                    .get(bit >> 3)
                    .is_none_or(|byte| byte & (1 << (bit & 7)) != 0)
            })
    }
}
