//! A dataset at one moment: its records, queries and versions.

use std::marker::PhantomData;

use esker_lsm::{Seq, Stop};
use esker_model::condition::Expr;
use esker_model::definition::DatasetDef;
use esker_model::fields::Fields;
use esker_model::query::{Aggregation, Request};
use esker_model::schema::{IntoPath, Value};
use esker_model::{AsKey, FromRecord, Key, KeyRange, PrimaryKey, Record};

use super::aggregate::AggregateQuery;
use super::query::{Query, Scan};
use super::reading::{check_key_type, get_many, scan};
use super::versions::{KeyVersions, ValueVersions};
use crate::error::Result;
use crate::fields;
use crate::query;
use crate::record;
use crate::store::View;

/// A dataset at one moment. It keeps the files that it reads from being removed, so drop it once
/// its queries are done.
pub struct DatasetSnapshot<K = Key, V = Record<K>> {
    pub(super) view: View,
    key: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Clone for DatasetSnapshot<K, V> {
    fn clone(&self) -> DatasetSnapshot<K, V> {
        DatasetSnapshot {
            view: self.view.clone(),
            key: PhantomData,
        }
    }
}

impl<K: PrimaryKey, V: FromRecord<K>> DatasetSnapshot<K, V> {
    /// A dataset as `view` has it, whose keys are known to be of type `K`.
    pub(super) fn unchecked(view: View) -> DatasetSnapshot<K, V> {
        DatasetSnapshot {
            view,
            key: PhantomData,
        }
    }

    /// A dataset as `view` has it.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the dataset's keys are not of type `K`.
    pub(super) fn checked(view: View) -> Result<DatasetSnapshot<K, V>> {
        check_key_type::<K>(&view.dataset.name(), view.dataset.key_type())?;
        let key = PhantomData;
        Ok(DatasetSnapshot { view, key })
    }

    /// The same snapshot, with reads that return values of the type `W`
    /// ([`crate::Dataset::typed`]).
    pub fn typed<W: FromRecord<K>>(&self) -> DatasetSnapshot<K, W> {
        DatasetSnapshot {
            view: self.view.clone(),
            key: PhantomData,
        }
    }

    /// The same snapshot; its reads end with [`crate::Error::Cancelled`] when `stop` fires
    /// ([`crate::Dataset::with_stop`]).
    pub fn with_stop(&self, stop: &Stop) -> DatasetSnapshot<K, V> {
        let mut view = self.view.clone();
        view.snapshot = view.snapshot.with_stop(Some(stop.clone()));
        DatasetSnapshot::unchecked(view)
    }

    /// The dataset's current name; in a [kept snapshot](crate::Database::kept_snapshot) the name at
    /// that time.
    pub fn name(&self) -> String {
        self.view.dataset.name()
    }

    /// The dataset's definition at the time of the snapshot.
    pub fn def(&self) -> DatasetDef {
        self.view.layout.stored.def()
    }

    /// Parses a key of the dataset.
    ///
    /// # Errors
    /// As [`crate::Dataset::parse_key`].
    pub fn parse_key(&self, text: &str) -> Result<Key> {
        Ok(Key::parse(self.view.dataset.key_type(), text)?)
    }

    /// Parses a value of the attribute at `path` as [`crate::Dataset::parse_value`] does, by the
    /// definition at the time of the snapshot.
    ///
    /// # Errors
    /// As [`crate::Dataset::parse_value`].
    pub fn parse_value(&self, path: impl IntoPath, text: &str) -> Result<Value> {
        Ok((self.view.layout.shape).parse_value(&path.into_path()?, text)?)
    }

    /// The record of `key`.
    ///
    /// # Errors
    /// As [`crate::Dataset::get`].
    pub fn get(&self, key: impl AsKey<K>) -> Result<Option<V>> {
        let key = key.as_key(self.view.dataset.key_type())?;
        self.view.get(key)?.map(record::valued).transpose()
    }

    /// The records of several keys, each at the place of its key: as many calls of
    /// [`DatasetSnapshot::get`], but the data is read once, in the order of the keys.
    ///
    /// # Errors
    /// As [`DatasetSnapshot::get`].
    pub fn get_many<Q: AsKey<K>>(
        &self,
        keys: impl IntoIterator<Item = Q>,
    ) -> Result<Vec<Option<V>>> {
        get_many(&self.view, keys)
    }

    /// The fields of the records: each path that occurs, with the types of its values, of all
    /// records and not of a sample. `None` if they are unknown: a part of the records was written
    /// by a version without these statistics, and was not compacted since
    /// ([`crate::Database::compact`]).
    ///
    /// Fields of records that were replaced or deleted stay until the dataset is compacted. There
    /// are at most 1,000, 16 levels deep; if there are more, the result says so
    /// ([`Fields::has_more`](crate::schema::Fields::has_more)).
    ///
    /// Reads a block of each table, and the records that are not in tables yet, in memory.
    ///
    /// # Errors
    /// Any read error.
    pub fn fields(&self) -> Result<Option<Fields>> {
        fields::in_snapshot(&self.view.layout, &self.view.snapshot)
    }

    /// The sequence number of the last write that it sees.
    pub fn seq(&self) -> Seq {
        self.view.seq()
    }

    /// The latest versions of `key`, as of the snapshot or of an earlier write, newest first
    /// (DELI's ReadKey). Versions before a deletion are not returned, so there can be fewer than
    /// requested.
    ///
    /// A dataset that keeps `v` versions discards a version once the key was written (put or
    /// deleted) `v` more times. So the `m` latest versions as of a write are complete if at most
    /// `v - m` writes to the key are newer than that write; otherwise the oldest of them may be
    /// missing.
    ///
    /// Reads from the newest data to the oldest and stops when it has enough: at most `v` entries.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let def = DatasetDef::key("id").versions(3);
    /// let prices = db.create_dataset::<u64>("prices", def)?;
    /// for price in [10, 12, 11] {
    ///     prices.put_json(format!(r#"{{"id": 7, "price": {price}}}"#))?;
    /// }
    /// let latest = prices.versions(7).latest(2).read()?;
    /// assert_eq!(latest[0].json(), br#"{"id": 7, "price": 11}"#);
    /// let before = prices.versions(7).as_of(latest[1].seq()).read()?;
    /// assert_eq!(before[0].json(), br#"{"id": 7, "price": 12}"#);
    /// # Ok(())
    /// # }
    /// ```
    pub fn versions(&self, key: impl AsKey<K>) -> KeyVersions<K> {
        KeyVersions::new(self.view.clone(), key)
    }

    /// The versions of records that have a value at a path (or several, with
    /// [`ValueVersions::and`]) and are among the latest versions of their key, as
    /// [`DatasetSnapshot::versions`] returns them (DELI's ReadValue). Newest first, a page at a
    /// time.
    ///
    /// Matches the equal value. If the attribute's tokenizer is
    /// [`Tokenizer::Prefix`](crate::schema::Tokenizer::Prefix), matches every string that begins
    /// with `value`.
    ///
    /// Intersects the index entries of the attributes before it reads a record, in bounded memory;
    /// if no attribute has an index, it reads all records. Index entries that turn out to be
    /// obsolete are noted, so that later queries skip them (online repair).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, Index, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let def = DatasetDef::key("id")
    ///     .index("state", Index::recent().string())
    ///     .versions(2);
    /// let jobs = db.create_dataset::<u64>("jobs", def)?;
    /// for (id, state) in [(1, "ready"), (2, "ready"), (1, "done")] {
    ///     jobs.put_json(format!(r#"{{"id": {id}, "state": "{state}"}}"#))?;
    /// }
    /// // The jobs that are ready, and those that were ready one version ago.
    /// let ready = || jobs.versions_with("state", "ready");
    /// assert_eq!(ready().read()?.records.len(), 1);
    /// assert_eq!(ready().latest(2).read()?.records.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn versions_with(&self, path: impl IntoPath, value: impl Into<String>) -> ValueVersions<K> {
        ValueVersions::new(self.view.clone()).and(path, value)
    }

    /// A query for the records that match the condition.
    pub fn find(&self, condition: Expr) -> Query<K, V> {
        self.query().filter(condition)
    }

    /// A query.
    pub fn query(&self) -> Query<K, V> {
        self.request(Request::default())
    }

    /// A query from data ([`crate::Dataset::request`]).
    pub fn request(&self, request: Request) -> Query<K, V> {
        Query::new(query::ViewQuery::new(self.view.clone(), request))
    }

    /// Aggregates of groups of records from data ([`crate::Dataset::aggregation`]).
    pub fn aggregation(&self, aggregation: Aggregation) -> AggregateQuery {
        let query = query::ViewQuery::new(self.view.clone(), Request::default());
        AggregateQuery::new(query, aggregation)
    }

    /// The records in a range of keys (`..` is all), ordered by key; [`Scan::rev`] reverses the
    /// order. If the range is invalid, the first item is the error.
    pub fn scan(&self, range: impl KeyRange<K>) -> Scan<K, V> {
        scan(self.view.clone(), range)
    }
}
