//! Indexes of points, and of points at a time: one file a layout. All of them find the points of a region; what differs is
//! what lies beside what.

mod clustered;
mod embedded;
mod packed;
mod partition;
mod z;

pub(crate) use clustered::stands_for_record;

use esker_lsm::version::TableFile;
use esker_model::definition::Layout;
use esker_model::geometry::{Bounds, Relation};
use esker_model::region::Region;

use super::{Index, Lookup, Range, TreeRange};
use crate::catalog::Attribute;
use crate::error::Result;

/// So many entries more are as quick to look at as another range is to find.
const ENTRIES_PER_RANGE: u64 = 400;

/// The same of entries that have their records, of which a block holds a tenth of that.
const RECORDS_PER_RANGE: u64 = 40;

/// The index of a layout.
pub(super) fn of(layout: Layout) -> &'static dyn Index {
    match layout {
        Layout::Z => &z::Z,
        Layout::Clustered => &clustered::Clustered,
        Layout::Mbr => &packed::Packed {
            is_stacked: false,
            is_timed: false,
        },
        Layout::Embedded => &embedded::InData { dimensions: 2 },
        Layout::Stacked => &packed::Packed {
            is_stacked: true,
            is_timed: false,
        },
    }
}

/// The index of a layout, of points at a time: the same, with keys and boxes that have the time.
pub(super) fn of_timed(layout: Layout) -> &'static dyn Index {
    match layout {
        Layout::Z => &z::Z,
        Layout::Clustered => &clustered::Clustered,
        Layout::Mbr => &packed::Packed {
            is_stacked: false,
            is_timed: true,
        },
        Layout::Embedded => &embedded::InData { dimensions: 3 },
        Layout::Stacked => &packed::Packed {
            is_stacked: true,
            is_timed: true,
        },
    }
}

/// The box around the points of a table that is cut by space, and their first and last time if they have times; `None` for a
/// table that is not.
pub(super) fn box_of(file: &TableFile) -> Option<(Bounds, Option<(i64, i64)>)> {
    partition::bounds_of(file.bounds())
}

/// True when a table may have points of a range: it is of a tree that is not cut by space, or its box meets the area.
pub(super) fn meets(file: &TableFile, range: &Range) -> bool {
    let Some((bounds, times)) = box_of(file) else {
        return true;
    };
    let outside = |region: &Region| {
        let apart = match (region.times(), times) {
            (Some((from, to)), Some((first, last))) => last < from || to < first,
            _ => false,
        };
        apart || region.area().relation(&bounds) == Relation::Outside
    };
    !range.regions.iter().any(|region| outside(region))
}

/// The keys of a tree in z-order among which are all points of a range: few ranges where there are few points in and about
/// the area, more of them where that leaves much out.
pub(super) fn bounds(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    index: &dyn Index,
) -> Result<Vec<TreeRange>> {
    let Some(region) = range.regions.first() else {
        return Ok(index.bounds(range));
    };
    let few: Vec<TreeRange> = region
        .coarse_ranges()
        .map(|(lo, hi)| TreeRange {
            lo,
            hi,
            exact: false,
        })
        .collect();
    let each = match attribute.kind.is_clustered() {
        true => RECORDS_PER_RANGE,
        false => ENTRIES_PER_RANGE,
    };
    let meets = |file: &TableFile| meets(file, range);
    let expected = lookup.approximate_where(attribute, few.iter(), &meets)?;
    // One range more would have to spare that much at least.
    if expected <= each {
        return Ok(few);
    }
    let spared = (region.key_ranges().len().saturating_sub(few.len())) as u64 * each;
    Ok(match expected > spared {
        true => index.bounds(range),
        false => few,
    })
}
