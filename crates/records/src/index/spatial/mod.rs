//! Indexes of points: one file a layout. All of them find the points of a region; what differs is what lies beside what.

mod embedded;
mod packed;
mod partition;
mod z;

use lsm::version::TableFile;
use model::definition::Layout;
use model::geometry::{Area, Bounds, Relation};

use super::{Index, Lookup, Range, TreeRange};
use crate::catalog::Attribute;
use crate::error::Result;

/// So many entries more are as quick to look at as another range is to find.
const ENTRIES_PER_RANGE: u64 = 400;

/// The index of a layout.
pub(super) fn of(layout: Layout) -> &'static dyn Index {
    match layout {
        Layout::Z => &z::Z,
        Layout::Mbr => &packed::Packed { is_stacked: false },
        Layout::Embedded => &embedded::InData,
        Layout::Stacked => &packed::Packed { is_stacked: true },
    }
}

/// The box around the points of a table that is cut by space; `None` for one that is not.
pub(super) fn box_of(file: &TableFile) -> Option<Bounds> {
    partition::bounds_of(file.bounds())
}

/// True when a table may have points of a range: it is of a tree that is not cut by space, or its box meets the area.
pub(super) fn meets(file: &TableFile, range: &Range) -> bool {
    let Some(bounds) = box_of(file) else {
        return true;
    };
    let outside = |area: &Area| area.relation(&bounds) == Relation::Outside;
    !range.regions.iter().any(|region| outside(region.area()))
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
