//! Indexes of points, with or without a time: one file per spatial layout. All of them find the
//! points of a region; they differ in storage order.
//!
//! A point is an ordinary attribute value (`model/schema/point.rs`). Its encoding begins with its
//! cell in z-order, followed by the exact coordinates. So index entries, tombstones, builds and
//! repairs need to know nothing of space.
//!
//! **Areas.** A condition `within` on a declared attribute becomes a range with a region
//! (`model/region.rs`): at most 24 ranges of cells that cover the area (at most four that cover
//! more), and the exact test of a value, which `Range::contains` applies. Answers are exact by that
//! test; whatever an index prunes by is conservative. On an undeclared attribute the point is read
//! from the JSON, in degrees.
//!
//! **Layouts.** `z` is a composite index; an area is one walk over its ranges, which reads each
//! block once (`index/walk.rs`): few ranges if metadata tells of few entries in them, otherwise
//! more. `mbr` and `stacked` have the same keys and a partitioner (`partition.rs`), so the tables
//! of a run share no place, and tables whose box is outside an area are skipped. The two differ
//! only in their compaction policy; in levels, tables take turns by the z-value of their box's
//! centre. `embedded` is the embedded index with boxes as zone maps. `clustered` is `z` with the
//! full records in its entries.
//!
//! **Place and time.** A point at a time is a value of an attribute whose path names both fields
//! (`model/schema/point_time.rs`). Its encoding begins with a period of time and a cell of three
//! dimensions; its region has a time window beside the area. Conditions still name the two fields:
//! `query/place_time.rs` finds an area and a bound on the time among the tests that every match
//! must meet, and combines them into one more predicate. That predicate can drive the query, and
//! answers both conditions if the time's type is exact. The partitioner has as many dimensions as
//! the value has coordinates.
//!
//! **Datasets stored by location** (`store/clustered.rs`). The records are in the tree of the
//! clustered attribute, under point and key, and a *stub* of each (the record without its JSON) is
//! in `d/data`. Both are operations of one write and share its number, so the tree is an index like
//! the others for cancellation, the obsolete set, repairs, named snapshots and backups. The
//! clustered attribute has the greatest ID of those declared at creation
//! (`StoredDef::in_all_records`): each stub has these attributes. Candidates of the clustered index
//! bring their records along. `query/stages.rs` joins stubs with records between fetching and
//! admitting, and joins only admitted ones; `query/by_place.rs` has large answers and scans.
//! Batches, the feed and the log of old records take the record from the other operation of the
//! same write. `check` compares stubs with records in both directions.
//!
//! **The nearest** (`query/space.rs`) are searched in growing circles. The first circle has a few
//! times as many entries as requested, by the density of the smallest cell around the point that
//! has enough. Distances are in the keys, so candidates go through the pipeline in the order of
//! distance, and only possible answers are fetched. Without an index every record is read once.

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

/// The box around the points of a table that is cut by space, and their first and last time if they
/// have times; `None` for a table that is not.
pub(super) fn box_of(file: &TableFile) -> Option<(Bounds, Option<(i64, i64)>)> {
    partition::bounds_of(file.bounds())
}

/// True when a table may have points of a range: it is of a tree that is not cut by space, or its
/// box meets the area.
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

/// The keys of a tree in z-order among which are all points of a range: few ranges where there are
/// few points in and about the area, more of them where that leaves much out.
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
