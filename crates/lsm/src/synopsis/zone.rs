//! Zone maps: the least and the greatest value, or the box around all values.

use crate::coding::{Reader, put_bytes};

/// Bounds kept in zone maps are at most this long, in bytes.
pub const MAX_BOUND_LEN: usize = 64;

/// Least and greatest value, both included; a greatest value of `None` is unbounded. The bounds are
/// shortened outwards to [`MAX_BOUND_LEN`].
pub type Zone = (Vec<u8>, Option<Vec<u8>>);

/// A borrowed zone map.
pub(crate) type ZoneRef<'a> = (&'a [u8], Option<&'a [u8]>);

/// The zone map that contains any value.
pub(crate) const ANYTHING: ZoneRef<'static> = (&[], None);

/// Shortens a least value to a bound: never above it.
pub(super) fn shorten_least(min: &mut Vec<u8>) {
    min.truncate(MAX_BOUND_LEN);
}

/// Shortens a greatest value to a bound that is not below it: itself, or the successor of its
/// prefix. False when there is none.
pub(super) fn shorten_greatest(max: &mut Vec<u8>) -> bool {
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
