//! Ranges of keys and tables that may have the points of an area.

use esker_lsm::version::TableFile;
use esker_model::geometry::{Bounds, Relation};
use esker_model::range::Range;
use esker_model::region::Region;

use super::partition;
use crate::error::Result;
use crate::index::{Attribute, IndexType, Lookup, TreeRange};

/// So many entries more are as quick to look at as another range is to find.
const ENTRIES_PER_RANGE: u64 = 400;

/// The same of entries that have their records, of which a block holds a tenth of that.
const RECORDS_PER_RANGE: u64 = 40;

/// The box around the points of a table that is cut by space, and their first and last time if they
/// have times; `None` for a table that is not.
pub(crate) fn box_of(file: &TableFile) -> Option<(Bounds, Option<(i64, i64)>)> {
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
    // One range more would have to spare that much at least.
    if expected <= each {
        return Ok(few);
    }
    let spared = (region.key_ranges().len().saturating_sub(few.len())) as u64 * each;
    Ok(if expected > spared {
        index.bounds(range)
    } else {
        few
    })
}
