//! The writes of batches of one dataset, which they do not name.

use std::marker::PhantomData;

use esker_lsm::Seq;
use esker_model::{AsKey, PrimaryKey};
use serde::Serialize;

use super::batch::{Batch, OneDataset, WriteBatch};
use super::batch_writes::BatchWrites;
use crate::error::Result;
use crate::store::Handle;
use crate::write::DatasetWrites;

/// Writes to the one dataset of the batch.
impl<K> Batch<OneDataset<K>> {
    /// The longest name of a note, in bytes.
    pub const MAX_NOTE_NAME: usize = DatasetWrites::MAX_NOTE_NAME;

    pub(crate) fn of_dataset(handle: Handle) -> WriteBatch<K> {
        Batch {
            writes: BatchWrites::new(handle.store.clone()),
            dataset: OneDataset {
                handle,
                key: PhantomData,
            },
        }
    }

    /// Adds a record, anything that serialises as a JSON object; it replaces the record with the
    /// same key.
    ///
    /// # Errors
    /// [`crate::Error::Record`] if the record does not fit the dataset's definition;
    /// [`crate::Error::BadInput`] if it cannot be serialised. An error leaves the batch unchanged.
    pub fn put(&mut self, record: &(impl Serialize + ?Sized)) -> Result<()> {
        self.writes.put(&self.dataset.handle, record)
    }

    /// As `put`, for the text of a JSON object, which is stored byte for byte.
    ///
    /// # Errors
    /// As `put`.
    pub fn put_json(&mut self, json: impl AsRef<[u8]>) -> Result<()> {
        self.writes.put_json(&self.dataset.handle, json.as_ref())
    }

    /// Adds a record whose key must be new when the batch is committed: neither the dataset nor
    /// another insert of the batch may have it. A `put` of the same key in the same batch is not
    /// checked.
    ///
    /// # Errors
    /// As `put`.
    pub fn insert(&mut self, record: &(impl Serialize + ?Sized)) -> Result<()> {
        self.writes.insert(&self.dataset.handle, record)
    }

    /// As `insert`, for the text of a JSON object, which is stored byte for byte.
    ///
    /// # Errors
    /// As `put`.
    pub fn insert_json(&mut self, json: impl AsRef<[u8]>) -> Result<()> {
        self.writes.insert_json(&self.dataset.handle, json.as_ref())
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
        let writes = self.writes.writes_to(&self.dataset.handle)?;
        writes.note(name, value)
    }

    /// The encoded key ([`crate::Key::as_bytes`]) of the last record that was put or inserted since
    /// the batch was empty, also if the dataset generated the key; no bytes if there is none.
    /// Refused records and deletions do not count.
    pub fn last_key(&self) -> &[u8] {
        self.writes.last_key()
    }
}

/// Writes to the one dataset of the batch, by key.
impl<K: PrimaryKey> Batch<OneDataset<K>> {
    /// Adds the deletion of a key, whether or not it has a record.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the key is not of the dataset's type.
    pub fn delete(&mut self, key: impl AsKey<K>) -> Result<()> {
        self.writes.delete(&self.dataset.handle, key)
    }

    /// Requires that `key` has no record at the commit, regardless of the batch's own writes.
    /// Otherwise the commit writes nothing and fails with [`crate::Error::Conflict`], which names
    /// the key ([`crate::Error::conflict`]). The commit returns this error only once the
    /// conflicting write is visible, so reading again at once returns the current record.
    ///
    /// # Errors
    /// As `delete`.
    pub fn if_absent(&mut self, key: impl AsKey<K>) -> Result<()> {
        self.writes.expect(&self.dataset.handle, key, None)
    }

    /// Requires that the record of `key` at the commit is the one that write `seq` put
    /// ([`crate::Record::seq`]), regardless of the batch's own writes. Otherwise the commit fails
    /// as described at `if_absent`.
    ///
    /// # Errors
    /// As `delete`.
    pub fn if_seq(&mut self, key: impl AsKey<K>, seq: Seq) -> Result<()> {
        self.writes.expect(&self.dataset.handle, key, Some(seq))
    }
}
