//! Writes of one dataset, as a store takes them.

use esker::{Durability, Key, Result, Seq};

/// Writes that are applied together or not at all.
pub trait Batch: Send {
    /// Puts a record: the JSON of an object with the dataset's key.
    ///
    /// # Errors
    /// [`esker::Error::Record`] if it does not fit; the batch is as before then.
    fn put_json(&mut self, json: &[u8]) -> Result<()>;

    /// Puts a record whose key must not exist at the commit.
    ///
    /// # Errors
    /// As [`Batch::put_json`].
    fn insert_json(&mut self, json: &[u8]) -> Result<()>;

    /// Deletes the record of a key.
    ///
    /// # Errors
    /// [`esker::Error::BadInput`] for a key of another type.
    fn delete(&mut self, key: &Key) -> Result<()>;

    /// The commit fails unless the record of the key was put by the write `seq`, or, with `None`,
    /// does not exist.
    ///
    /// # Errors
    /// [`esker::Error::BadInput`] for a key of another type.
    fn expect(&mut self, key: &Key, seq: Option<Seq>) -> Result<()>;

    /// Stores a note under a name in the same commit; `None` deletes it.
    ///
    /// # Errors
    /// [`esker::Error::BadInput`] for a name that is empty or too long.
    fn note(&mut self, name: &str, value: Option<&[u8]>) -> Result<()>;

    /// The number of puts, inserts and deletions.
    fn len(&self) -> usize;

    /// True if there is nothing to write.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the batch.
    fn bytes(&self) -> usize;

    /// The encoded key of the last record that was put.
    fn last_key(&self) -> &[u8];

    /// Sets how durable the batch is when it is committed.
    fn durability(&mut self, durability: Durability);

    /// Applies the writes, and empties the batch.
    ///
    /// # Errors
    /// [`esker::Error::Exists`] and [`esker::Error::Conflict`] if an expectation is not met; any
    /// write error.
    fn commit(&mut self) -> Result<()>;
}
