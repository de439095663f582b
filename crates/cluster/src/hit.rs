//! One answer of a query or a scan.

use esker_coding::{Seq, Slice};
use esker_model::Key;
use esker_model::record::Record;

use crate::bound::Bound;
use crate::error::Result;

/// One answer.
pub(crate) struct Hit {
    pub(crate) at: Seq,
    pub(crate) key: Vec<u8>,
    /// The stored form; empty for keys alone.
    pub(crate) stored: Vec<u8>,
}

impl Hit {
    pub(crate) fn record(self, bound: &Bound) -> Result<Record> {
        let key = Key::from_encoded(bound.key_type(), self.key);
        Ok(Record::new(key, self.at, Slice::from(self.stored))?)
    }
}
