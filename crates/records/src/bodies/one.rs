//! The body of one record.

use esker_lsm::coding::Misplaced;
use esker_lsm::{Cost, Seq, Slice, Snapshot};
use esker_model::record::RecordRef;

use super::location_key::{location_key, missing, no_location_tree};
use crate::catalog::Layout;
use crate::error::Result;

/// The stored record of a key's newest entry, with its body: `stored` itself, unless it is a head,
/// whose record is then read from the location tree.
///
/// # Errors
/// Any read error, and damage if the record is not at its location, or `stored` is a head in a
/// dataset that is not stored by location.
#[inline]
pub(crate) fn with_body(
    layout: &Layout,
    snapshot: &Snapshot,
    key: &[u8],
    seq: Seq,
    stored: Slice,
    cost: &Cost,
) -> Result<Slice> {
    if !RecordRef::lacks_body(&stored) {
        return Ok(stored);
    }
    let attribute = layout.clustered().ok_or_else(no_location_tree)?;
    let location = location_key(attribute, key, &stored)?;
    let record = snapshot.get(attribute.index_tree()?, &location, cost)?;
    let record = record.filter(|record| record.seq == seq);
    Ok(record.ok_or_else(|| missing(attribute, seq))?.value)
}

/// As [`with_body`], for an entry found in a memtable: one batch wrote the head and its record, so
/// that the record is in a memtable, too.
///
/// # Errors
/// [`Misplaced`] if it is not, the head is malformed, or the dataset is not stored by location.
pub(crate) fn with_body_in_memory(
    layout: &Layout,
    snapshot: &Snapshot,
    key: &[u8],
    seq: Seq,
    stored: Slice,
) -> std::result::Result<Slice, Misplaced> {
    if !RecordRef::lacks_body(&stored) {
        return Ok(stored);
    }
    let attribute = layout.clustered().ok_or_else(|| Misplaced::here())?;
    let location = location_key(attribute, key, &stored).map_err(|_| Misplaced::here())?;
    let tree = attribute.tree.ok_or_else(|| Misplaced::here())?;
    let record = snapshot.get_in_memory(tree, &location);
    let record = record.filter(|record| record.seq == seq);
    Ok(record.ok_or_else(|| Misplaced::here())?.value)
}
