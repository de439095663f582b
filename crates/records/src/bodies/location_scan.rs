//! A scan of the records of certain writes, in location order.

use std::ops::ControlFlow;

use esker_lsm::coding::Misplaced;
use esker_lsm::{Cost, Cursor, Kind, Seq, SeqSet, Slice, Snapshot};
use esker_model::schema::Value;

use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::stands_for_record;

/// Read-ahead of the scan.
const READAHEAD: usize = 256 << 10;

/// Receives the key, the number and the record of a write. A break ends the scan.
pub(crate) type VisitRecord<'v> =
    dyn FnMut(&[u8], Seq, &mut dyn FnMut() -> Slice) -> Result<ControlFlow<()>> + 'v;

/// Visits the records of the writes in `wanted`, each once, in location order, until `visit`
/// breaks. Reads the whole location tree up to the last of them. Only for datasets that are stored
/// by location.
///
/// # Errors
/// Damage if a record is missing; any read error; any error of `visit`.
pub(crate) fn scan_by_location(
    layout: &Layout,
    snapshot: &Snapshot,
    wanted: &SeqSet,
    cost: &Cost,
    visit: &mut VisitRecord<'_>,
) -> Result<()> {
    let attribute = layout.clustered().ok_or_else(|| Misplaced::here())?;
    let mut cursor = snapshot.entries(attribute.index_tree()?, READAHEAD);
    cursor.seek_first()?;
    let mut left = wanted.len();
    let mut is_ended = false;
    while cursor.valid() && left > 0 && !is_ended {
        if cursor.kind() == Kind::Put && wanted.contains(cursor.seq()) {
            let split = Value::split(attribute.ty, cursor.key());
            let malformed = || Error::damaged("the tree of records by location: malformed key");
            let (value, key) = split.ok_or_else(malformed)?;
            if stands_for_record(attribute, value, cursor.value(), |_| true)? {
                left -= 1;
                is_ended = visit(key, cursor.seq(), &mut || cursor.value_slice())?.is_break();
            }
        }
        cursor.next()?;
    }
    cost.absorb(&cursor.cost());
    if left > 0 && !is_ended {
        return Err(Error::damaged(format!(
            "{left} records are not stored at the location of their points at {}",
            attribute.path
        )));
    }
    Ok(())
}
