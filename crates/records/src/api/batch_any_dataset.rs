//! The writes of batches over several datasets of a store: each names its dataset.

use std::sync::Arc;

use esker_lsm::Seq;
use esker_model::{AsKey, PrimaryKey};
use serde::Serialize;

use super::batch::{AnyDataset, Batch};
use super::batch_writes::BatchWrites;
use super::dataset::Dataset;
use crate::error::Result;
use crate::store::Store;

/// Writes to any datasets of the store.
impl Batch<AnyDataset> {
    pub(crate) fn of_store(store: Arc<Store>) -> Batch {
        Batch {
            writes: BatchWrites::new(store),
            dataset: AnyDataset(()),
        }
    }

    /// Adds a record, anything that serialises as a JSON object; it replaces the record with the
    /// same key.
    ///
    /// # Errors
    /// [`crate::Error::Record`] if the record does not fit the dataset's definition;
    /// [`crate::Error::BadInput`] if it cannot be serialised, or the dataset belongs to another
    /// store. An error leaves the batch unchanged.
    pub fn put<K, V>(
        &mut self,
        dataset: &Dataset<K, V>,
        record: &(impl Serialize + ?Sized),
    ) -> Result<()> {
        self.writes.put(&dataset.handle, record)
    }

    /// As `put`, for the text of a JSON object, which is stored byte for byte.
    ///
    /// # Errors
    /// As `put`.
    pub fn put_json<K, V>(
        &mut self,
        dataset: &Dataset<K, V>,
        json: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.writes.put_json(&dataset.handle, json.as_ref())
    }

    /// Adds a record whose key must be new when the batch is committed: neither the store nor
    /// another insert of the batch may have it. A `put` of the same key in the same batch is not
    /// checked.
    ///
    /// # Errors
    /// As `put`.
    pub fn insert<K, V>(
        &mut self,
        dataset: &Dataset<K, V>,
        record: &(impl Serialize + ?Sized),
    ) -> Result<()> {
        self.writes.insert(&dataset.handle, record)
    }

    /// As `insert`, for the text of a JSON object, which is stored byte for byte.
    ///
    /// # Errors
    /// As `put`.
    pub fn insert_json<K, V>(
        &mut self,
        dataset: &Dataset<K, V>,
        json: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.writes.insert_json(&dataset.handle, json.as_ref())
    }

    /// Adds the deletion of a key, whether or not it has a record.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the key is not of the dataset's type, or the dataset belongs
    /// to another store.
    pub fn delete<K: PrimaryKey, V>(
        &mut self,
        dataset: &Dataset<K, V>,
        key: impl AsKey<K>,
    ) -> Result<()> {
        self.writes.delete(&dataset.handle, key)
    }

    /// Requires that `key` has no record at the commit, regardless of the batch's own writes.
    /// Otherwise the commit writes nothing and fails with [`crate::Error::Conflict`], which names
    /// the key ([`crate::Error::conflict`]). The commit returns this error only once the
    /// conflicting write is visible, so reading again at once returns the current record.
    ///
    /// # Errors
    /// As `delete`.
    pub fn if_absent<K: PrimaryKey, V>(
        &mut self,
        dataset: &Dataset<K, V>,
        key: impl AsKey<K>,
    ) -> Result<()> {
        self.writes.expect(&dataset.handle, key, None)
    }

    /// Requires that the record of `key` at the commit is the one that write `seq` put
    /// ([`crate::Record::seq`]), regardless of the batch's own writes. Otherwise the commit fails
    /// as described at `if_absent`.
    ///
    /// # Errors
    /// As `delete`.
    pub fn if_seq<K: PrimaryKey, V>(
        &mut self,
        dataset: &Dataset<K, V>,
        key: impl AsKey<K>,
        seq: Seq,
    ) -> Result<()> {
        self.writes.expect(&dataset.handle, key, Some(seq))
    }
}
