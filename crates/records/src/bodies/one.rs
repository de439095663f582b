//! The body of one record.

use esker_lsm::{Cost, Seq, Slice, Snapshot};
use esker_model::record::RecordRef;

use super::place::{missing, place_of};
use crate::catalog::Layout;
use crate::error::Result;

/// The stored record of a key's newest entry, with its body: `stored` itself, unless it is a head,
/// whose record is then read from the location tree.
///
/// # Errors
/// Any read error, and damage if the record is not at its location.
#[inline]
pub(crate) fn with_body(
    layout: &Layout,
    snapshot: &Snapshot,
    key: &[u8],
    seq: Seq,
    stored: Slice,
    cost: &Cost,
) -> Result<Slice> {
    match layout.clustered() {
        Some(attribute) if RecordRef::lacks_body(&stored) => {
            let place = place_of(attribute, key, &stored)?;
            let found = snapshot.get(attribute.index_tree()?, &place, cost)?;
            let found = found.filter(|found| found.seq == seq);
            Ok(found.ok_or_else(|| missing(attribute, seq))?.value)
        }
        _ => Ok(stored),
    }
}

/// As [`with_body`], for an entry found in a memtable: its body is in a memtable, too. `None` if
/// that is missing, or the head is malformed, which the caller reports as damage.
pub(crate) fn with_body_in_memory(
    layout: &Layout,
    snapshot: &Snapshot,
    key: &[u8],
    seq: Seq,
    stored: Slice,
) -> Option<Slice> {
    match layout.clustered() {
        Some(attribute) if RecordRef::lacks_body(&stored) => {
            let place = place_of(attribute, key, &stored).ok()?;
            let found = snapshot.get_in_memory(attribute.tree?, &place)?;
            (found.seq == seq).then_some(found.value)
        }
        _ => Some(stored),
    }
}
