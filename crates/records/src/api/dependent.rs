//! Writes that depend on current records: merge patches, and deletion by condition.

use std::ops::ControlFlow;

use esker_lsm::Seq;
use esker_model::condition::Expr;
use esker_model::schema::{Extracted, Extraction};
use esker_model::{AsKey, FromRecord, Key, PrimaryKey, Record, Update, merge_patch};
use serde::Serialize;

use super::dataset::Dataset;
use crate::error::{Error, Result};
use crate::query::Order;
use crate::record;

/// The records that [`Dataset::delete_where`] deletes per batch.
const DELETED_AT_ONCE: usize = 1000;

/// The maximum number of passes over records that other writers changed during the deletion.
const MAX_PASSES: usize = 100;

impl<K: PrimaryKey, V: FromRecord<K>> Dataset<K, V> {
    /// Applies a JSON merge patch (RFC 7396) to the record of `key`, with the store's default
    /// durability. Members that the patch does not name stay, null removes a member, objects are
    /// merged, and any other value replaces the old one. If the record does not exist, it is
    /// created from the patch, which must then contain the key. Returns the previous record.
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
    /// [`Error::BadInput`] if the patch is not an object; also as [`Dataset::update`].
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
        let old = self.typed::<Record<K>>().update(key, |old| {
            let merged = merge_patch(old.map(Record::json), patch);
            merged.map(Update::Put).map_err(Error::bad_input)
        })?;
        Ok(old.map(V::from_record).transpose()?)
    }

    /// Extracts the key from the JSON of a record or of a patch.
    ///
    /// # Errors
    /// [`Error::Record`] if the JSON has no key, or a key of another type.
    pub fn key_of(&self, json: impl AsRef<[u8]>) -> Result<K> {
        let stored = &self.handle.layout().stored;
        let extraction = Extraction::new((stored.key.clone(), stored.key_type), Vec::new());
        let mut extracted = Extracted::default();
        extraction.extract(json.as_ref(), &mut extracted)?;
        let key = Key::from_encoded(stored.key_type, extracted.key().to_vec());
        Ok(K::from_key(key)?)
    }

    /// Deletes every record that meets the condition, as of now, in batches of a thousand with the
    /// store's default durability. Returns the number of deleted records. `progress` receives the
    /// number so far after each batch, and can stop the deletion; the same call again deletes the
    /// rest. A record that another writer changes concurrently is deleted only if it still meets
    /// the condition.
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
    /// [`Error::Conflict`] if other writers changed the records a hundred times in a row; also any
    /// read or write error. Records deleted before the error stay deleted.
    pub fn delete_where(
        &self,
        condition: Expr,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let mut deletion = ConditionalDeletion {
            dataset: Dataset::new(self.handle.clone())?,
            waiting: Vec::new(),
            deleted: 0,
            was_overtaken: false,
        };
        for _ in 0..MAX_PASSES {
            deletion.was_overtaken = false;
            let mut ended = Ok(ControlFlow::Continue(()));
            let query = deletion.dataset.find(condition.clone());
            query.order(Order::Any).visit(&mut |record| {
                ended = deletion.add(&record, progress);
                match ended {
                    Ok(go_on) => go_on,
                    Err(_) => ControlFlow::Break(()),
                }
            })?;
            let go_on = match ended? {
                ControlFlow::Continue(()) => deletion.commit(progress)?,
                ControlFlow::Break(()) => ControlFlow::Break(()),
            };
            if go_on.is_break() || !deletion.was_overtaken {
                return Ok(deletion.deleted);
            }
        }
        Err(Error::overtaken(format!(
            "other writers changed the records to be deleted {MAX_PASSES} times in a row: try again"
        )))
    }
}

/// A deletion by condition in progress.
struct ConditionalDeletion {
    dataset: Dataset,
    /// Records that are to be deleted with the next batch.
    waiting: Vec<MatchedRecord>,
    /// The number of deleted records.
    deleted: u64,
    /// Other writers changed some of the records, which must be read again.
    was_overtaken: bool,
}

/// A record that met the condition.
struct MatchedRecord {
    key: Key,
    /// The write that put it.
    seq: Seq,
}

impl ConditionalDeletion {
    /// Takes a record that met the condition. Deletes the waiting records if they are enough for a
    /// batch, and returns whether `progress` wants to continue.
    fn add(
        &mut self,
        record: &Record,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        self.waiting.push(MatchedRecord {
            key: record.key().clone(),
            seq: record.seq(),
        });
        if self.waiting.len() >= DELETED_AT_ONCE {
            self.commit(progress)
        } else {
            Ok(ControlFlow::Continue(()))
        }
    }

    /// Deletes the waiting records, except those that other writers have changed. Returns whether
    /// `progress` wants to continue.
    fn commit(
        &mut self,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let mut batch = self.dataset.batch();
        while !self.waiting.is_empty() {
            for MatchedRecord { key, seq } in &self.waiting {
                batch.delete(key)?;
                batch.if_seq(key, *seq)?;
            }
            let Err(error) = batch.commit() else {
                self.deleted += self.waiting.len() as u64;
                self.waiting.clear();
                return Ok(progress(self.deleted));
            };
            let Some(overtaken) = error.conflict() else {
                return Err(error);
            };
            let mut unchanged = Vec::with_capacity(self.waiting.len());
            for matched in self.waiting.drain(..) {
                let now = self.dataset.get(&matched.key)?.map(|record| record.seq());
                if now == Some(matched.seq) && matched.key != *overtaken {
                    unchanged.push(matched);
                }
            }
            self.waiting = unchanged;
            self.was_overtaken = true;
            batch.clear();
        }
        Ok(ControlFlow::Continue(()))
    }
}
