//! The ranges of keys, and the tables, that may have the points of an area. Both cover all points
//! of the area, and some outside of it.

use esker_lsm::version::TableFile;
use esker_model::geometry::Relation;
use esker_model::range::Range;
use esker_model::region::Region;

use super::partition::{PointBox, point_box};
use crate::error::Result;
use crate::index::{Attribute, IndexType, Lookup, TreeRange};

/// Finding the begin of another range takes as long as reading this many entries.
const ENTRIES_PER_RANGE: u64 = 400;

/// The same for entries that contain their records: a block holds a tenth as many.
const RECORDS_PER_RANGE: u64 = 40;

/// The bounding box of the points in a spatially partitioned table; `None` for other tables.
pub(crate) fn box_of(file: &TableFile) -> Option<PointBox> {
    point_box(file.bounds())
}

/// True if a table may have points of a range: it is not spatially partitioned, or its box meets
/// the area.
pub(super) fn meets(file: &TableFile, range: &Range) -> bool {
    let Some(PointBox { area, times }) = box_of(file) else {
        return true;
    };
    let outside = |region: &Region| {
        let apart = match (region.times(), times) {
            (Some((from, to)), Some((first, last))) => last < from || to < first,
            _ => false,
        };
        apart || region.area().relation(&area) == Relation::Outside
    };
    !range.regions.iter().any(|region| outside(region))
}

/// Ranges of keys of a tree in z-order that contain all points of a range. Few coarse ranges, if
/// few points lie in them; many fine ranges, if these exclude enough points to pay off.
///
/// # Errors
/// Any read error.
pub(super) fn bounds(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    index: &dyn IndexType,
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
    let each = if attribute.kind.is_clustered() {
        RECORDS_PER_RANGE
    } else {
        ENTRIES_PER_RANGE
    };
    let meets = |file: &TableFile| meets(file, range);
    let expected = lookup.approximate_where(attribute, few.iter(), &meets)?;
    // Another range pays off only if it excludes at least this many entries.
    if expected <= each {
        return Ok(few);
    }
    // There may be as few fine ranges as coarse ones.
    let to_exclude = (region.key_ranges().len().saturating_sub(few.len())) as u64 * each;
    Ok(if expected > to_exclude {
        index.bounds(range)
    } else {
        few
    })
}
