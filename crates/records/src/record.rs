//! Conversions of records, with this crate's errors.

use esker_lsm::{Seq, Slice};
use esker_model::record::RecordRef;
use esker_model::{FromRecord, Key, PrimaryKey, Record};
use serde::Serialize;

use crate::error::{Error, Result};

/// Parses a stored record: whole, or the head alone.
///
/// # Errors
/// Damage if it is malformed.
pub(crate) fn parse(stored: &[u8]) -> Result<RecordRef<'_>> {
    RecordRef::parse(stored).ok_or_else(|| Error::damaged("a stored record is malformed"))
}

/// The record that a read returns, from its stored form with the body.
///
/// # Errors
/// Damage if it is malformed, or has no body.
pub(crate) fn returned(key: Key, seq: Seq, stored: Slice) -> Result<Record> {
    Ok(Record::new(key, seq, stored)?)
}

/// The record with its key as a value of the program's type.
///
/// # Errors
/// If the key does not fit the type.
pub(crate) fn with_key_type<K: PrimaryKey>(record: Record) -> Result<Record<K>> {
    Ok(record.typed()?)
}

/// The value of type `V` that a typed read returns for a record.
///
/// # Errors
/// If the key or the record does not fit its type.
pub(crate) fn valued<K: PrimaryKey, V: FromRecord<K>>(record: Record) -> Result<V> {
    Ok(V::from_record(record.typed()?)?)
}

/// Appends a value of the program as the JSON of a record.
///
/// # Errors
/// If the value cannot be serialised.
pub(crate) fn serialise(record: &(impl Serialize + ?Sized), json: &mut Vec<u8>) -> Result<()> {
    Ok(esker_model::record::serialise(record, json)?)
}
