//! Batches of writes to any datasets of a store.

use std::sync::Arc;

use esker_lsm::{Durability, Seq};
use esker_model::{AsKey, PrimaryKey};
use serde::Serialize;

use super::batch_writes::BatchWrites;
use super::dataset::Dataset;
use crate::error::Result;
use crate::store::Store;

/// Writes to any datasets of a store that are applied together or not at all
/// ([`crate::Database::batch`]). A batch can be filled again after a commit, which saves
/// allocations.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// use esker::{Database, DatasetDef, Error, Options};
/// use serde_json::json;
///
/// let db = Database::create_or_open(dir.path(), Options::default())?;
/// let definition = DatasetDef::key("name");
/// let accounts = db.create_dataset::<String>("accounts", definition)?;
/// let transfers = db.create_dataset::<u64>("transfers", DatasetDef::key("id"))?;
///
/// let mut batch = db.batch();
/// batch.put(&accounts, &json!({"name": "ann", "balance": 70}))?;
/// batch.put(&accounts, &json!({"name": "bob", "balance": 30}))?;
/// batch.put(&transfers, &json!({"id": 1, "from": "ann", "to": "bob", "amount": 30}))?;
/// batch.commit()?;
///
/// // A failed condition keeps the whole batch from being written.
/// batch.if_absent(&transfers, 1)?;
/// batch.delete(&accounts, "ann")?;
/// assert!(batch.commit().unwrap_err().conflict().is_some());
/// assert!(accounts.get("ann")?.is_some());
/// # Ok(())
/// # }
/// ```
pub struct Batch(BatchWrites);

impl Batch {
    pub(crate) fn new(store: Arc<Store>) -> Batch {
        Batch(BatchWrites::new(store))
    }

    /// Sets how durable the batch is when it is committed. Default: [`crate::Options::durability`].
    pub fn durability(&mut self, durability: Durability) -> &mut Batch {
        self.0.durability = durability;
        self
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
        self.0.put(&dataset.handle, record)
    }

    /// As [`Batch::put`], for the text of a JSON object, which is stored byte for byte.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn put_json<K, V>(
        &mut self,
        dataset: &Dataset<K, V>,
        json: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.0.put_json(&dataset.handle, json.as_ref())
    }

    /// Adds a record whose key must be new when the batch is committed: neither the store nor
    /// another insert of the batch may have it. A `put` of the same key in the same batch is not
    /// checked.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn insert<K, V>(
        &mut self,
        dataset: &Dataset<K, V>,
        record: &(impl Serialize + ?Sized),
    ) -> Result<()> {
        self.0.insert(&dataset.handle, record)
    }

    /// As [`Batch::insert`], for the text of a JSON object, which is stored byte for byte.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn insert_json<K, V>(
        &mut self,
        dataset: &Dataset<K, V>,
        json: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.0.insert_json(&dataset.handle, json.as_ref())
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
        let key = key.as_key(dataset.handle.key_type())?;
        self.0.of(&dataset.handle)?.delete(&key)
    }

    /// Requires that `key` has no record at the commit, regardless of the batch's own writes.
    /// Otherwise the commit writes nothing and fails with [`crate::Error::Conflict`], which names
    /// the key ([`crate::Error::conflict`]). The commit returns this error only once the
    /// conflicting write is visible, so reading again at once returns the current record.
    ///
    /// # Errors
    /// As [`Batch::delete`].
    pub fn if_absent<K: PrimaryKey, V>(
        &mut self,
        dataset: &Dataset<K, V>,
        key: impl AsKey<K>,
    ) -> Result<()> {
        let key = key.as_key(dataset.handle.key_type())?;
        self.0.of(&dataset.handle)?.expect(&key, None);
        Ok(())
    }

    /// Requires that the record of `key` at the commit is the one that write `seq` put
    /// ([`crate::Record::seq`]), regardless of the batch's own writes. Otherwise the commit fails
    /// as described at [`Batch::if_absent`].
    ///
    /// # Errors
    /// As [`Batch::delete`].
    pub fn if_seq<K: PrimaryKey, V>(
        &mut self,
        dataset: &Dataset<K, V>,
        key: impl AsKey<K>,
        seq: Seq,
    ) -> Result<()> {
        let key = key.as_key(dataset.handle.key_type())?;
        self.0.of(&dataset.handle)?.expect(&key, Some(seq));
        Ok(())
    }

    /// The number of puts, inserts and deletions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that the batch takes in the log.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Removes everything that was added.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Writes the whole batch or nothing, and empties it.
    ///
    /// # Errors
    /// [`crate::Error::Exists`] if an inserted key has a record; [`crate::Error::Conflict`] if a
    /// condition does not hold; also any write error. After an error the batch is unchanged and
    /// none of it is visible; but if a sync failed, the batch may be in the log, and its writes may
    /// appear once the store is reopened.
    pub fn commit(&mut self) -> Result<()> {
        self.0.commit()
    }
}
