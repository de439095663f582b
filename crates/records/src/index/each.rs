//! A walk over all current index entries of an index's tree, or those in a range, and the split of
//! an entry of the tree into index entries.

use esker_lsm::{Cursor, EntryCursor, Kind, Seq};
use esker_model::range::Range;

use super::kind::{Attribute, Entry, TreeRange, VisitEntry, VisitPosting};
use super::kinds::each_point;
use super::lookup::Lookup;
use super::walk_end::{VisitEntryOr, VisitError};
use crate::error::Result;

/// Visits each index entry of a stand-alone index once, or those whose values lie in `range`.
/// Obsolete entries may be included or not. The order is that of the index, except for points in an
/// area.
///
/// # Errors
/// Any read error, and any error of `visit`, which ends the walk.
pub(crate) fn each_entry<E: VisitError>(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: Option<&Range>,
    readahead: usize,
    visit: &mut VisitEntryOr<'_, E>,
) -> std::result::Result<(), E> {
    let index = attribute.required_index()?;
    if let Some(range) = range
        && !range.regions.is_empty()
        && index.is_of_points()
    {
        return each_point(lookup, attribute, range, visit);
    }
    let bounds = match range {
        Some(range) => index.bounds(range),
        None => vec![TreeRange {
            lo: Vec::new(),
            hi: None,
            exact: true,
        }],
    };
    let mut cursor = lookup.snapshot.entries(attribute.index_tree()?, readahead);
    let walked = each_between(&mut cursor, attribute, range, &bounds, visit);
    // Also if the visitor ended the walk.
    lookup.index_cost.absorb(&cursor.cost());
    walked
}

/// Visits the index entries in `bounds` whose values lie in `range`.
fn each_between<E: VisitError>(
    cursor: &mut EntryCursor,
    attribute: &Attribute,
    range: Option<&Range>,
    bounds: &[TreeRange],
    visit: &mut VisitEntryOr<'_, E>,
) -> std::result::Result<(), E> {
    for TreeRange { lo, hi, exact } in bounds {
        let filter = range.filter(|_| !exact);
        let mut inside = |value: &[u8], key: &[u8], seq| match filter {
            Some(range) if !range.contains(value) => Ok(()),
            _ => visit(value, key, seq),
        };
        let mut last_key: Option<Vec<u8>> = None;
        cursor.within(lo, hi.as_deref());
        cursor.seek_first()?;
        while cursor.valid() {
            let is_newest = last_key.as_deref() != Some(cursor.key());
            if is_newest {
                let last_key = last_key.get_or_insert_default();
                last_key.clear();
                last_key.extend_from_slice(cursor.key());
            }
            // Only the newest put of a key counts; operands are pieces of one list.
            if cursor.kind() == Kind::Operand || (is_newest && cursor.kind() == Kind::Put) {
                let (key, seq, value) = (cursor.key(), cursor.seq(), cursor.value());
                E::adapt(
                    |visit| index_entries(attribute, key, seq, value, visit),
                    &mut inside,
                )?;
            }
            cursor.next()?;
        }
    }
    Ok(())
}

/// Visits the index entries in an entry of the tree, without cancellations.
pub(super) fn index_entries(
    attribute: &Attribute,
    entry_key: &[u8],
    seq: Seq,
    entry_value: &[u8],
    visit: &mut VisitEntry<'_>,
) -> Result<()> {
    let mut put = |value: &[u8], key: &[u8], seq, cancel: bool| {
        if cancel {
            Ok(())
        } else {
            visit(value, key, seq)
        }
    };
    index_postings(attribute, entry_key, seq, entry_value, &mut put)
}

/// Visits the index entries in an entry of the tree: value, key, sequence number, and whether the
/// index entry cancels an older one.
fn index_postings(
    attribute: &Attribute,
    entry_key: &[u8],
    seq: Seq,
    entry_value: &[u8],
    visit: &mut VisitPosting<'_>,
) -> Result<()> {
    let index = attribute.required_index()?;
    let (value, rest) = attribute.split_key(index, entry_key)?;
    let entry = Entry {
        value,
        rest,
        seq,
        stored: entry_value,
    };
    index.entries_of(attribute, entry, visit)
}
