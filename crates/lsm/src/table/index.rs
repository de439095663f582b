//! The two-level index: an index block per partition, located by the pinned top-level index.
//!
//! An index block is searched in place, so its records have a fixed size:
//!
//! ```text
//! prefix     what the user keys of all separators begin with
//! rests      the rest of each key, one behind the other
//! heads      per data block: the first 8 bytes of the rest, as a number (u64; 0 behind a short
//!            one)
//! records    per data block: where its rest ends u32, entries u32, sequence number u64, handle
//! prefix length u32, n u32
//! ```
//!
//! A search compares the heads, which share few cache lines, and a key only where heads are equal.
//!
//! A separator is at or after the last entry of its block (or partition), and before the first of
//! the next. The top-level index is stored in varints, and kept as columns in memory.

use std::cmp::Ordering;

use super::block::common_prefix;
use super::format::Handle;
use super::search::first_not_before;
use crate::coding::{Own, Reader, head, put_bytes, put_varint};
use crate::entry::{Seq, compare};
use crate::synopsis::{Zone, ZoneRef, put_zone, read_zone, zone_ref};

const RECORD_LEN: usize = 32;

/// A separator of an entry `(key, seq)` and a later one of key `next`: as short as possible, and no
/// longer than `key`.
pub(super) fn separator(key: &[u8], seq: Seq, next: &[u8], out: &mut Vec<u8>) -> Seq {
    out.clear();
    if key == next {
        out.extend_from_slice(key);
        return seq;
    }
    let common = common_prefix(key, next);
    if let (Some(&a), Some(&b)) = (key.get(common), next.get(common))
        && common + 1 < key.len()
    {
        let middle = a.wrapping_add(1);
        if middle != 0 && (middle < b || (middle == b && common + 1 < next.len())) {
            out.extend_from_slice(key.own(..common));
            out.push(middle);
            return 0;
        }
    }
    out.extend_from_slice(key);
    0
}

/// Builds the index block of one partition after another.
#[derive(Default)]
pub(super) struct IndexBuilder {
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    /// Records without the ends of the keys.
    records: Vec<u8>,
    entries: u64,
}

impl IndexBuilder {
    pub(super) fn blocks(&self) -> usize {
        self.key_ends.len()
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// An upper bound of the block's bytes.
    pub(super) fn size(&self) -> usize {
        self.keys.len() + self.blocks() * (8 + RECORD_LEN) + 8
    }

    pub(super) fn add(&mut self, key: &[u8], seq: Seq, handle: Handle, entries: usize) {
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len());
        self.records
            .extend_from_slice(&(entries as u32).to_le_bytes());
        self.records.extend_from_slice(&seq.to_le_bytes());
        handle.put_fixed(&mut self.records);
        self.entries += entries as u64;
    }

    fn key(&self, i: usize) -> &[u8] {
        let end = |i: usize| *self.key_ends.own(i);
        let start = if i == 0 { 0 } else { end(i - 1) };
        self.keys.own(start..end(i))
    }

    /// Appends the block to `out` and begins the next.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let n = self.blocks();
        // Keys are in order: the common prefix of the first and the last is common to all.
        debug_assert!(n > 0, "a partition has a block");
        let (first, last) = (self.key(0), self.key(n.saturating_sub(1)));
        let prefix = common_prefix(first, last);
        let rest = |i| self.key(i).own(prefix..);
        out.extend_from_slice(first.own(..prefix));
        for i in 0..n {
            out.extend_from_slice(rest(i));
        }
        for i in 0..n {
            out.extend_from_slice(&head(rest(i)).to_le_bytes());
        }
        let mut end = 0;
        for (i, record) in self.records.chunks(RECORD_LEN - 4).enumerate() {
            end += rest(i).len() as u32;
            out.extend_from_slice(&end.to_le_bytes());
            out.extend_from_slice(record);
        }
        out.extend_from_slice(&(prefix as u32).to_le_bytes());
        out.extend_from_slice(&(n as u32).to_le_bytes());
        self.keys.clear();
        self.key_ends.clear();
        self.records.clear();
        self.entries = 0;
    }
}

/// A view of an index block. `None` results of its methods mean malformed.
#[derive(Clone, Copy)]
pub(super) struct Index<'a> {
    prefix: &'a [u8],
    rests: &'a [u8],
    heads: &'a [[u8; 8]],
    records: &'a [[u8; RECORD_LEN]],
}

/// The index record of a data block.
#[derive(Clone, Copy)]
pub(super) struct IndexEntry<'a> {
    /// The separator's user key, without the prefix.
    rest: &'a [u8],
    pub(super) seq: Seq,
    pub(super) handle: Handle,
    pub(super) entries: u32,
}

impl<'a> Index<'a> {
    #[inline]
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Index<'a>> {
        let (body, tail) = bytes.split_last_chunk::<8>()?;
        let mut tail = Reader::new(tail);
        let (prefix, n) = (tail.u32()? as usize, tail.u32()? as usize);
        let split = body.len().checked_sub(n.checked_mul(8 + RECORD_LEN)?)?;
        let (keys, fixed) = body.split_at_checked(split)?;
        let (heads, records) = fixed.split_at_checked(n * 8)?;
        let (prefix, rests) = keys.split_at_checked(prefix)?;
        Some(Index {
            prefix,
            rests,
            heads: heads.as_chunks().0,
            records: records.as_chunks().0,
        })
    }

    /// Number of data blocks.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    #[inline]
    fn rest_end(&self, i: usize) -> Option<usize> {
        let (end, _) = self.records.get(i)?.split_first_chunk::<4>()?;
        Some(u32::from_le_bytes(*end) as usize)
    }

    #[inline]
    pub(super) fn entry(&self, i: usize) -> Option<IndexEntry<'a>> {
        let start = if i == 0 { 0 } else { self.rest_end(i - 1)? };
        let mut reader = Reader::new(self.records.get(i)?);
        let rest = self.rests.get(start..reader.u32()? as usize)?;
        let (entries, seq) = (reader.u32()?, reader.u64()?);
        Some(IndexEntry {
            rest,
            seq,
            handle: Handle::read_fixed(&mut reader)?,
            entries,
        })
    }

    /// The number of entries in the data blocks before block `b`.
    pub(super) fn entries_before(&self, b: usize) -> Option<u64> {
        let count = |record: &[u8; RECORD_LEN]| {
            let [_, _, _, _, a, b, c, d, ..] = *record;
            u64::from(u32::from_le_bytes([a, b, c, d]))
        };
        Some(self.records.get(..b)?.iter().map(count).sum())
    }

    /// The user key of an entry's separator.
    pub(super) fn key_of(&self, entry: &IndexEntry<'_>) -> Vec<u8> {
        [self.prefix, entry.rest].concat()
    }

    /// Compares the separator behind block `i` with `(key, seq)`.
    #[inline]
    pub(super) fn compare(&self, i: usize, key: &[u8], seq: Seq) -> Option<Ordering> {
        match key.strip_prefix(self.prefix) {
            Some(rest) => self.compare_rest(i, head(rest), rest, seq),
            None => Some(self.prefix.cmp(key)),
        }
    }

    #[inline]
    fn compare_rest(&self, i: usize, wanted: u64, rest: &[u8], seq: Seq) -> Option<Ordering> {
        match u64::from_le_bytes(*self.heads.get(i)?).cmp(&wanted) {
            Ordering::Equal => {
                let entry = self.entry(i)?;
                Some(compare(entry.rest, entry.seq, rest, seq))
            }
            order => Some(order),
        }
    }

    /// The first block from `from` on that can hold an entry at or after `(key, seq)`.
    #[inline]
    pub(super) fn find(&self, from: usize, key: &[u8], seq: Seq) -> Option<usize> {
        self.search(false, from, key, seq)
    }

    /// As [`Index::find`], faster for a block near `from`.
    #[inline]
    pub(super) fn find_near(&self, from: usize, key: &[u8], seq: Seq) -> Option<usize> {
        self.search(true, from, key, seq)
    }

    #[inline]
    fn search(&self, near: bool, from: usize, key: &[u8], seq: Seq) -> Option<usize> {
        let (lo, hi) = (from.min(self.len()), self.len());
        let Some(rest) = key.strip_prefix(self.prefix) else {
            return Some(if self.prefix < key { hi } else { lo });
        };
        let wanted = head(rest);
        first_not_before(near, lo, hi, |i| {
            Some(self.compare_rest(i, wanted, rest, seq)? == Ordering::Less)
        })
    }
}

/// The top-level index record of a partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Partition {
    /// Sequence number of the separator behind it.
    pub(super) last_seq: Seq,
    pub(super) index: Handle,
    /// [`Handle::NONE`] when the table has no key filters.
    pub(super) filter: Handle,
    pub(super) synopsis: Handle,
    pub(super) min_seq: Seq,
    pub(super) max_seq: Seq,
    pub(super) entries: u64,
    /// The number of entries in earlier partitions.
    pub(super) before: u64,
}

/// The top-level index, pinned in memory while the table is open.
#[derive(Default)]
pub(super) struct Top {
    keys: Vec<u8>,
    key_ends: Vec<u32>,
    /// The length of the common prefix of all keys, and the next 8 bytes of each.
    prefix: usize,
    heads: Vec<u64>,
    parts: Vec<Partition>,
    slots: usize,
    zone_bytes: Vec<u8>,
    /// Per partition and slot: the offsets in `zone_bytes` where min begins, max begins, max ends.
    zones: Vec<[u32; 3]>,
    /// For the slots that have one.
    maps: Vec<Map>,
}

/// The location of an attribute's fingerprint map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Map {
    pub(super) slot: usize,
    /// The map numbers blocks by partition and, in this many low bits, index in the partition.
    pub(super) shift: u32,
    /// Its pages, by ascending hash.
    pub(super) pages: Vec<MapPlace>,
}

/// The location of a page of a fingerprint map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MapPlace {
    /// The least hash in it.
    pub(super) least: u64,
    pub(super) handle: Handle,
}

impl Map {
    /// The page that covers a hash.
    #[inline]
    pub(super) fn page(&self, hash: u64) -> Option<&MapPlace> {
        let behind = self.pages.partition_point(|page| page.least <= hash);
        self.pages.get(behind.checked_sub(1)?)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.slot as u64);
        put_varint(out, u64::from(self.shift));
        put_varint(out, self.pages.len() as u64);
        let mut before = 0;
        for page in &self.pages {
            put_varint(out, page.least - before);
            page.handle.put(out);
            before = page.least;
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Map> {
        let mut map = Map {
            slot: usize::try_from(reader.varint()?).ok()?,
            shift: u32::try_from(reader.varint()?)
                .ok()
                .filter(|shift| *shift < 32)?,
            pages: Vec::new(),
        };
        let mut least = 0_u64;
        for at in 0..reader.varint()? {
            let delta = reader.varint()?;
            if at > 0 && delta == 0 {
                return None;
            }
            least = least.checked_add(delta)?;
            let handle = Handle::read(reader)?;
            map.pages.push(MapPlace { least, handle });
        }
        map.pages.shrink_to_fit();
        Some(map)
    }
}

/// Marks an absent zone map, or an absent greatest value.
const ABSENT: u32 = u32::MAX;

impl Top {
    pub(super) fn new(slots: usize) -> Top {
        Top {
            slots,
            ..Top::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn entries(&self) -> u64 {
        self.parts
            .last()
            .map_or(0, |part| part.before + part.entries)
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        self.keys.capacity()
            + self.key_ends.capacity() * 4
            + self.heads.capacity() * 8
            + self.parts.capacity() * size_of::<Partition>()
            + self.zone_bytes.capacity()
            + self.zones.capacity() * 12
            + self
                .maps
                .iter()
                .map(|map| map.pages.capacity() * size_of::<MapPlace>())
                .sum::<usize>()
    }

    /// Approximate bytes of the encoded form.
    pub(super) fn size(&self) -> usize {
        self.keys.len() + self.parts.len() * 48 + self.zone_bytes.len() + self.zones.len() * 3
    }

    /// Adds the next partition without its zone maps: one [`Top::push_zone`] per slot follows.
    pub(super) fn push(&mut self, key: &[u8], mut part: Partition) {
        part.before = self.entries();
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len() as u32);
        self.parts.push(part);
    }

    /// Adds the zone map of the next slot of the last partition.
    pub(super) fn push_zone(&mut self, zone: Option<ZoneRef<'_>>) {
        let Some((min, max)) = zone else {
            self.zones.push([ABSENT; 3]);
            return;
        };
        let start = self.zone_bytes.len() as u32;
        self.zone_bytes.extend_from_slice(min);
        let middle = self.zone_bytes.len() as u32;
        self.zone_bytes.extend_from_slice(max.unwrap_or_default());
        let end = if max.is_some() {
            self.zone_bytes.len() as u32
        } else {
            ABSENT
        };
        self.zones.push([start, middle, end]);
    }

    /// Adds a fingerprint map, for a slot above the earlier ones.
    pub(super) fn push_map(&mut self, map: Map) {
        self.maps.push(map);
    }

    /// The fingerprint map of a slot, if it has one.
    #[inline]
    pub(super) fn map(&self, slot: usize) -> Option<&Map> {
        self.maps.iter().find(|map| map.slot == slot)
    }

    /// All fingerprint maps.
    pub(super) fn maps(&self) -> &[Map] {
        &self.maps
    }

    #[inline]
    pub(super) fn get(&self, p: usize) -> Option<&Partition> {
        self.parts.get(p)
    }

    /// The partition `p`, which the program knows to be there.
    pub(super) fn own(&self, p: usize) -> &Partition {
        self.parts.own(p)
    }

    /// The user key of the separator behind partition `p`.
    #[inline]
    pub(super) fn key(&self, p: usize) -> &[u8] {
        let end = |p: usize| *self.key_ends.own(p) as usize;
        let start = if p == 0 { 0 } else { end(p - 1) };
        self.keys.own(start..end(p))
    }

    /// The zone map of a slot in a partition.
    #[inline]
    pub(super) fn zone(&self, p: usize, slot: usize) -> Option<ZoneRef<'_>> {
        let &[start, middle, end] = self.zones.get(p * self.slots + slot)?;
        let part = |a: u32, b: u32| self.zone_bytes.get(a as usize..b as usize);
        let min = part(start, middle)?;
        if end == ABSENT {
            return Some((min, None));
        }
        Some((min, Some(part(middle, end)?)))
    }

    /// Compares the separator behind partition `p` with `(key, seq)`.
    #[inline]
    pub(super) fn compare(&self, p: usize, key: &[u8], seq: Seq) -> Ordering {
        let last_seq = self.parts.get(p).map_or(0, |part| part.last_seq);
        compare(self.key(p), last_seq, key, seq)
    }

    /// The first partition from `from` on that can hold an entry at or after `(key, seq)`. Only for
    /// prepared indexes.
    #[inline]
    pub(super) fn find(&self, from: usize, key: &[u8], seq: Seq) -> usize {
        self.search(false, from, key, seq)
    }

    /// As [`Top::find`], faster for a partition near `from`.
    #[inline]
    pub(super) fn find_near(&self, from: usize, key: &[u8], seq: Seq) -> usize {
        self.search(true, from, key, seq)
    }

    #[inline]
    fn search(&self, near: bool, from: usize, key: &[u8], seq: Seq) -> usize {
        let (lo, hi) = (from.min(self.len()), self.len());
        let prefix = self.keys.own(..self.prefix);
        let Some(rest) = key.strip_prefix(prefix) else {
            return if prefix < key { hi } else { lo };
        };
        let wanted = head(rest);
        let found = first_not_before(near, lo, hi, |p| {
            let order = match self.heads.get(p)?.cmp(&wanted) {
                Ordering::Equal => self.compare(p, key, seq),
                order => order,
            };
            Some(order == Ordering::Less)
        });
        found.unwrap_or(hi)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        put_varint(out, self.slots as u64);
        for (p, part) in self.parts.iter().enumerate() {
            put_bytes(out, self.key(p));
            put_varint(out, part.last_seq);
            part.index.put(out);
            part.filter.put(out);
            part.synopsis.put(out);
            put_varint(out, part.min_seq);
            put_varint(out, part.max_seq);
            put_varint(out, part.entries);
            for slot in 0..self.slots {
                put_zone(out, self.zone(p, slot));
            }
        }
        for map in &self.maps {
            map.encode(out);
        }
    }

    /// Reads the top-level index; `None` when it is malformed or out of order.
    pub(super) fn decode(bytes: &[u8]) -> Option<Top> {
        let mut reader = Reader::new(bytes);
        let (count, slots) = (reader.varint()?, reader.varint()?);
        let mut top = Top::new(usize::try_from(slots).ok()?);
        for p in 0..count {
            let key = reader.bytes()?;
            let part = Partition {
                last_seq: reader.varint()?,
                index: Handle::read(&mut reader)?,
                filter: Handle::read(&mut reader)?,
                synopsis: Handle::read(&mut reader)?,
                min_seq: reader.varint()?,
                max_seq: reader.varint()?,
                entries: reader.varint()?,
                before: 0,
            };
            top.entries().checked_add(part.entries)?;
            if p > 0 && top.compare(top.len() - 1, key, part.last_seq) != Ordering::Less {
                return None;
            }
            top.push(key, part);
            for _ in 0..slots {
                top.push_zone(read_zone(&mut reader)?);
            }
        }
        while !reader.is_empty() {
            let map = Map::decode(&mut reader)?;
            let last = top.maps.last().map(|last| last.slot);
            if map.slot >= top.slots || last.is_some_and(|last| last >= map.slot) {
                return None;
            }
            top.maps.push(map);
        }
        top.prepare();
        Some(top)
    }

    /// Prepares the decoded index for searches.
    fn prepare(&mut self) {
        if let Some(last) = self.len().checked_sub(1) {
            self.prefix = common_prefix(self.key(0), self.key(last));
        }
        let rest = |p| self.key(p).own(self.prefix..);
        self.heads = (0..self.len()).map(|p| head(rest(p))).collect();
        self.keys.shrink_to_fit();
        self.key_ends.shrink_to_fit();
        self.parts.shrink_to_fit();
        self.zone_bytes.shrink_to_fit();
        self.zones.shrink_to_fit();
    }
}

/// Adds a partition's zone maps, in slot order, to the top-level index.
pub(super) fn push_zones(top: &mut Top, zones: &[Option<Zone>]) {
    for zone in zones {
        top.push_zone(zone_ref(zone));
    }
}
