//! Records that reads return.

use lsm::{Seq, Slice};
use model::Key;
use model::record::RecordRef;

use crate::error::{Error, Result};

/// A record that a read returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    key: Key,
    seq: Seq,
    stored: Slice,
    body_at: usize,
}

impl Record {
    pub(crate) fn new(key: Key, seq: Seq, stored: Slice) -> Result<Record> {
        let body = RecordRef::body_of(&stored).map(<[u8]>::len);
        let body = body.ok_or_else(|| Error::damaged("a stored record is malformed"))?;
        Ok(Record {
            key,
            seq,
            body_at: stored.len() - body,
            stored,
        })
    }

    /// The JSON exactly as it was put.
    pub fn body(&self) -> &[u8] {
        self.stored.get(self.body_at..).unwrap_or_default()
    }

    /// Its primary key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The sequence number of the write that put it: larger is newer.
    pub fn seq(&self) -> Seq {
        self.seq
    }
}
