//! A range of values of one attribute, as byte strings in the order of their encoding.

use std::ops::Bound;
use std::sync::Arc;

use crate::region::Region;

/// An interval of encoded values. Encodings of one type are self-delimiting (no value is a prefix
/// of another) and none consists of `ff` alone, so the keys that begin with a value of the interval
/// are an interval, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The lower bound.
    pub lo: Bound<Vec<u8>>,
    /// The upper bound.
    pub hi: Bound<Vec<u8>>,
    /// For points: the regions, all of which must contain the point.
    pub regions: Vec<Arc<Region>>,
}

impl Range {
    /// The range of one value.
    pub fn exactly(value: Vec<u8>) -> Range {
        Range::between(Bound::Included(value.clone()), Bound::Included(value))
    }

    /// The range between two bounds.
    pub const fn between(lo: Bound<Vec<u8>>, hi: Bound<Vec<u8>>) -> Range {
        Range {
            lo,
            hi,
            regions: Vec::new(),
        }
    }

    /// The points of a region.
    pub fn of_region(region: Region) -> Range {
        // A region without points has an empty range.
        let (lo, hi) = region.hull().unwrap_or((vec![u8::MAX; 2], vec![0]));
        Range {
            lo: Bound::Included(lo),
            hi: Bound::Included(hi),
            regions: vec![Arc::new(region)],
        }
    }

    /// The value, if the range contains exactly one.
    pub fn point(&self) -> Option<&[u8]> {
        match (&self.lo, &self.hi) {
            (Bound::Included(lo), Bound::Included(hi)) if lo == hi && self.regions.is_empty() => {
                Some(lo)
            }
            _ => None,
        }
    }

    /// True if no value can be in the range.
    pub fn is_empty(&self) -> bool {
        match (&self.lo, &self.hi) {
            (Bound::Included(lo), Bound::Included(hi)) => lo > hi,
            (
                Bound::Included(lo) | Bound::Excluded(lo),
                Bound::Included(hi) | Bound::Excluded(hi),
            ) => lo >= hi,
            _ => false,
        }
    }

    /// True if `value` is in the range.
    #[inline]
    pub fn contains(&self, value: &[u8]) -> bool {
        let above = match &self.lo {
            Bound::Included(lo) => value >= lo.as_slice(),
            Bound::Excluded(lo) => value > lo.as_slice(),
            Bound::Unbounded => true,
        };
        above
            && match &self.hi {
                Bound::Included(hi) => value <= hi.as_slice(),
                Bound::Excluded(hi) => value < hi.as_slice(),
                Bound::Unbounded => true,
            }
            && self.regions.iter().all(|region| region.contains(value))
    }

    /// The intersection.
    pub fn and(self, other: Range) -> Range {
        let lo = tighter(self.lo, other.lo, |a, b| a > b);
        let hi = tighter(self.hi, other.hi, |a, b| a < b);
        let mut regions = self.regions;
        regions.extend(other.regions);
        Range { lo, hi, regions }
    }

    /// Bounds of the keys that begin with a value of the range (for points they may include other
    /// keys): from the first (inclusive) to the second (exclusive; `None` is the end).
    pub fn key_bounds(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let lo = match &self.lo {
            Bound::Included(lo) => lo.clone(),
            Bound::Excluded(lo) => after_prefix(lo).unwrap_or_else(|| lo.clone()),
            Bound::Unbounded => Vec::new(),
        };
        let hi = match &self.hi {
            Bound::Included(hi) => after_prefix(hi),
            Bound::Excluded(hi) => Some(hi.clone()),
            Bound::Unbounded => None,
        };
        (lo, hi)
    }
}

fn tighter(
    a: Bound<Vec<u8>>,
    b: Bound<Vec<u8>>,
    closer: fn(&[u8], &[u8]) -> bool,
) -> Bound<Vec<u8>> {
    let key = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    };
    match (key(&a), key(&b)) {
        (None, _) => b,
        (_, None) => a,
        (Some(x), Some(y)) if x == y => {
            if matches!(a, Bound::Excluded(_)) {
                a
            } else {
                b
            }
        }
        (Some(x), Some(y)) => {
            if closer(&x, &y) {
                a
            } else {
                b
            }
        }
    }
}

/// The first byte string after all strings with this prefix; `None` if there is none.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut next = prefix.to_vec();
    while let Some(last) = next.pop() {
        if last < u8::MAX {
            next.push(last + 1);
            return Some(next);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_bounds_hold_exactly_the_keys_that_begin_with_a_value_of_the_range() {
        let values: Vec<Vec<u8>> = vec![vec![1], vec![2, 0], vec![2, 0xff], vec![0xfe, 0xff]];
        let bound = |i: usize, kind: usize| match kind {
            0 => Bound::Included(values[i].clone()),
            1 => Bound::Excluded(values[i].clone()),
            _ => Bound::Unbounded,
        };
        for lo in 0..4 {
            for hi in 0..4 {
                for kinds in 0..9 {
                    let range = Range::between(bound(lo, kinds / 3), bound(hi, kinds % 3));
                    let (first, end) = range.key_bounds();
                    for value in &values {
                        for suffix in [&[][..], &[0], &[0xff, 0xff]] {
                            let key = [value, suffix].concat();
                            let inside = key >= first && end.as_ref().is_none_or(|end| key < *end);
                            let expected = range.contains(value);
                            if !range.is_empty() {
                                assert_eq!(inside, expected, "{range:?} {key:?}");
                            }
                        }
                    }
                }
            }
        }
    }
}
