//! Expired records, as a snapshot sees them.
//!
//! A stored record carries its expiry time (`RecordRef::expiry_of`), and reads of the record check
//! it with `has_expired`. For answers that read no records the dataset has a tree `d/expiry`: its
//! keys are expiry time and record key, its sequence numbers those of the records. So the entries
//! that have expired come first. Their numbers form a set ([`View::expired`]) that queries probe
//! beside the obsolete set: a record and its index entries share one number, under every index
//! type.
//!
//! An ordinary deletion removes the record later (`write/expire.rs`). Until then compactions,
//! repairs, index builds, strategies and `check` treat an expired record as present: only reads
//! compare times. Entries of `d/expiry` never expire by themselves, but are written as timed
//! entries: so the engine gives snapshots of this store, named ones included, a time.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker_lsm::entry::Time;
use esker_lsm::{Cursor, Seq, SeqSet};

use super::expiry::has_expired;
use super::handle::View;
use crate::error::{Error, Result};

/// Bytes that are read ahead.
const READAHEAD: usize = 64 << 10;

/// An entry of `d/expiry`: the record, its expiry time, and the write that set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExpiryEntry {
    pub(crate) expires: Time,
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Seq,
}

impl View {
    /// True if a stored record has expired.
    #[inline]
    pub(crate) fn has_expired(&self, stored: &[u8]) -> bool {
        has_expired(&self.snapshot, stored)
    }

    /// The writes of all records that have expired and are not deleted yet, and of some that were
    /// replaced since; `None` if there are none.
    pub(crate) fn expired(&self) -> Result<Option<Arc<SeqSet>>> {
        let mut expired = SeqSet::new();
        self.each_due(self.snapshot.time(), &mut |due| {
            expired.insert(due.seq);
            ControlFlow::Continue(())
        })?;
        Ok((!expired.is_empty()).then(|| Arc::new(expired)))
    }

    /// Visits the entries that have expired at `time`, earliest first, until `visit` breaks. At
    /// time 0 no record expires.
    ///
    /// # Errors
    /// Any read error, and damage if an entry is malformed.
    pub(crate) fn each_due(
        &self,
        time: Time,
        visit: &mut dyn FnMut(ExpiryEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        let Some(tree) = self.layout.expiry.filter(|_| time > 0) else {
            return Ok(());
        };
        let mut cursor = self.snapshot.cursor(tree, READAHEAD);
        cursor.seek_first()?;
        while cursor.valid() {
            let Some((expires, key)) = cursor.key().split_first_chunk() else {
                return Err(Error::damaged("the key of an expiry is malformed"));
            };
            let expires = Time::from_be_bytes(*expires);
            if expires > time {
                break;
            }
            self.snapshot.has_expired(expires);
            let (key, seq) = (key.to_vec(), cursor.seq());
            if visit(ExpiryEntry { expires, key, seq }).is_break() {
                break;
            }
            cursor.next()?;
        }
        self.dataset.store.group.count(&cursor.cost());
        Ok(())
    }
}
