//! Datasets that are stored by place: the stubs of the data against the records of the tree by place.

use esker_lsm::{Cursor, Kind, Snapshot};
use esker_model::record::RecordRef;
use esker_model::schema::Value;

use super::READAHEAD;
use crate::catalog::Attribute;
use crate::error::{Error, Result};
use crate::index::{VisitFact, stands_for_record};

/// Gives of each record in the tree by place what its stub must be, key and sequence number; of those that compactions have not
/// dropped yet, too.
pub(super) fn each_stub(
    snapshot: &Snapshot,
    attribute: &Attribute,
    visit: &mut VisitFact<'_>,
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
            let malformed = || Error::damaged("a record is malformed");
            let stub = stored.len() - body.ok_or_else(malformed)?;
            let (value, key) = Value::split(attribute.ty, cursor.key()).ok_or_else(malformed)?;
            if stands_for_record(attribute, (value, stored), |_| true)? {
                visit(stored.get(..stub).unwrap_or_default(), key, cursor.seq())?;
            }
        }
        cursor.next()?;
    }
    Ok(())
}
