//! Batches of writes, as their users fill them.

use std::sync::Arc;

use lsm::Durability;

use crate::background::Keeper;
use crate::error::Result;
use crate::store::Context;
use crate::write::Batch;
use model::Key;

/// Writes to one dataset that happen together or not at all. Can be filled again after a commit,
/// which saves allocations.
pub struct WriteBatch {
    /// Before the store, so that background maintenance ends first.
    keeper: Arc<Keeper>,
    batch: Batch,
}

impl WriteBatch {
    pub(super) fn new(dataset: Context, keeper: Arc<Keeper>) -> WriteBatch {
        WriteBatch {
            keeper,
            batch: Batch::new(dataset),
        }
    }

    /// Adds a record (a JSON object) that replaces the one of the same key. After an error the batch
    /// is as it was.
    pub fn put(&mut self, json: &[u8]) -> Result<()> {
        self.batch.put(json)
    }

    /// Adds a record whose key must be new when the batch is committed: in the store as it is then,
    /// and among the batch's other inserts. A `put` of the same key in the same batch is not seen.
    pub fn insert(&mut self, json: &[u8]) -> Result<()> {
        self.batch.insert(json)
    }

    /// Adds the deletion of a key, there or not.
    pub fn delete(&mut self, key: &Key) -> Result<()> {
        self.batch.delete(key)
    }

    /// Number of records put, inserted and deleted.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// True when there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.batch.len() == 0
    }

    /// Bytes that the batch will take in the log.
    pub fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    /// Forgets all that was added.
    pub fn clear(&mut self) {
        self.batch.clear();
    }

    /// Writes the batch, all of it or nothing, as durably as asked; then the batch is empty. After
    /// an error the batch is as it was, and nothing of it is visible; but where a sync failed it may be
    /// in the log, and there after the store was reopened.
    pub fn commit(&mut self, durability: Durability) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.batch.commit(durability)?;
        self.keeper.wrote(self.batch.store());
        Ok(())
    }
}
