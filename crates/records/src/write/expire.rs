//! The deletion of expired records, by ordinary batches.
//!
//! The deletion makes expiry a change: the feed gives one [`crate::ChangeKind::Expired`] for each
//! expired record that was not replaced before. It comes once and in order, because it is a commit
//! of the log, made only if under the writer lock the record is still the one that expired. If
//! another write replaced or deleted the record first, only its expiry entry is removed.
//!
//! Background maintenance and [`crate::Dataset::expire_now`] run it, by the engine's believed time:
//! a clock that jumped ahead deletes nothing. After an interruption it continues with the remaining
//! records.

use std::collections::HashSet;
use std::ops::ControlFlow;

use esker_lsm::Cost;
use esker_lsm::coding::{Misplaced, Own};

use super::batch::DatasetWrites;
use super::commit::commit;
use crate::error::{Error, Result};
use crate::store::{ExpiryEntry, Handle};

/// The largest number of expiry entries that one batch removes.
const ENTRIES_PER_BATCH: usize = 256;

/// The largest number of records that other writers may write while a call deletes them. Above it
/// the call ends, and leaves the remaining records to the next one.
const MAX_OVERTAKEN: usize = 1000;

/// The largest number of attempts in a row that may fail because the dataset's definition changed.
const MAX_CHANGES: usize = 100;

impl Handle {
    /// Deletes expired records while `may_continue` returns true; returns their number. A record
    /// that another writer replaces concurrently is skipped: a later call removes its expiry entry.
    pub(crate) fn expire(&self, may_continue: &dyn Fn() -> bool) -> Result<u64> {
        let mut expired = 0;
        // Attempts in a row that failed because the definition changed.
        let mut changes = 0;
        let mut overtaken = HashSet::new();
        while may_continue() && overtaken.len() <= MAX_OVERTAKEN {
            match self.expire_some(&overtaken) {
                Ok(None) => break,
                Ok(Some(records)) => {
                    expired += records;
                    changes = 0;
                }
                Err(Error::Conflict { key: Some(key), .. }) => {
                    overtaken.insert(key.as_bytes().to_vec());
                }
                Err(Error::Conflict { .. }) if changes < MAX_CHANGES => changes += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(expired)
    }

    /// Removes the first due expiry entries, except for those of the keys in `skipped`, and deletes
    /// the records that expired with them. Returns the number of deleted records; `None` if no
    /// other expiry entry is due.
    fn expire_some(&self, skipped: &HashSet<Vec<u8>>) -> Result<Option<u64>> {
        let now = self.now();
        now.snapshot.check_open()?;
        let Some(tree) = now.layout.expiry.filter(|_| !now.is_dropped()) else {
            return Ok(None);
        };
        let time = now.snapshot.time().min(self.store.group.believed_time());
        let mut due: Vec<ExpiryEntry> = Vec::new();
        now.each_due(time, &mut |next| {
            if !skipped.contains(&next.key) {
                due.push(next);
            }
            if due.len() < ENTRIES_PER_BATCH {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        if due.is_empty() {
            return Ok(None);
        }
        // By key. A key may also have expiry entries of replaced records.
        due.sort_by(|a, b| a.key.cmp(&b.key));
        let mut keys: Vec<&[u8]> = due.iter().map(|entry| entry.key.as_slice()).collect();
        keys.dedup();
        // The write of the record of each key.
        let mut current = vec![None; keys.len()];
        let cost = Cost::default();
        now.snapshot
            .visit_batch(now.layout.data, &keys, &cost, &mut |at, record| {
                *current.own_mut(at) = Some(record.seq);
            })?;
        self.store.group.count(&cost);
        let mut batch = DatasetWrites::new(self.clone());
        batch.is_sweep = true;
        let mut replaced = Vec::new();
        let mut records = 0;
        for entry in &due {
            let at = keys.binary_search(&entry.key.as_slice());
            let seq = *current.own(at.map_err(|_| Misplaced::here())?);
            if seq == Some(entry.seq) {
                batch.delete_expired(tree, entry)?;
                records += 1;
            } else {
                replaced.push((entry, seq));
            }
        }
        // After the deletions, whose ordinals among the written records are then their numbers in
        // the batch: each of these removals takes a number, too.
        for (entry, current_seq) in replaced {
            batch.forget_expiry(tree, entry, current_seq)?;
        }
        commit(std::slice::from_mut(&mut batch), self.store.durability)?;
        Ok(Some(records))
    }
}
