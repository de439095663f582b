//! Batches of writes to one dataset: as [`crate::Batch`], without naming the dataset in each call.

use std::marker::PhantomData;

use esker_lsm::{Durability, Seq};
use esker_model::{AsKey, Key, PrimaryKey};
use serde::Serialize;

use super::batch_writes::BatchWrites;
use crate::error::Result;
use crate::store::Handle;
use crate::write::DatasetWrites;

/// Writes to one dataset that are applied together or not at all ([`crate::Dataset::batch`]). A
/// batch can be filled again after a commit, which saves allocations.
pub struct WriteBatch<K = Key> {
    writes: BatchWrites,
    dataset: Handle,
    key: PhantomData<fn() -> K>,
}

impl<K> WriteBatch<K> {
    /// The longest name of a note, in bytes.
    pub const MAX_NOTE_NAME: usize = DatasetWrites::MAX_NOTE_NAME;

    pub(crate) fn new(dataset: Handle) -> WriteBatch<K> {
        WriteBatch {
            writes: BatchWrites::new(dataset.shared.clone()),
            dataset,
            key: PhantomData,
        }
    }

    /// Sets how durable the batch is when it is committed. Default: [`crate::Options::durability`].
    pub fn durability(&mut self, durability: Durability) -> &mut WriteBatch<K> {
        self.writes.durability = durability;
        self
    }

    /// As [`crate::Batch::put`], with the same errors.
    pub fn put(&mut self, record: &(impl Serialize + ?Sized)) -> Result<()> {
        self.writes.put(&self.dataset, record)
    }

    /// As [`crate::Batch::put_json`], with the same errors.
    pub fn put_json(&mut self, json: impl AsRef<[u8]>) -> Result<()> {
        self.writes.put_json(&self.dataset, json.as_ref())
    }

    /// As [`crate::Batch::insert`], with the same errors.
    pub fn insert(&mut self, record: &(impl Serialize + ?Sized)) -> Result<()> {
        self.writes.insert(&self.dataset, record)
    }

    /// As [`crate::Batch::insert_json`], with the same errors.
    pub fn insert_json(&mut self, json: impl AsRef<[u8]>) -> Result<()> {
        self.writes.insert_json(&self.dataset, json.as_ref())
    }

    /// The writes to the dataset.
    fn dataset_writes(&mut self) -> Result<&mut DatasetWrites> {
        self.writes.of(&self.dataset)
    }

    /// Stores a note under a name, in the same commit as the records: after a crash both exist, or
    /// neither. Replaces an earlier note of the name; `None` deletes it. A batch may consist of
    /// notes only. [`crate::Dataset::notes`] reads them.
    ///
    /// The first note of a dataset creates a tree for notes, which is durable at once.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the name is empty or longer than 1,024 bytes;
    /// [`crate::Error::Busy`] for a dataset's first note while an index or the strategy of the
    /// dataset is being changed.
    pub fn note(&mut self, name: &str, value: Option<&[u8]>) -> Result<()> {
        self.dataset_writes()?.note(name, value)
    }

    /// The number of puts, inserts and deletions.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.writes.len() == 0
    }

    /// The bytes that the batch takes in the log.
    pub fn bytes(&self) -> usize {
        self.writes.bytes()
    }

    /// The encoded key ([`Key::as_bytes`]) of the last record that was put; empty if there is none.
    pub fn last_key(&self) -> &[u8] {
        self.writes.last_key()
    }

    /// Removes everything that was added.
    pub fn clear(&mut self) {
        self.writes.clear();
    }

    /// As [`crate::Batch::commit`], with the same errors.
    pub fn commit(&mut self) -> Result<()> {
        self.writes.commit()
    }
}

impl<K: PrimaryKey> WriteBatch<K> {
    /// As [`crate::Batch::delete`], with the same errors.
    pub fn delete(&mut self, key: impl AsKey<K>) -> Result<()> {
        let key = key.as_key(self.dataset.key_type())?;
        self.dataset_writes()?.delete(&key)
    }

    /// As [`crate::Batch::if_absent`], with the same errors.
    pub fn if_absent(&mut self, key: impl AsKey<K>) -> Result<()> {
        let key = key.as_key(self.dataset.key_type())?;
        self.dataset_writes()?.expect(&key, None);
        Ok(())
    }

    /// As [`crate::Batch::if_seq`], with the same errors.
    pub fn if_seq(&mut self, key: impl AsKey<K>, seq: Seq) -> Result<()> {
        let key = key.as_key(self.dataset.key_type())?;
        self.dataset_writes()?.expect(&key, Some(seq));
        Ok(())
    }
}
