//! Reads that a dataset and its snapshots share.

use esker_model::schema::KeyType;
use esker_model::{AsKey, FromRecord, KeyRange, PrimaryKey};

use super::query::Scan;
use crate::error::{Error, Result};
use crate::query;
use crate::record;
use crate::store::View;

/// Refuses a key type that the dataset does not have.
pub(super) fn check_key_type<K: PrimaryKey>(name: &str, ty: KeyType) -> Result<()> {
    match K::KEY_TYPE {
        Some(wanted) if wanted != ty => Err(Error::bad_input(format!(
            "the keys of dataset `{name}` are of type {ty}, not {wanted}"
        ))),
        _ => Ok(()),
    }
}

/// The records in a range of keys, ordered by key; an invalid range is the first item.
pub(super) fn scan<K: PrimaryKey, V: FromRecord<K>>(
    view: View,
    range: impl KeyRange<K>,
) -> Scan<K, V> {
    let bounds = range.bounds(view.dataset.key_type());
    let bounds = bounds.map_err(Error::from);
    Scan::new(bounds.and_then(|bounds| query::Scan::new(view, bounds)))
}

/// The records of several keys, each at the place of its key.
///
/// # Errors
/// [`Error::BadInput`] if a key is not of the dataset's type, or a record is not a `V`; also any
/// read error.
pub(super) fn get_many<K: PrimaryKey, V: FromRecord<K>, Q: AsKey<K>>(
    view: &View,
    keys: impl IntoIterator<Item = Q>,
) -> Result<Vec<Option<V>>> {
    let ty = view.dataset.key_type();
    let keys = keys.into_iter().map(|key| Ok(key.as_key(ty)?));
    let records = view.get_many(keys.collect::<Result<_>>()?)?;
    let values = records
        .into_iter()
        .map(|record| record.map(record::valued).transpose());
    values.collect()
}
