//! A dataset at one moment, as its users hold it.

use lsm::{Seq, Stop};

use crate::error::{Error, Result};
use crate::query::{self, Page, Query, Scan, ValuePage};
use crate::record::Record;
use crate::store::View;
use model::Key;
use model::definition::DatasetDef;
use model::schema::{Path, Value};

/// A dataset at one moment. Keeps the files that it sees from being removed: hold it as long as its
/// queries take, not longer.
#[derive(Clone)]
pub struct DatasetSnapshot {
    view: View,
}

impl DatasetSnapshot {
    pub(crate) fn new(view: View) -> DatasetSnapshot {
        DatasetSnapshot { view }
    }

    /// The same picture, with reads that `stop` stops ([`Dataset::with_stop`]).
    pub fn with_stop(&self, stop: &Stop) -> DatasetSnapshot {
        DatasetSnapshot::new(self.view.clone().with_stop(Some(stop.clone())))
    }

    /// The dataset's name.
    pub fn name(&self) -> &str {
        self.view.dataset.name()
    }

    /// The dataset's definition, as it was then.
    pub fn def(&self) -> DatasetDef {
        self.view.layout.stored.def()
    }

    /// A key of the dataset from text.
    pub fn parse_key(&self, text: &str) -> Result<Key> {
        Key::parse(self.view.dataset.key_type(), text).map_err(Error::bad_input)
    }

    /// A value of the attribute at `path` from text, as [`Dataset::parse_value`] reads it, by the definition of then.
    pub fn parse_value(&self, path: &Path, text: &str) -> Result<Value> {
        self.view.layout.parse_value(path, text)
    }

    /// The primary key of one of its records, as text.
    pub fn key_text(&self, record: &Record) -> String {
        Key::display(self.view.dataset.key_type(), record.key())
    }

    /// The record of `key`.
    pub fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.view.dataset.state.usage.got();
        let cost = self.view.snapshot.cost();
        cost.check()?;
        let found = self
            .view
            .snapshot
            .get(self.view.layout.data, key.as_bytes(), &cost)?;
        self.view.dataset.store.group.count(&cost);
        found
            .map(|found| Record::new(key.as_bytes().to_vec(), found.seq, found.value))
            .transpose()
    }

    /// A query.
    pub fn query(&self) -> Query {
        Query::new(self.view.clone())
    }

    /// Records in key order, from one key to another (both included).
    pub fn scan(&self, from: Option<Key>, to: Option<Key>, reverse: bool) -> Result<Scan> {
        Scan::new(self.view.clone(), from, to, reverse)
    }

    /// The sequence number of the last write that it sees.
    pub fn seq(&self) -> Seq {
        self.view.seq()
    }

    /// The `m` latest versions of `key` that were written up to the write `ts` (or now), newest first. They end where the
    /// record was deleted; there are fewer where it was written less often.
    ///
    /// Of a dataset that keeps `v` versions, one is gone once the key was written (put or deleted) `v` more times. So the
    /// answer is all that there was when, of the writes to the key, at most `v - m` are newer than `ts`;
    /// else it may be the newer part of it.
    ///
    /// Goes from the newest component to the oldest and stops when it has enough: at most `v` entries are read.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, KeyType, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let def = DatasetDef::new("id".parse()?, KeyType::Int).versions(3);
    /// let prices = db.create_dataset("prices", def)?;
    /// for price in [10, 12, 11] {
    ///     prices.put(format!(r#"{{"id": 7, "price": {price}}}"#).as_bytes())?;
    /// }
    /// let key = prices.parse_key("7")?;
    /// let latest = prices.read_key(&key, None, 2)?;
    /// assert_eq!(latest[0].body(), br#"{"id": 7, "price": 11}"#);
    /// let before = prices.read_key(&key, Some(latest[1].seq()), 1)?;
    /// assert_eq!(before[0].body(), br#"{"id": 7, "price": 12}"#);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_key(&self, key: &Key, ts: Option<Seq>, m: usize) -> Result<Vec<Record>> {
        query::read_key(&self.view, key, ts, m)
    }

    /// [`DatasetSnapshot::read_values`] of one attribute.
    pub fn read_value(
        &self,
        path: &Path,
        token: &str,
        ts: Option<Seq>,
        m: usize,
        page: Page,
    ) -> Result<ValuePage> {
        self.read_values(&[(path, token)], ts, m, page)
    }

    /// The versions of records whose value at each path matches the token beside it, and which are among the `m` latest
    /// versions of their key up to the write `ts` (or now): those that [`DatasetSnapshot::read_key`] gives. Newest first.
    ///
    /// A token matches the value that it is, and where the attribute's tokenizer is [`Tokenizer::Prefix`] each
    /// string that begins with it.
    ///
    /// What the indexes of the attributes hold is intersected before a record is read, in bounded memory; where none has
    /// an index, all records are read. Index entries that turn out to be over are noted (online repair).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, IndexKind, KeyType, Options, Page, Path, Type};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let state: Path = "state".parse()?;
    /// let def = DatasetDef::new("id".parse()?, KeyType::Int)
    ///     .index(state.clone(), IndexKind::Recent, Type::String)
    ///     .versions(2);
    /// let jobs = db.create_dataset("jobs", def)?;
    /// for (id, state) in [(1, "ready"), (2, "ready"), (1, "done")] {
    ///     jobs.put(format!(r#"{{"id": {id}, "state": "{state}"}}"#).as_bytes())?;
    /// }
    /// // Who is ready, and who was, one version ago?
    /// assert_eq!(jobs.read_value(&state, "ready", None, 1, Page::newest(10))?.records.len(), 1);
    /// assert_eq!(jobs.read_value(&state, "ready", None, 2, Page::newest(10))?.records.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::ErrorKind::BadInput`]: no token, one that is not of the attribute's type, `m` or the limit is 0, or
    /// `ts` is not the moment of the page before.
    pub fn read_values(
        &self,
        tokens: &[(&Path, &str)],
        ts: Option<Seq>,
        m: usize,
        page: Page,
    ) -> Result<ValuePage> {
        query::read_values(&self.view, tokens, ts, m, page)
    }
}
