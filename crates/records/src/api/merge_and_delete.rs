//! Writes to a dataset that depend on its current records: merge patches, and deletion by
//! condition.

use std::ops::ControlFlow;

use esker_model::condition::Expr;
use esker_model::{AsKey, FromRecord, PrimaryKey, Record, Update, merge_patch};
use serde::Serialize;

use super::dataset::Dataset;
use crate::error::{Error, Result};
use crate::record;

impl<K: PrimaryKey, V: FromRecord<K>> Dataset<K, V> {
    /// Applies a JSON merge patch (RFC 7396) to the record of `key`, with the store's default
    /// durability. Members that the patch does not name stay, null removes a member, objects are
    /// merged, and any other value replaces the old one. If the record does not exist, it is
    /// created from the patch, which must then contain the key. Returns the previous record; if it
    /// is not a `V`, nothing is written.
    ///
    /// Concurrent writes are not lost ([`Dataset::update`]).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, Options};
    /// use serde_json::json;
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let users = db.create_dataset::<u64>("users", DatasetDef::key("id"))?;
    /// users.put(&json!({"id": 1, "name": "ann", "at": {"city": "Oslo", "zip": "0150"}}))?;
    /// users.merge(1, &json!({"at": {"zip": null}, "ms": 12}))?;
    /// let merged = users.get(1)?.unwrap().parse::<serde_json::Value>()?;
    /// assert_eq!(merged, json!({"id": 1, "name": "ann", "at": {"city": "Oslo"}, "ms": 12}));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadInput`] if the patch is not an object, or the previous record is not a `V`; also
    /// as [`Dataset::update`].
    pub fn merge(
        &self,
        key: impl AsKey<K>,
        patch: &(impl Serialize + ?Sized),
    ) -> Result<Option<V>> {
        let mut json = Vec::new();
        record::serialise(patch, &mut json)?;
        self.merge_json(key, json)
    }

    /// As [`Dataset::merge`], for a patch as text. Members that the patch does not name keep their
    /// exact bytes.
    ///
    /// # Errors
    /// As [`Dataset::merge`].
    pub fn merge_json(&self, key: impl AsKey<K>, patch: impl AsRef<[u8]>) -> Result<Option<V>> {
        let patch = patch.as_ref();
        if !patch.trim_ascii_start().starts_with(b"{") {
            return Err(Error::bad_input(
                "a merge patch of a record must be a JSON object",
            ));
        }
        self.update_from(key, &mut |old, _| {
            let merged = merge_patch(old.map(Record::json), patch);
            merged.map(Update::Put).map_err(Error::bad_input)
        })
    }

    /// Deletes every record that meets the condition when the call begins, in batches of a thousand
    /// with the store's default durability. Returns the number of deleted records. `progress`
    /// receives the number so far after each batch, and can stop the deletion; the same call again
    /// deletes the rest. A record that another writer replaces meanwhile is deleted only if the new
    /// one meets the condition, too. Records that others add stay, and so do those that begin to
    /// meet the condition later.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use std::ops::ControlFlow;
    ///
    /// use esker::{Database, DatasetDef, Options, field};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let events = db.create_dataset::<u64>("events", DatasetDef::key("id"))?;
    /// for id in 0..100 {
    ///     events.put(&serde_json::json!({"id": id, "n": id % 7}))?;
    /// }
    /// let deleted = events.delete_where(field("n").eq(3), &mut |_| ControlFlow::Continue(()))?;
    /// assert_eq!((deleted, events.query().count()?), (14, 86));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`] if other writers changed records of a batch a hundred times in a row;
    /// also any read or write error. Records deleted before the error stay deleted.
    pub fn delete_where(
        &self,
        condition: Expr,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        self.handle.delete_where(condition, progress)
    }
}
