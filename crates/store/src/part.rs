//! The records of a part of a dataset, for copies and comparisons.

use esker::{Record, Result};

use crate::answer::Answer;

/// The records of a part of a dataset ([`Records::part`](crate::Records::part)).
pub trait Part: Iterator<Item = Result<Record>> + Send {
    /// A place at which [`Records::part`](crate::Records::part) continues, in another process too:
    /// the records before it were returned, and a few behind it may have been.
    fn mark(&self) -> Vec<u8>;
}

/// The records of a store with an order of keys: they are one part.
pub(crate) struct ByKey {
    records: Box<dyn Answer<Record>>,
    last: Vec<u8>,
}

impl ByKey {
    /// Records behind the key `last`.
    pub(crate) fn new(records: Box<dyn Answer<Record>>, last: Vec<u8>) -> ByKey {
        ByKey { records, last }
    }
}

impl Iterator for ByKey {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        let next = self.records.next();
        if let Some(Ok(record)) = &next {
            self.last = record.key().as_bytes().to_vec();
        }
        next
    }
}

impl Part for ByKey {
    fn mark(&self) -> Vec<u8> {
        self.last.clone()
    }
}
