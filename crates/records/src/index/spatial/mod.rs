//! Indexes of points: one file a layout. All of them find the points of a region; what differs is what lies beside what.

mod z;

use model::definition::Layout;

use super::{Index, Lookup, Range, TreeRange};
use crate::catalog::Attribute;
use crate::error::Result;

/// So many entries more are as quick to look at as another range is to find.
const ENTRIES_PER_RANGE: u64 = 400;

/// The index of a layout.
pub(super) fn of(layout: Layout) -> &'static dyn Index {
    match layout {
        Layout::Z => &z::Z,
    }
}

/// The keys of a tree in z-order among which are all points of a range: few ranges where there are few points in and about
/// the area, more of them where that leaves much out.
pub(super) fn bounds(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    index: &dyn Index,
) -> Result<Vec<TreeRange>> {
    let fine = index.bounds(range);
    let Some(region) = range.regions.first() else {
        return Ok(fine);
    };
    let coarse = region.coarse_ranges();
    let spared = (fine.len().saturating_sub(coarse.len())) as u64 * ENTRIES_PER_RANGE;
    let (mut expected, mut few) = (0, Vec::with_capacity(coarse.len()));
    for (lo, hi) in coarse {
        expected += lookup.approximate(attribute, (&lo, hi.as_deref()))?;
        if expected > spared {
            return Ok(fine);
        }
        few.push(TreeRange {
            lo,
            hi,
            exact: false,
        });
    }
    Ok(few)
}
