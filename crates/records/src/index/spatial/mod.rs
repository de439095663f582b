//! Indexes of points, with or without a time: one file per spatial layout. All of them find the
//! points of a region; they differ in storage order.

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

/// Reading this many more entries costs as much as finding another range.
const ENTRIES_PER_RANGE: u64 = 400;

/// As above, for entries with their records, of which a block holds a tenth as many.
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

/// As [`of`], for points with a time: keys and boxes include the time.
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

/// The bounding box of a table of a spatially partitioned tree, and the first and last time of its
/// points, if they have times; `None` for other tables.
pub(super) fn box_of(file: &TableFile) -> Option<(Bounds, Option<(i64, i64)>)> {
    partition::bounds_of(file.bounds())
}

/// True if a table may have points of a range: its box meets the area, or its tree is not spatially
/// partitioned.
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

/// The key ranges of a tree in z-order that contain all points of a range: few ranges if there are
/// few points in and around the area, more ranges if they exclude many points.
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
    // Each additional range must exclude at least this many entries.
    if expected <= each {
        return Ok(few);
    }
    let spared = (region.key_ranges().len().saturating_sub(few.len())) as u64 * each;
    Ok(match expected > spared {
        true => index.bounds(range),
        false => few,
    })
}
