//! Data blocks: entries with prefix-compressed keys, searchable in place.
//!
//! ```text
//! values      one behind the other
//! entries     shared, key rest length, value length, stamp (varints); key rest
//! restarts    r x (u32 where some entries begin, u32 where their values do)
//! base u64, where the entries begin u32, r u32
//! ```
//!
//! `shared` bytes of the key are those of the entry before; an entry at a restart shares none. A
//! restart is at the first entry and then every 16 entries, or every 2 KiB of values, so that a
//! search in a block of large values takes few single steps. The stamp is
//! `zigzag(seq - base) << 2 | kind`, base being the first entry's sequence number. Keys are stored
//! together and next to the restarts, because a search that skipped over the values would miss the
//! processor's cache once per entry.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::search::first_not_before;
use crate::coding::{Reader, put_varint};
use crate::entry::{Kind, MAX_SEQ, Seq};
use esker_coding::{Own, Slice};

/// The most entries from one restart to the next.
const RESTART_INTERVAL: usize = 16;
/// Bytes of values behind which an entry is a restart before that.
const RESTART_BYTES: usize = 2 << 10;
/// Bytes of a restart.
const RESTART_LEN: usize = 8;
/// Bytes behind the restarts.
const TAIL_LEN: usize = 16;

/// Length of the common prefix.
#[inline]
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (a8, _) = a.as_chunks::<8>();
    let (b8, _) = b.as_chunks::<8>();
    let mut n = 0;
    for (x, y) in a8.iter().zip(b8) {
        let diff = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if diff != 0 {
            return n + (diff.trailing_zeros() / 8) as usize;
        }
        n += 8;
    }
    let rest = |bytes| <[u8]>::get(bytes, n..).unwrap_or_default().iter();
    n + rest(a).zip(rest(b)).take_while(|(x, y)| x == y).count()
}

/// Builds one data block after another.
#[derive(Default)]
pub(super) struct BlockBuilder {
    /// The values, and once finished the whole block.
    bytes: Vec<u8>,
    keys: Vec<u8>,
    restarts: Vec<(u32, u32)>,
    base: Seq,
    entries: usize,
    since_restart: usize,
}

impl BlockBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// Bytes of the block if it ended now.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.keys.len() + self.restarts.len() * RESTART_LEN + TAIL_LEN
    }

    /// Adds an entry; `before` is the key of the entry before it.
    #[inline]
    pub(super) fn add(&mut self, before: &[u8], key: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
        if self.entries == 0 {
            self.base = seq;
        }
        let shared = if self.is_restart() {
            self.restarts
                .push((self.keys.len() as u32, self.bytes.len() as u32));
            self.since_restart = 0;
            0
        } else {
            common_prefix(before, key)
        };
        let rest = key.own(shared..);
        let delta = seq.wrapping_sub(self.base) as i64;
        let zigzag = ((delta << 1) ^ (delta >> 63)) as u64;
        put_varint(&mut self.keys, shared as u64);
        put_varint(&mut self.keys, rest.len() as u64);
        put_varint(&mut self.keys, value.len() as u64);
        put_varint(&mut self.keys, zigzag << 2 | kind as u64);
        self.keys.extend_from_slice(rest);
        self.bytes.extend_from_slice(value);
        self.entries += 1;
        self.since_restart += 1;
    }

    /// True when the next entry is a restart.
    #[inline]
    fn is_restart(&self) -> bool {
        let values_at = self.restarts.last().map(|(_, values)| *values as usize);
        values_at.is_none_or(|at| {
            self.since_restart == RESTART_INTERVAL || self.bytes.len() - at >= RESTART_BYTES
        })
    }

    /// Completes the block. [`BlockBuilder::clear`] begins the next.
    pub(super) fn finish(&mut self) -> &[u8] {
        let entries_at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&self.keys);
        for (key, value) in &self.restarts {
            self.bytes
                .extend_from_slice(&(entries_at + key).to_le_bytes());
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
        self.bytes.extend_from_slice(&self.base.to_le_bytes());
        self.bytes.extend_from_slice(&entries_at.to_le_bytes());
        self.bytes
            .extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        // One huge value must not pin its memory for the rest of the table.
        if self.bytes.capacity() > 1 << 20 {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.keys.clear();
        self.restarts.clear();
        self.entries = 0;
    }
}

/// The offsets of the parts of a block. Its methods take the block's bytes; `None` is malformed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Layout {
    entries: usize,
    end: usize,
    restarts: usize,
    base: Seq,
}

/// The numbers before an entry's key rest, and how many bytes they take.
#[derive(Debug, PartialEq, Eq)]
struct Numbers {
    shared: usize,
    key_len: usize,
    value_len: usize,
    stamp: u64,
    len: usize,
}

impl Numbers {
    /// Those at the front of `bytes`.
    #[inline(always)]
    fn of(bytes: &[u8]) -> Option<Numbers> {
        let short = match bytes.first_chunk::<8>() {
            Some(head) => Numbers::short(u64::from_le_bytes(*head)),
            None => None,
        };
        match short {
            Some(numbers) => Some(numbers),
            None => Numbers::read(bytes),
        }
    }

    /// From the first 8 bytes, where the numbers are as small as nearly always: of one byte each
    /// those of the key, of one or two the length of the value, of up to three the stamp.
    #[inline(always)]
    fn short(word: u64) -> Option<Numbers> {
        let (shared, key_len, value) = (word & 0x7f, word >> 8 & 0x7f, word >> 16);
        let value_is_long = value >> 7 & 1;
        let second = value >> 1 & 0x3f80 & value_is_long.wrapping_neg();
        let stamp = value >> (8 + 8 * value_is_long);
        // The bits that say that a number goes on; the first byte of the stamp without one is its
        // last.
        let stamp_last = (!stamp & 0x80_8080).trailing_zeros();
        if word & 0x8080 != 0 || value_is_long & (value >> 15) != 0 || stamp_last >= 64 {
            return None;
        }
        let stamp = stamp & (u64::MAX >> (63 - stamp_last));
        Some(Numbers {
            shared: shared as usize,
            key_len: key_len as usize,
            value_len: (value & 0x7f | second) as usize,
            stamp: stamp & 0x7f | stamp >> 1 & 0x3f80 | stamp >> 2 & 0x1f_c000,
            len: 3 + value_is_long as usize + (stamp_last as usize).div_ceil(8),
        })
    }

    #[inline(never)]
    fn read(bytes: &[u8]) -> Option<Numbers> {
        let mut reader = Reader::new(bytes);
        Some(Numbers {
            shared: usize::try_from(reader.varint()?).ok()?,
            key_len: usize::try_from(reader.varint()?).ok()?,
            value_len: usize::try_from(reader.varint()?).ok()?,
            stamp: reader.varint()?,
            len: bytes.len() - reader.rest().len(),
        })
    }
}

/// The location of an entry: offsets in the block's bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    at: usize,
    shared: usize,
    key: usize,
    /// The end of the key rest, where the next entry begins.
    key_end: usize,
    value: usize,
    /// The end of the value, where the next one begins.
    value_end: usize,
    pub(super) seq: Seq,
    pub(super) kind: Kind,
}

impl Place {
    #[inline]
    fn key_rest<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        // Within the block: see `Layout::entry`.
        bytes.own(self.key..self.key_end)
    }

    /// The order of the entry relative to `(key, seq)`, of which it is known to share as much as
    /// with the entry before, and how many bytes of `key` it shares.
    #[inline]
    fn order(&self, bytes: &[u8], key: &[u8], seq: Seq) -> Option<(Ordering, usize)> {
        let rest = self.key_rest(bytes);
        let wanted = key.get(self.shared..)?;
        let common = common_prefix(rest, wanted);
        let order = match (rest.get(common), wanted.get(common)) {
            (None, None) => seq.cmp(&self.seq),
            (rest, wanted) => rest.cmp(&wanted),
        };
        Some((order, self.shared + common))
    }

    /// True when the entry, found by a seek to `key`, has exactly that key.
    #[inline]
    pub(super) fn is_of(&self, bytes: &[u8], key: &[u8]) -> bool {
        key.get(self.shared..) == bytes.get(self.key..self.key_end)
    }

    /// Where in the block the entry's value is.
    #[inline]
    pub(super) fn value_range(&self) -> Range<usize> {
        self.value..self.value_end
    }
}

/// The end position of a search for one of several ascending keys, from which the next continues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Near<'k> {
    /// The last restart of the search.
    restart: usize,
    /// The key, and its first entry, if there is one.
    found: Option<(Place, &'k [u8])>,
}

/// What a look at the next entry told of a search.
enum Step {
    /// Where it ends; the inner `None`: behind the last entry.
    Here(Option<Place>),
    /// It goes on, from the entry, of which so many bytes of the key are known to match, or from
    /// the top.
    Behind(Option<(Place, usize)>),
}

impl Layout {
    /// Parses a block, which has at least one entry.
    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Option<Layout> {
        let tail = bytes.len().checked_sub(TAIL_LEN)?;
        let mut reader = Reader::new(bytes.get(tail..)?);
        let (base, entries, restarts) = (
            reader.u64()?,
            reader.u32()? as usize,
            reader.u32()? as usize,
        );
        let end = tail.checked_sub(restarts.checked_mul(RESTART_LEN)?)?;
        (end > entries && restarts > 0).then_some(Layout {
            entries,
            end,
            restarts,
            base,
        })
    }

    /// Before the first entry.
    fn start(&self) -> Place {
        let at = self.entries;
        let (seq, kind) = (0, Kind::Delete);
        Place {
            at,
            shared: 0,
            key: at,
            key_end: at,
            value: 0,
            value_end: 0,
            seq,
            kind,
        }
    }

    #[inline]
    fn restart(&self, bytes: &[u8], i: usize) -> Option<(usize, usize)> {
        let mut reader = Reader::new(bytes.get(self.end + i * RESTART_LEN..)?);
        let (at, value) = (reader.u32()? as usize, reader.u32()? as usize);
        (at >= self.entries && at < self.end).then_some((at, value))
    }

    /// The entry at `at` whose value is at `value`.
    #[inline(always)]
    fn entry(&self, bytes: &[u8], at: usize, value: usize) -> Option<Place> {
        let rest = bytes.get(at..self.end)?;
        let Numbers {
            shared,
            key_len,
            value_len,
            stamp,
            len,
        } = Numbers::of(rest)?;
        let key = at + len;
        let key_end = key.checked_add(key_len)?;
        let value_end = value.checked_add(value_len)?;
        let zigzag = stamp >> 2;
        let delta = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        let seq = self.base.wrapping_add(delta);
        let kind = Kind::from_byte((stamp & 3) as u8)?;
        (key_end <= self.end && value_end <= self.entries && seq <= MAX_SEQ).then_some(Place {
            at,
            shared,
            key,
            key_end,
            value,
            value_end,
            seq,
            kind,
        })
    }

    #[inline]
    fn restart_entry(&self, bytes: &[u8], i: usize) -> Option<Place> {
        let (at, value) = self.restart(bytes, i)?;
        self.entry(bytes, at, value)
            .filter(|place| place.shared == 0)
    }

    #[inline]
    fn entry_after(&self, bytes: &[u8], place: &Place) -> Option<Place> {
        self.entry(bytes, place.key_end, place.value_end)
    }

    /// The first entry at or after `(key, seq)`; the inner `None`: all entries are before. The
    /// entry's key is `key[..shared]` and its rest. The search assembles no keys: it suffices to
    /// track how much of `key` the last entry matched.
    pub(super) fn seek(&self, bytes: &[u8], key: &[u8], seq: Seq) -> Option<Option<Place>> {
        let place = match self.last_restart(false, 0, bytes, key, seq)? {
            Some((_, place)) => place,
            None => self.restart_entry(bytes, 0)?,
        };
        self.walk(bytes, place, 0, key, seq)
    }

    /// The first entry of `key` or a later key, for ascending keys: `near` is the end position of
    /// the search for the key before, `None` for the first, and is updated by this one.
    pub(super) fn seek_near<'k>(
        &self,
        bytes: &[u8],
        near: &mut Option<Near<'k>>,
        key: &'k [u8],
    ) -> Option<Option<Place>> {
        let (last, found) = match near.take() {
            Some(near) => (Some(near.restart), near.found),
            None => (None, None),
        };
        // Often it is the same entry again, or the next one.
        let (place, restart) = match self.step(bytes, found, key)? {
            Step::Here(place) => (place, last.unwrap_or(0)),
            Step::Behind(behind) => {
                // Over a long distance, the restarts are faster than single steps.
                let from = last.map_or(0, |last| last + 1);
                let next = self.last_restart(last.is_some(), from, bytes, key, MAX_SEQ)?;
                let restart = next.map(|(at, _)| at).or(last).unwrap_or(0);
                let (from, matched) = match (next, behind) {
                    (Some((_, first)), Some(behind)) if first.at > behind.0.at => (first, 0),
                    (_, Some(behind)) => behind,
                    (Some((_, first)), None) => (first, 0),
                    (None, None) => (self.restart_entry(bytes, restart)?, 0),
                };
                (self.walk(bytes, from, matched, key, MAX_SEQ)?, restart)
            }
        };
        let found = place.filter(|place| place.is_of(bytes, key));
        *near = Some(Near {
            restart,
            found: found.map(|place| (place, key)),
        });
        Some(place)
    }

    /// Looks for the first entry of `key` at that of an earlier one, and at the entry behind it.
    #[inline]
    fn step(&self, bytes: &[u8], found: Option<(Place, &[u8])>, key: &[u8]) -> Option<Step> {
        let Some((place, before)) = found else {
            return Some(Step::Behind(None));
        };
        if before == key {
            return Some(Step::Here(Some(place)));
        }
        if place.key_end == self.end {
            return Some(Step::Here(None));
        }
        let next = self.entry_after(bytes, &place)?;
        let matched = common_prefix(before, key);
        if next.shared > matched {
            return Some(Step::Behind(Some((next, matched))));
        }
        let (order, matched) = next.order(bytes, key, MAX_SEQ)?;
        Some(match order {
            Ordering::Less => Step::Behind(Some((next, matched))),
            _ => Step::Here(Some(next)),
        })
    }

    /// The last restart from `from` on whose entry is before `(key, seq)`, and that entry; the
    /// inner `None`: there is no such restart.
    #[inline]
    fn last_restart(
        &self,
        near: bool,
        from: usize,
        bytes: &[u8],
        key: &[u8],
        seq: Seq,
    ) -> Option<Option<(usize, Place)>> {
        let mut last = None;
        first_not_before(near, from, self.restarts, |i| {
            let before = self.is_restart_before(bytes, i, key, seq)?;
            last = if before { Some(i) } else { last };
            Some(before)
        })?;
        match last {
            Some(last) => Some(Some((last, self.restart_entry(bytes, last)?))),
            None => Some(None),
        }
    }

    /// True when the entry of a restart is before `(key, seq)`.
    #[inline]
    fn is_restart_before(&self, bytes: &[u8], i: usize, key: &[u8], seq: Seq) -> Option<bool> {
        let (at, _) = self.restart(bytes, i)?;
        let rest = bytes.get(at..self.end)?;
        let numbers = Numbers::of(rest)?;
        let here = rest.get(numbers.len..)?.get(..numbers.key_len)?;
        match here.cmp(key) {
            _ if numbers.shared > 0 => None,
            Ordering::Equal => Some(self.restart_entry(bytes, i)?.seq > seq),
            order => Some(order == Ordering::Less),
        }
    }

    /// Continues from an entry of which `matched` bytes are known to equal those of `key`.
    fn walk(
        &self,
        bytes: &[u8],
        mut place: Place,
        mut matched: usize,
        key: &[u8],
        seq: Seq,
    ) -> Option<Option<Place>> {
        loop {
            // An entry that shares more than was matched differs from `key` at the same byte as the
            // one before, and precedes it for the same reason.
            if place.shared <= matched {
                let (order, common) = place.order(bytes, key, seq)?;
                if order != Ordering::Less {
                    return Some(Some(place));
                }
                matched = common;
            }
            if place.key_end == self.end {
                return Some(None);
            }
            place = self.entry_after(bytes, &place)?;
        }
    }
}

/// A position in one data block. The moves return `None` when the block is malformed, and otherwise
/// whether they reached an entry.
pub(super) struct BlockCursor {
    bytes: Arc<Vec<u8>>,
    layout: Layout,
    key: Vec<u8>,
    place: Place,
}

impl BlockCursor {
    pub(super) fn new() -> BlockCursor {
        BlockCursor {
            bytes: Arc::default(),
            layout: Layout::default(),
            key: Vec::new(),
            place: Layout::default().start(),
        }
    }

    /// Loads another block; the position is before its first entry.
    pub(super) fn load(&mut self, bytes: Arc<Vec<u8>>) -> Option<()> {
        self.layout = Layout::default();
        self.place = self.layout.start();
        self.key.clear();
        self.layout = Layout::parse(&bytes)?;
        self.place = self.layout.start();
        self.bytes = bytes;
        Some(())
    }

    /// The block's memory, for reuse if no one else holds it.
    pub(super) fn recycle(&mut self) -> Vec<u8> {
        self.layout = Layout::default();
        self.place = self.layout.start();
        match Arc::get_mut(&mut self.bytes) {
            Some(bytes) => std::mem::take(bytes),
            None => Vec::new(),
        }
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    pub(super) fn seq(&self) -> Seq {
        self.place.seq
    }

    #[inline]
    pub(super) fn kind(&self) -> Kind {
        self.place.kind
    }

    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        self.bytes.own(self.place.value..self.place.value_end)
    }

    pub(super) fn value_slice(&self) -> Slice {
        let value = self.place.value_range();
        Slice::shared(Arc::clone(&self.bytes), value.start, value.end)
    }

    #[inline]
    fn stand(&mut self, place: Place) -> Option<bool> {
        if place.shared > self.key.len() {
            return None;
        }
        self.key.truncate(place.shared);
        self.key.extend_from_slice(place.key_rest(&self.bytes));
        self.place = place;
        Some(true)
    }

    pub(super) fn first(&mut self) -> Option<bool> {
        self.place = self.layout.start();
        self.key.clear();
        self.next()
    }

    /// Moves to the next entry; in a fresh block, to the first.
    #[inline]
    pub(super) fn next(&mut self) -> Option<bool> {
        if self.place.key_end == self.layout.end {
            return Some(false);
        }
        let place = self.layout.entry_after(&self.bytes, &self.place)?;
        self.stand(place)
    }

    pub(super) fn last(&mut self) -> Option<bool> {
        self.walk(self.layout.restarts.checked_sub(1)?, self.layout.end)
    }

    /// Moves to the previous entry.
    pub(super) fn prev(&mut self) -> Option<bool> {
        let here = self.place.at;
        if here == self.layout.entries {
            return Some(false);
        }
        let (mut lo, mut hi) = (0, self.layout.restarts);
        while lo < hi {
            let mid = lo.midpoint(hi);
            if self.layout.restart(&self.bytes, mid)?.0 < here {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        self.walk(lo.checked_sub(1)?, here)
    }

    /// Moves from a restart to the last entry before `end`.
    fn walk(&mut self, restart: usize, end: usize) -> Option<bool> {
        let place = self.layout.restart_entry(&self.bytes, restart)?;
        self.stand(place)?;
        while self.place.key_end < end {
            let place = self.layout.entry_after(&self.bytes, &self.place)?;
            self.stand(place)?;
        }
        Some(true)
    }

    pub(super) fn seek(&mut self, key: &[u8], seq: Seq) -> Option<bool> {
        let Some(place) = self.layout.seek(&self.bytes, key, seq)? else {
            return Some(false);
        };
        self.key.clear();
        self.key.extend_from_slice(key.get(..place.shared)?);
        self.stand(place)
    }
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
