//! Heads apart from bodies: whether a dataset has them, and which ones the records in the location
//! tree require, for the check of a store.

use esker_lsm::coding::Own;
use esker_lsm::{Cursor, Kind, Snapshot};
use esker_model::record::RecordRef;
use esker_model::schema::Value;

use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::{Attribute, VisitEntry, stands_for_record};

/// Read-ahead of the scan.
const READAHEAD: usize = 256 << 10;

/// Visits the head, key and sequence number that each record in the location tree requires in the
/// data tree. `attribute` is the clustered one. Replaced records that no compaction has dropped yet
/// are visited, too.
pub(crate) fn each_required_head(
    snapshot: &Snapshot,
    attribute: &Attribute,
    visit: &mut VisitEntry<'_>,
) -> Result<()> {
    let mut cursor = snapshot.entries(attribute.index_tree()?, READAHEAD);
    cursor.seek_first()?;
    let mut last: Option<Vec<u8>> = None;
    while cursor.valid() {
        let is_newest = last.as_deref() != Some(cursor.key());
        if is_newest {
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(cursor.key());
        }
        let stored = cursor.value();
        if is_newest && cursor.kind() == Kind::Put {
            let body = RecordRef::parse(stored).map(|record| record.body().len());
            let malformed = || Error::damaged("a stored record is malformed");
            let head = stored.len() - body.ok_or_else(malformed)?;
            let (value, key) = Value::split(attribute.ty, cursor.key()).ok_or_else(malformed)?;
            if stands_for_record(attribute, value, stored, |_| true)? {
                visit(stored.own(..head), key, cursor.seq())?;
            }
        }
        cursor.next()?;
    }
    Ok(())
}

/// True if the data tree may have records without their bodies.
#[inline]
pub(crate) fn are_separate(layout: &Layout) -> bool {
    layout.clustered().is_some()
}
