//! The keys of the location tree, in a dataset stored by location.

use esker_lsm::Seq;
use esker_model::record::RecordRef;

use crate::error::{Error, Result};
use crate::index::Attribute;

/// The key in the location tree of the record with this head: its point, then its primary key.
///
/// # Errors
/// Damage if the head is malformed, or has no point.
pub(super) fn location_key(attribute: &Attribute, key: &[u8], head: &[u8]) -> Result<Vec<u8>> {
    let record = RecordRef::parse(head);
    let point = record.and_then(|record| {
        let mut values = record.attributes();
        values.find_map(|(id, value)| (id == attribute.id).then_some(value))
    });
    let point = point.ok_or_else(|| {
        Error::damaged(format!(
            "a stored record has neither JSON nor a point at {}",
            attribute.path
        ))
    })?;
    Ok([point, key].concat())
}

/// The error of a head whose record is not in the location tree.
#[cold]
pub(super) fn missing(attribute: &Attribute, seq: Seq) -> Error {
    let path = &attribute.path;
    Error::damaged(format!(
        "the record of write {seq} is not stored at the location of its point at {path}"
    ))
}

/// The error of a head in a dataset that is not stored by location.
#[cold]
pub(super) fn no_location_tree() -> Error {
    Error::damaged("a stored record has no JSON, and the dataset is not stored by location")
}
