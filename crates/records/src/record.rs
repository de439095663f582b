//! Records with this crate's errors.

use esker_lsm::{Seq, Slice};
use esker_model::record::RecordRef;
use esker_model::{FromRecord, Key, PrimaryKey, Record};
use serde::Serialize;

use crate::error::{Error, Result};

/// A stored record.
pub(crate) fn parse(stored: &[u8]) -> Result<RecordRef<'_>> {
    RecordRef::parse(stored).ok_or_else(|| Error::damaged("a stored record is malformed"))
}

/// A record that a read returns.
pub(crate) fn returned(key: Key, seq: Seq, stored: Slice) -> Result<Record> {
    Ok(Record::new(key, seq, stored)?)
}

/// A record with its key as a type of the program.
pub(crate) fn typed<K: PrimaryKey>(record: Record) -> Result<Record<K>> {
    Ok(record.typed()?)
}

/// What a read of values of type `V` returns of a record.
pub(crate) fn valued<K: PrimaryKey, V: FromRecord<K>>(record: Record) -> Result<V> {
    Ok(V::from_record(record.typed()?)?)
}

/// Appends a record as JSON.
pub(crate) fn serialise(record: &(impl Serialize + ?Sized), json: &mut Vec<u8>) -> Result<()> {
    Ok(esker_model::record::serialise(record, json)?)
}
