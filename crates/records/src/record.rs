//! Records that reads return.

use esker_lsm::{Seq, Slice};
use esker_model::record::RecordRef;
use esker_model::{Key, PrimaryKey};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A record that a read returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<K = Key> {
    key: K,
    seq: Seq,
    stored: Slice,
    body_at: usize,
}

impl Record {
    /// A record as it is stored; a stub is none.
    pub(crate) fn new(key: Key, seq: Seq, stored: Slice) -> Result<Record> {
        let body = RecordRef::body_of(&stored).map(<[u8]>::len);
        let body = body
            .filter(|body| *body > 0)
            .ok_or_else(|| Error::damaged("a stored record is malformed"))?;
        Ok(Record {
            key,
            seq,
            body_at: stored.len() - body,
            stored,
        })
    }

    /// With its key as a type of the program.
    pub(crate) fn typed<K: PrimaryKey>(self) -> Result<Record<K>> {
        Ok(Record {
            key: K::from_key(self.key)?,
            seq: self.seq,
            stored: self.stored,
            body_at: self.body_at,
        })
    }
}

impl<K> Record<K> {
    /// As it is stored: its extracted attributes, and its JSON.
    pub(crate) fn stored(&self) -> &[u8] {
        &self.stored
    }

    /// The JSON exactly as it was put.
    pub fn json(&self) -> &[u8] {
        self.stored.get(self.body_at..).unwrap_or_default()
    }

    /// The record as a value of the program. Floats are read as `serde_json` reads them: to the last bit with its feature
    /// `float_roundtrip`.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the JSON does not fit `T`.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        let parsed = serde_json::from_slice(self.json());
        parsed.map_err(|why| Error::bad_input(format!("the record of write {}: {why}", self.seq)))
    }

    /// Its primary key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The sequence number of the write that put it: larger is newer.
    pub fn seq(&self) -> Seq {
        self.seq
    }
}

/// A stored record.
pub(crate) fn parse(stored: &[u8]) -> Result<RecordRef<'_>> {
    RecordRef::parse(stored).ok_or_else(|| Error::damaged("a stored record is malformed"))
}

/// Appends a record as JSON.
pub(crate) fn serialise(record: &(impl Serialize + ?Sized), json: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(json, record)
        .map_err(|why| Error::bad_input(format!("a record that cannot be written as JSON: {why}")))
}
