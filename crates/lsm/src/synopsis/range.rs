//! Ranges of attribute values.

use std::ops::Bound;

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
