//! Batches of writes: the type, and the operations that batches over several datasets
//! (`batch_any_dataset.rs`) and batches of one dataset (`batch_one_dataset.rs`) share.

use std::marker::PhantomData;

use esker_lsm::{Durability, Seq};
use esker_model::Key;

use super::batch_writes::BatchWrites;
use crate::error::Result;
use crate::store::Handle;

/// Writes that are applied together or not at all. A batch can be filled again after a commit,
/// which saves allocations.
///
/// The two kinds of batch have the same operations, and differ in the datasets that they write to:
///
/// - [`Database::batch`](crate::Database::batch) makes a batch for any datasets of the store, a
///   `Batch`. Each write names its dataset: `batch.put(&dataset, &record)`.
/// - [`Dataset::batch`](crate::Dataset::batch) makes a batch for that dataset, a
///   [`WriteBatch<K>`](WriteBatch). Its writes do not name it: `batch.put(&record)`. Only this kind
///   stores notes beside the records, and gives the key of the last one (`last_key`).
///
/// A batch over several datasets:
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
///
/// A batch of one dataset, which can also store a note beside the records:
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// use esker::{Database, DatasetDef, Options, WriteBatch};
/// use serde_json::json;
///
/// let db = Database::create_or_open(dir.path(), Options::default())?;
/// let visits = db.create_dataset::<u64>("visits", DatasetDef::key("id"))?;
///
/// let mut batch: WriteBatch<u64> = visits.batch();
/// for id in 1..=3 {
///     batch.put(&json!({"id": id, "user": "ann"}))?;
/// }
/// batch.delete(2)?;
/// batch.note("imported", Some(b"file 1, line 3"))?;
/// batch.commit()?;
///
/// assert_eq!(visits.scan(..).count(), 2);
/// assert_eq!(visits.notes()?["imported"], b"file 1, line 3");
/// # Ok(())
/// # }
/// ```
///
/// `D` is [`AnyDataset`] or [`OneDataset<K>`](OneDataset). A function for both kinds is generic:
///
/// ```
/// fn commit_if_large<D>(batch: &mut esker::Batch<D>) -> esker::Result<()> {
///     if batch.bytes() < 1 << 20 {
///         return Ok(());
///     }
///     batch.commit()
/// }
/// ```
pub struct Batch<D = AnyDataset> {
    pub(super) writes: BatchWrites,
    pub(super) dataset: D,
}

/// A batch of one dataset, whose writes do not name it ([`crate::Dataset::batch`]): the other kind
/// of [`Batch`].
pub type WriteBatch<K = Key> = Batch<OneDataset<K>>;

/// Marks a [`Batch`] that writes to any datasets of its store: each write names its dataset.
pub struct AnyDataset(pub(super) ());

/// The dataset that a [`WriteBatch`] writes to, which has keys of type `K`.
pub struct OneDataset<K> {
    pub(super) handle: Handle,
    pub(super) key: PhantomData<fn() -> K>,
}

/// Operations of both kinds of batch.
impl<D> Batch<D> {
    /// Sets how durable the batch is when it is committed. Default: [`crate::Options::durability`].
    pub fn durability(&mut self, durability: Durability) -> &mut Batch<D> {
        self.writes.durability = durability;
        self
    }

    /// The number of puts, inserts and deletions.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// True if there are no puts, inserts or deletions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that the batch takes in the log.
    pub fn bytes(&self) -> usize {
        self.writes.bytes()
    }

    /// Removes everything that was added.
    pub fn clear(&mut self) {
        self.writes.clear();
    }

    /// Writes the whole batch or nothing, and empties it.
    ///
    /// # Errors
    /// [`crate::Error::Exists`] if an inserted key has a record; [`crate::Error::Conflict`] if a
    /// condition does not hold; also any write error. After an error the batch is unchanged and
    /// none of it is visible; but if a sync failed, the batch may be in the log, and its writes may
    /// appear once the store is reopened.
    pub fn commit(&mut self) -> Result<()> {
        self.writes.commit()?;
        Ok(())
    }

    /// As [`Batch::commit`]; returns the sequence number of the batch's first write, which is that
    /// of its record if it has one record ([`crate::Record::seq`]). `None` for a batch without
    /// writes.
    ///
    /// # Errors
    /// As [`Batch::commit`].
    pub fn commit_seq(&mut self) -> Result<Option<Seq>> {
        self.writes.commit()
    }
}
