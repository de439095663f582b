//! Reading ahead in a scan by key: the scan fills a buffer with heads, whose bodies are then read
//! together, in location order.

use std::collections::VecDeque;

use esker_lsm::coding::Misplaced;
use esker_lsm::{Cost, LookupOptions, Seq, Slice, Snapshot};

use super::many::Bodies;
use crate::catalog::Layout;
use crate::error::Result;

/// A key and its stored record: whole, or the head alone.
pub(crate) struct StoredRecord {
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Seq,
    pub(crate) stored: Slice,
}

impl StoredRecord {
    /// A record of the newest entry of a key.
    pub(crate) fn new(key: &[u8], seq: Seq, stored: Slice) -> StoredRecord {
        let key = key.to_vec();
        StoredRecord { key, seq, stored }
    }
}

/// A buffer of a scan by key, whose records get their bodies together. Its capacity adapts to the
/// size of the records read before: about a mebibyte.
pub(crate) struct ReadAhead {
    records: VecDeque<StoredRecord>,
    /// The number of records that it holds when it is full.
    capacity: usize,
}

/// The approximate size of the records that are read ahead.
const BUFFER_BYTES: usize = 1 << 20;

/// The first capacity, in records, before their size is known.
const FIRST_CAPACITY: usize = 64;

/// The largest capacity, in records.
const MAX_CAPACITY: usize = 4096;

impl ReadAhead {
    /// An empty buffer.
    pub(crate) fn new() -> ReadAhead {
        ReadAhead {
            records: VecDeque::new(),
            capacity: FIRST_CAPACITY,
        }
    }

    /// True if the bodies should be read ([`ReadAhead::fill`]) before more records are added.
    pub(crate) fn is_full(&self) -> bool {
        self.records.len() >= self.capacity
    }

    /// Adds the newest entry of a key.
    pub(crate) fn push(&mut self, key: &[u8], seq: Seq, stored: Slice) {
        let record = StoredRecord::new(key, seq, stored.compact());
        self.records.push_back(record);
    }

    /// Takes the next record, in insertion order.
    pub(crate) fn pop(&mut self) -> Option<StoredRecord> {
        self.records.pop_front()
    }

    /// Reads the missing bodies of the records in the buffer, and adapts the capacity to their
    /// size.
    ///
    /// # Errors
    /// Any read error, and damage if a body is missing.
    pub(crate) fn fill(&mut self, layout: &Layout, snapshot: &Snapshot, cost: &Cost) -> Result<()> {
        let mut bodies = Bodies::new(layout, snapshot)?;
        for (at, record) in self.records.iter().enumerate() {
            if bodies.lacks(&record.stored) {
                bodies.add(at, &record.key, record.seq, &record.stored)?;
            }
        }
        let read = bodies.len();
        let mut bytes = 0;
        bodies.read(LookupOptions::default(), cost, &mut |at, record| {
            bytes += record.len();
            let waiting = self.records.get_mut(at).ok_or_else(|| Misplaced::here())?;
            waiting.stored = record.compact();
            Ok(())
        })?;
        // Nothing is known of their size if no body was missing.
        if let Some(each) = bytes.checked_div(read) {
            let fits = BUFFER_BYTES / (each + 1);
            self.capacity = fits.clamp(1, MAX_CAPACITY.min(self.capacity * 4));
        }
        Ok(())
    }
}
