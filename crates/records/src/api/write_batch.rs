//! Batches of writes to one dataset: as [`crate::Batch`], without naming the dataset in each call.

use std::marker::PhantomData;

use esker_lsm::{Durability, Seq};
use esker_model::{AsKey, Key, PrimaryKey};
use serde::Serialize;

use super::parts::Parts;
use crate::error::Result;
use crate::store::Handle;
use crate::write::{DatasetWrites, KeyRule};

/// Writes to one dataset that are applied together or not at all ([`crate::Dataset::batch`]). A
/// batch can be filled again after a commit, which saves allocations.
pub struct WriteBatch<K = Key> {
    parts: Parts,
    dataset: Handle,
    key: PhantomData<fn() -> K>,
}

impl<K> WriteBatch<K> {
    /// The longest name of a note, in bytes.
    pub const MAX_NOTE_NAME: usize = DatasetWrites::MAX_NOTE_NAME;

    pub(crate) fn new(dataset: Handle) -> WriteBatch<K> {
        WriteBatch {
            parts: Parts::new(dataset.shared.clone()),
            dataset,
            key: PhantomData,
        }
    }

    /// Sets how durable the batch is when it is committed. Default: [`crate::Options::durability`].
    pub fn durability(&mut self, durability: Durability) -> &mut WriteBatch<K> {
        self.parts.durability = durability;
        self
    }

    /// See [`crate::Batch::put`].
    pub fn put(&mut self, record: &(impl Serialize + ?Sized)) -> Result<()> {
        self.parts
            .serialised(&self.dataset, record, KeyRule::MayExist)
    }

    /// See [`crate::Batch::put_json`].
    pub fn put_json(&mut self, json: impl AsRef<[u8]>) -> Result<()> {
        self.part()?.put(json.as_ref(), KeyRule::MayExist)
    }

    /// See [`crate::Batch::insert`].
    pub fn insert(&mut self, record: &(impl Serialize + ?Sized)) -> Result<()> {
        self.parts
            .serialised(&self.dataset, record, KeyRule::MustBeNew)
    }

    /// See [`crate::Batch::insert_json`].
    pub fn insert_json(&mut self, json: impl AsRef<[u8]>) -> Result<()> {
        self.part()?.put(json.as_ref(), KeyRule::MustBeNew)
    }

    fn part(&mut self) -> Result<&mut DatasetWrites> {
        self.parts.part(&self.dataset)
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
        self.part()?.note(name, value)
    }

    /// The number of puts, inserts and deletions.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.parts.len() == 0
    }

    /// The bytes that the batch takes in the log.
    pub fn bytes(&self) -> usize {
        self.parts.bytes()
    }

    /// The encoded key ([`Key::as_bytes`]) of the last record that was put; empty if there is none.
    pub fn last_key(&self) -> &[u8] {
        self.parts.last_key()
    }

    /// Removes everything that was added.
    pub fn clear(&mut self) {
        self.parts.clear();
    }

    /// See [`crate::Batch::commit`].
    pub fn commit(&mut self) -> Result<()> {
        self.parts.commit()
    }
}

impl<K: PrimaryKey> WriteBatch<K> {
    /// See [`crate::Batch::delete`].
    pub fn delete(&mut self, key: impl AsKey<K>) -> Result<()> {
        let key = key.as_key(self.dataset.key_type())?;
        self.part()?.delete(&key)
    }

    /// See [`crate::Batch::if_absent`].
    pub fn if_absent(&mut self, key: impl AsKey<K>) -> Result<()> {
        let key = key.as_key(self.dataset.key_type())?;
        self.part()?.expect(&key, None);
        Ok(())
    }

    /// See [`crate::Batch::if_seq`].
    pub fn if_seq(&mut self, key: impl AsKey<K>, seq: Seq) -> Result<()> {
        let key = key.as_key(self.dataset.key_type())?;
        self.part()?.expect(&key, Some(seq));
        Ok(())
    }
}
