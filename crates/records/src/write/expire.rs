//! Acting on expiry: records that have expired are deleted, by batches like those of users.
//!
//! That is when expiry is a change: of a record that is still there, the one that expired, the feed gives one ([`crate::ChangeKind::Expired`]). It comes once
//! and in order, because it is a commit of the log, made only where under the writer lock the record is still of the write that expired. Of a record that was put
//! again or deleted before, by whoever came first, nothing is left to act on, and its entry among what expires is forgotten.
//!
//! It is done in the background, with the rest of maintenance, and by [`crate::Dataset::expire_now`]; by the time that the engine believes, so a clock that
//! jumped ahead deletes nothing. Cut off anywhere, it continues with what is left.

use std::collections::HashSet;

use esker_lsm::Cost;

use super::batch::Part;
use super::commit::commit;
use crate::error::{Error, Result};
use crate::store::{Due, Handle};

/// Records that are looked at together.
const TOGETHER: usize = 256;

/// How many records may be written by others while they are being deleted before the rest is left to the next call.
const MOST_OVERTAKEN: usize = 1000;

/// How often in a row the dataset may be changed meanwhile.
const MOST_CHANGES: usize = 100;

impl Handle {
    /// Deletes what has expired, as long as `go_on` says so. Returns how many records. A record that another writer replaces
    /// meanwhile is skipped: its entry among what expires is forgotten by a later call.
    pub(crate) fn expire(&self, go_on: &dyn Fn() -> bool) -> Result<u64> {
        let (mut expired, mut changes) = (0, 0);
        let mut overtaken = HashSet::new();
        while go_on() && overtaken.len() <= MOST_OVERTAKEN {
            match self.expire_some(&overtaken) {
                Ok(None) => break,
                Ok(Some(records)) => (expired, changes) = (expired + records, 0),
                Err(Error::Conflict { key: Some(key), .. }) => {
                    overtaken.insert(key.as_bytes().to_vec());
                }
                Err(Error::Conflict { .. }) if changes < MOST_CHANGES => changes += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(expired)
    }

    /// The same for the first of them, but for the keys in `skipped`; `None` where there is nothing.
    fn expire_some(&self, skipped: &HashSet<Vec<u8>>) -> Result<Option<u64>> {
        let now = self.now();
        now.snapshot.check_open()?;
        let Some(tree) = now.layout.expiry.filter(|_| !now.is_dropped()) else {
            return Ok(None);
        };
        let time = now.snapshot.time().min(self.shared.group.believed_time());
        let mut due: Vec<Due> = Vec::new();
        now.each_due(time, &mut |next| {
            if !skipped.contains(&next.key) {
                due.push(next);
            }
            due.len() < TOGETHER
        })?;
        if due.is_empty() {
            return Ok(None);
        }
        // By key; of a key those that were replaced may be there, too.
        due.sort_by(|a, b| a.key.cmp(&b.key));
        let mut keys: Vec<&[u8]> = due.iter().map(|due| due.key.as_slice()).collect();
        keys.dedup();
        let mut there = vec![None; keys.len()];
        let cost = Cost::default();
        now.snapshot
            .visit_batch(now.layout.data, &keys, &cost, &mut |at, found| {
                if let Some(slot) = there.get_mut(at) {
                    *slot = Some(found.seq);
                }
            })?;
        self.shared.group.count(&cost);
        let mut batch = Part::new(self.clone());
        batch.is_sweep = true;
        let mut replaced = Vec::new();
        let mut records = 0;
        for due in &due {
            let at = keys.binary_search(&due.key.as_slice()).ok();
            let seq = at.and_then(|at| there.get(at).copied()).flatten();
            if seq == Some(due.seq) {
                batch.delete_expired(tree, due)?;
                records += 1;
            } else {
                replaced.push((due, seq));
            }
        }
        for (due, seq) in replaced {
            batch.forget_expiry(tree, due, seq)?;
        }
        commit(std::slice::from_mut(&mut batch), self.shared.durability)?;
        Ok(Some(records))
    }
}
