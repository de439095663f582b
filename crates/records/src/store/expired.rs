//! What has expired, as a snapshot sees it.
//!
//! A record tells from when on it is as if it had been deleted ([`RecordRef::expiry_of`]); whoever has the record asks [`hides`]. For answers that
//! read no records the dataset has a tree `d/expiry`: its keys are the time and the key of the record, its sequence numbers those of the records.
//! So all that has expired at a moment stands in front, and is a set of numbers ([`View::expired`]) that is probed beside the obsolete set: a record and
//! its index entries share one number, whatever the kind of the index.
//!
//! Expiry is *acted on* later, by a deletion like any other (`write/expire.rs`). So nothing but reads knows of time: for compactions, repairs, builds of
//! indexes, strategies and `check`, a record that has expired is there until then. Entries of `d/expiry` are timed, though they never expire by themselves:
//! by that the engine knows that snapshots of this store, named ones too, need a time.

use std::sync::Arc;

use esker_lsm::entry::Time;
use esker_lsm::{Cursor, Seq, SeqSet, Snapshot};
use esker_model::record::RecordRef;

use super::View;
use crate::error::{Error, Result};

/// Bytes that are read ahead.
const READAHEAD: usize = 64 << 10;

/// True when a stored record has expired for the snapshot.
#[inline]
pub(crate) fn hides(snapshot: &Snapshot, stored: &[u8]) -> bool {
    // No time: nothing in the store expires.
    snapshot.time() > 0
        && RecordRef::expiry_of(stored).is_some_and(|expires| snapshot.has_expired(expires))
}

/// The key of what expires.
pub(crate) fn expiry_key(expires: Time, key: &[u8]) -> Vec<u8> {
    [&expires.to_be_bytes(), key].concat()
}

/// What expires, and the write that gave it its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) expires: Time,
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Seq,
}

impl View {
    /// True when a stored record has expired.
    #[inline]
    pub(crate) fn hides(&self, stored: &[u8]) -> bool {
        hides(&self.snapshot, stored)
    }

    /// The writes of all records that have expired and were not deleted yet, and of some that were replaced since; `None` where there is none.
    pub(crate) fn expired(&self) -> Result<Option<Arc<SeqSet>>> {
        let mut expired = SeqSet::new();
        self.each_due(self.snapshot.time(), &mut |due| {
            expired.insert(due.seq);
            true
        })?;
        Ok((!expired.is_empty()).then(|| Arc::new(expired)))
    }

    /// Gives what has expired at a time, the earliest first, as long as `visit` wants more.
    pub(crate) fn each_due(&self, time: Time, visit: &mut dyn FnMut(Due) -> bool) -> Result<()> {
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
            if !visit(Due { expires, key, seq }) {
                break;
            }
            cursor.next()?;
        }
        self.dataset.shared.group.count(&cursor.cost());
        Ok(())
    }
}
