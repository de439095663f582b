//! Synopses: summaries of the entries of a block, a partition or a table.
//!
//! Per attribute a *zone map* (least and greatest value) and a *value filter* (a small Bloom filter
//! over the distinct values), as in LevelDB++ section 3, or instead of the filters of all blocks
//! one *fingerprint map* of the table (`fingerprints.rs`); a sample of the values (`sample.rs`),
//! for estimates; and the bounds of the sequence numbers, with which a top-K search skips data that
//! holds nothing newer than its K-th result (our replacement of the paper's "levels are ordered by
//! time").
//!
//! All but samples have one-sided errors: a synopsis may answer "maybe" for an absent value, never
//! "no" for a present one.

mod bits;
mod block;
mod fingerprints;
mod sample;
#[cfg(test)]
mod tests;

use std::ops::Bound;

use crate::coding::{Reader, put_bytes};

pub(crate) use block::{BITS_PER_VALUE, BlockSynopsis, Synopsis, SynopsisBuilder};
pub(crate) use fingerprints::{MapBuilder, MapPage, map_hash};
pub(crate) use sample::{SampleBuilder, count as count_sample};
pub use sample::{SampleShare, Sampled};

/// Bounds kept in zone maps are at most this long, in bytes.
pub const MAX_BOUND_LEN: usize = 64;

/// Least and greatest value, both included; a greatest value of `None` is unbounded. The bounds are
/// shortened outwards to [`MAX_BOUND_LEN`].
pub type Zone = (Vec<u8>, Option<Vec<u8>>);

/// A range of attribute values, compared as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueRange {
    /// The lower bound.
    pub lo: Bound<Vec<u8>>,
    /// The upper bound.
    pub hi: Bound<Vec<u8>>,
    /// Where values are summarised by boxes ([`crate::attributes::Summary::Boxes`]): those of which
    /// one is to be met. Without any, every box is.
    pub boxes: Option<Vec<Corners>>,
}

/// A box: the least of each number, and the greatest, as they are at the end of values.
pub type Corners = (Vec<u8>, Vec<u8>);

/// True unless two boxes are apart; those that are none, or of other dimensions, cannot be told
/// apart.
fn meet((low, high): &Corners, min: &[u8], max: &[u8]) -> bool {
    let dimensions = low.len();
    if [high.len(), min.len(), max.len()] != [dimensions; 3] {
        return true;
    }
    let numbers = |bytes| <[u8]>::as_chunks::<8>(bytes).0.iter();
    let own = numbers(low).zip(numbers(high));
    own.zip(numbers(min).zip(numbers(max)))
        .all(|((low, high), (min, max))| low <= max && min <= high)
}

impl ValueRange {
    /// The values in boxes.
    pub fn in_boxes(boxes: Vec<Corners>) -> ValueRange {
        ValueRange {
            lo: Bound::Unbounded,
            hi: Bound::Unbounded,
            boxes: Some(boxes),
        }
    }

    /// The range of `value` alone.
    pub fn only(value: &[u8]) -> ValueRange {
        ValueRange {
            lo: Bound::Included(value.to_vec()),
            hi: Bound::Included(value.to_vec()),
            boxes: None,
        }
    }

    /// True when `value` is in the range.
    #[inline]
    pub fn contains(&self, value: &[u8]) -> bool {
        self.begins_by(value) && self.ends_after(value)
    }

    /// The value of a range of exactly one.
    pub fn point(&self) -> Option<&[u8]> {
        match (&self.lo, &self.hi) {
            (Bound::Included(lo), Bound::Included(hi)) if lo == hi => Some(lo),
            _ => None,
        }
    }

    /// True when some value between `min` and `max` (both included; `None` is unbounded) is in the
    /// range.
    #[inline]
    pub fn overlaps(&self, min: &[u8], max: Option<&[u8]>) -> bool {
        if let Some(boxes) = &self.boxes {
            return max.is_none_or(|max| boxes.iter().any(|one| meet(one, min, max)));
        }
        self.ends_after(min) && max.is_none_or(|max| self.begins_by(max))
    }

    #[inline]
    fn begins_by(&self, value: &[u8]) -> bool {
        match &self.lo {
            Bound::Included(lo) => lo.as_slice() <= value,
            Bound::Excluded(lo) => lo.as_slice() < value,
            Bound::Unbounded => true,
        }
    }

    #[inline]
    fn ends_after(&self, value: &[u8]) -> bool {
        match &self.hi {
            Bound::Included(hi) => value <= hi.as_slice(),
            Bound::Excluded(hi) => value < hi.as_slice(),
            Bound::Unbounded => true,
        }
    }
}

/// A borrowed zone map.
pub(crate) type ZoneRef<'a> = (&'a [u8], Option<&'a [u8]>);

/// The zone map that contains any value.
pub(crate) const ANYTHING: ZoneRef<'static> = (&[], None);

/// Shortens a least value to a bound: never above it.
fn shorten_least(min: &mut Vec<u8>) {
    min.truncate(MAX_BOUND_LEN);
}

/// Shortens a greatest value to a bound that is not below it: itself, or the successor of its
/// prefix. False when there is none.
fn shorten_greatest(max: &mut Vec<u8>) -> bool {
    if max.len() <= MAX_BOUND_LEN {
        return true;
    }
    max.truncate(MAX_BOUND_LEN);
    while max.pop_if(|last| *last == 0xff).is_some() {}
    match max.last_mut() {
        Some(last) => {
            *last += 1;
            true
        }
        None => false,
    }
}

/// Extends the box `all` to cover `one`; boxes of other dimensions have none around both.
pub(crate) fn cover_box(all: &mut Option<Zone>, one: Option<ZoneRef<'_>>) {
    let (Some((min, max)), Some((all_min, all_max))) = (one, &mut *all) else {
        return cover(all, one);
    };
    match (all_max, max) {
        (Some(held), Some(max)) if [held.len(), all_min.len(), max.len()] == [min.len(); 3] => {
            widen(all_min, min, |new, held| new < held);
            widen(held, max, |new, held| new > held);
        }
        _ => *all = zone_owned(Some(ANYTHING)),
    }
}

/// Replaces the numbers of 8 bytes of a corner that are further out in another one.
fn widen(corner: &mut [u8], other: &[u8], is_further: fn(&[u8; 8], &[u8; 8]) -> bool) {
    let held = corner.as_chunks_mut::<8>().0.iter_mut();
    for (held, new) in held.zip(other.as_chunks::<8>().0) {
        if is_further(new, held) {
            *held = *new;
        }
    }
}

/// Extends `all` to cover `one`.
pub(crate) fn cover(all: &mut Option<Zone>, one: Option<ZoneRef<'_>>) {
    let Some((min, max)) = one else { return };
    let Some((all_min, all_max)) = all else {
        *all = zone_owned(one);
        return;
    };
    let set = |held: &mut Vec<u8>, value: &[u8]| {
        held.clear();
        held.extend_from_slice(value);
    };
    if min < all_min.as_slice() {
        set(all_min, min);
    }
    match (&mut *all_max, max) {
        (Some(held), Some(max)) if max > held.as_slice() => set(held, max),
        (Some(_), None) => *all_max = None,
        _ => {}
    }
}

/// Appends a zone map: 0, or 1 and both bounds, or 2 and the lower bound.
pub(crate) fn put_zone(out: &mut Vec<u8>, zone: Option<ZoneRef<'_>>) {
    match zone {
        None => out.push(0),
        Some((min, Some(max))) => {
            out.push(1);
            put_bytes(out, min);
            put_bytes(out, max);
        }
        Some((min, None)) => {
            out.push(2);
            put_bytes(out, min);
        }
    }
}

/// Decodes the output of [`put_zone`]; the outer `None` is malformed.
#[inline]
pub(crate) fn read_zone<'a>(reader: &mut Reader<'a>) -> Option<Option<ZoneRef<'a>>> {
    match reader.u8()? {
        0 => Some(None),
        1 => Some(Some((reader.bytes()?, Some(reader.bytes()?)))),
        2 => Some(Some((reader.bytes()?, None))),
        _ => None,
    }
}

/// Borrows the zone.
pub(crate) fn zone_ref(zone: &Option<Zone>) -> Option<ZoneRef<'_>> {
    zone.as_ref()
        .map(|(min, max)| (min.as_slice(), max.as_deref()))
}

/// Copies the zone.
pub(crate) fn zone_owned(zone: Option<ZoneRef<'_>>) -> Option<Zone> {
    zone.map(|(min, max)| (min.to_vec(), max.map(<[u8]>::to_vec)))
}
