//! Walks over the entries in trees of points whose points lie in a range.

use esker_lsm::table::KeyRange;
use esker_lsm::version::TableFile;
use esker_lsm::{Kind, Seq};
use esker_model::range::Range;

use super::ranges::{bounds, meets};
use crate::error::Result;
use crate::index::walk::walk_where;
use crate::index::{
    Attribute, BestCandidates, EntryWrites, Lookup, TreeEntry, TreeRange, VisitEntryOr, VisitError,
    Window,
};
use crate::record;

/// Visits the puts in a tree of points whose points lie in `range`, superseded ones included, in no
/// order.
pub(crate) fn each_point<E: VisitError>(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    visit: &mut VisitEntryOr<'_, E>,
) -> std::result::Result<(), E> {
    let mut all = BestCandidates::new(Window::all());
    each_put(
        lookup,
        attribute,
        range,
        &mut all,
        &mut |value, key, entry, _| visit(value, key, entry.seq),
    )
}

/// Receives key, sequence number and record of an entry in the tree of a clustered attribute.
pub(crate) type VisitClusteredRecord<'v, E> =
    dyn FnMut(&[u8], Seq, &[u8]) -> std::result::Result<(), E> + 'v;

/// As [`each_point`], in the tree of a clustered attribute, with the records. A record with several
/// times in the range is visited once.
pub(crate) fn each_record_in_area<E: VisitError>(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    visit: &mut VisitClusteredRecord<'_, E>,
) -> std::result::Result<(), E> {
    let mut all = BestCandidates::new(Window::all());
    each_put(
        lookup,
        attribute,
        range,
        &mut all,
        &mut |value, key, entry, _| {
            let admits = |value: &[u8]| range.contains(value);
            if stands_for_record(attribute, value, entry.value, admits)? {
                visit(key, entry.seq, entry.value)
            } else {
                Ok(())
            }
        },
    )
}

/// Receives value and key of an entry, the entry, and the candidates so far.
type VisitPut<'v, E> =
    dyn FnMut(&[u8], &[u8], &TreeEntry<'_>, &mut BestCandidates) -> std::result::Result<(), E> + 'v;

/// As [`each_point`], only for entries that `best` may need.
pub(super) fn each_put<E: VisitError>(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    best: &mut BestCandidates,
    visit: &mut VisitPut<'_, E>,
) -> std::result::Result<(), E> {
    let index = attribute.required_index()?;
    let tree = attribute.index_tree()?;
    let keep = |file: &TableFile| meets(file, range);
    let bounds = bounds(lookup, attribute, range, index)?;
    let ranges: Vec<KeyRange<'_>> = bounds.iter().map(TreeRange::keys).collect();
    let exact = bounds.iter().all(|bounds| bounds.exact);
    let visit_inside = &mut |entry: TreeEntry<'_>, best: &mut BestCandidates| {
        if entry.kind != Kind::Put {
            return Ok(());
        }
        let (value, key) = attribute.split_key(index, entry.key)?;
        if exact || range.contains(value) {
            visit(value, key, &entry, best)
        } else {
            Ok(())
        }
    };
    let one = EntryWrites::One;
    walk_where(lookup, tree, &ranges, &keep, one, best, visit_inside)
}

/// A record with several times has several entries in the location tree. True if `value` is that of
/// the first entry of the `stored` record that `admits` accepts, so that the record counts once.
///
/// # Errors
/// If the record is malformed.
pub(crate) fn stands_for_record(
    attribute: &Attribute,
    value: &[u8],
    stored: &[u8],
    admits: impl Fn(&[u8]) -> bool,
) -> Result<bool> {
    if attribute.ty.timed_space().is_none() {
        return Ok(true);
    }
    let record = record::parse(stored)?;
    let mut values = record.attributes();
    let first = values.find(|(id, value)| *id == attribute.id && admits(value));
    Ok(first.is_some_and(|(_, first)| first == value))
}
