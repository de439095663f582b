//! A dataset: records by primary key, and by any attribute.

use std::sync::Arc;

use lsm::{Cost, Durability, Snapshot, Stop};

use crate::batch::WriteBatch;
use crate::database::Shared;
use crate::error::{Error, Result};
use crate::layout::{Current, Layout};
use crate::query::{Query, Scan};
use crate::record::Record;
use crate::upkeep::Keeper;
use model::Key;
use model::definition::DatasetDef;
use model::schema::{KeyType, Path, Type, Value};

/// A dataset of an open store. Cheap to clone; usable from any number of threads.
#[derive(Clone)]
pub struct Dataset {
    /// Before the store, so that the upkeep ends first. `None` where it is the upkeep's own.
    pub(crate) keeper: Option<Arc<Keeper>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) current: Arc<Current>,
    /// What stops the reads that users ask for.
    pub(crate) stop: Option<Stop>,
}

impl Dataset {
    pub(crate) fn new(
        shared: Arc<Shared>,
        current: Arc<Current>,
        keeper: Option<Arc<Keeper>>,
    ) -> Dataset {
        Dataset {
            keeper,
            shared,
            current,
            stop: None,
        }
    }

    /// A handle whose reads `stop` stops, with [`crate::ErrorKind::Cancelled`]: gets, queries, scans, versions and
    /// [`Dataset::advise`], and those of its snapshots. What writes, repairs and changes of indexes read is not affected.
    /// In the place of one that the handle had.
    ///
    /// An answer that is iterated gives the error once and ends; a new one, without the token or with another, can be asked for at
    /// once.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use std::time::Duration;
    ///
    /// use esker::{Database, DatasetDef, ErrorKind, KeyType, Options, Stop};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let events = db.create_dataset("events", DatasetDef::new("id".parse()?, KeyType::Int))?;
    /// events.put(br#"{"id": 1}"#)?;
    ///
    /// let hurried = events.with_stop(&Stop::after(Duration::from_secs(60)));
    /// assert_eq!(hurried.query().count()?.0, 1);
    ///
    /// let stop = Stop::new();
    /// let waiting = events.with_stop(&stop);
    /// stop.cancel(); // From another thread, say.
    /// assert_eq!(waiting.query().count().unwrap_err().kind(), ErrorKind::Cancelled);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_stop(&self, stop: &Stop) -> Dataset {
        Dataset {
            stop: Some(stop.clone()),
            ..self.clone()
        }
    }

    /// The layout as of now.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        self.current
            .layout_in(self.shared.group.snapshot().version())
    }

    pub(crate) fn key_type(&self) -> KeyType {
        self.current.key_type
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.current.name
    }

    /// Its definition. An index that is being built is not in it yet.
    pub fn def(&self) -> DatasetDef {
        self.layout().stored.def()
    }

    /// A key of this dataset from text.
    pub fn parse_key(&self, text: &str) -> Result<Key> {
        Key::parse(self.key_type(), text).map_err(Error::bad_input)
    }

    /// A value of the attribute at `path` from text, read as the attribute's type; where none is
    /// declared, as a number if it looks like one, else as a string.
    pub fn parse_value(&self, path: &Path, text: &str) -> Result<Value> {
        parse_value(&self.layout(), path, text)
    }

    /// A batch of writes that happen together or not at all.
    pub fn batch(&self) -> WriteBatch {
        WriteBatch::new(self.clone())
    }

    /// Puts a record (a JSON object), replacing the one of the same key.
    pub fn put(&self, json: &[u8]) -> Result<()> {
        let mut batch = self.batch();
        batch.put(json)?;
        batch.commit(self.shared.durability)
    }

    /// Puts a record whose key must be new ([`crate::ErrorKind::Exists`]).
    pub fn insert(&self, json: &[u8]) -> Result<()> {
        let mut batch = self.batch();
        batch.insert(json)?;
        batch.commit(self.shared.durability)
    }

    /// Deletes a record; tells whether it was there.
    pub fn delete(&self, key: &Key, durability: Durability) -> Result<bool> {
        if self.find(key, None)?.is_none() {
            return Ok(false);
        }
        let mut batch = self.batch();
        batch.delete(key)?;
        batch.commit(durability)?;
        Ok(true)
    }

    /// The record of `key`.
    pub fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.current.usage.got();
        self.find(key, self.stop.as_ref())
    }

    fn find(&self, key: &Key, stop: Option<&Stop>) -> Result<Option<Record>> {
        let cost = Cost::until(stop);
        cost.check()?;
        let found = self
            .shared
            .group
            .snapshot()
            .get(self.current.data, key.as_bytes(), &cost)?;
        self.shared.group.count(&cost);
        found
            .map(|found| Record::new(key.as_bytes().to_vec(), found.seq, found.value))
            .transpose()
    }

    /// A consistent picture of the dataset, for several queries that belong together and for pages.
    pub fn snapshot(&self) -> DatasetSnapshot {
        let now = self.now();
        DatasetSnapshot {
            snapshot: now.snapshot.with_stop(self.stop.clone()),
            ..now
        }
    }

    /// The same, with reads that nothing stops.
    pub(crate) fn now(&self) -> DatasetSnapshot {
        let snapshot = self.shared.group.snapshot();
        DatasetSnapshot {
            dataset: self.clone(),
            layout: self.current.layout_in(snapshot.version()),
            snapshot,
        }
    }

    /// A query over the dataset as it is now.
    pub fn query(&self) -> Query {
        Query::new(self.snapshot())
    }

    /// Records in key order, from one key to another (both included), as of now.
    pub fn scan(&self, from: Option<Key>, to: Option<Key>, reverse: bool) -> Result<Scan> {
        Scan::new(self.snapshot(), from, to, reverse)
    }

    /// Makes everything that was written durable.
    pub fn sync(&self) -> Result<()> {
        Ok(self.shared.group.sync()?)
    }
}

fn parse_value(layout: &Layout, path: &Path, text: &str) -> Result<Value> {
    let mut attributes = layout.attributes.iter();
    match attributes.find(|attribute| attribute.path == *path) {
        Some(attribute) => Value::parse(attribute.ty, text)
            .map_err(|why| Error::bad_input(format!("{path}: {why}"))),
        None => Ok(Value::parse(Type::Int, text)
            .or_else(|_| Value::parse(Type::Float, text))
            .unwrap_or_else(|_| Value::String(text.to_string()))),
    }
}

/// A dataset at one moment. Keeps the files that it sees from being removed: hold it as long as its
/// queries take, not longer.
#[derive(Clone)]
pub struct DatasetSnapshot {
    pub(crate) dataset: Dataset,
    pub(crate) layout: Arc<Layout>,
    pub(crate) snapshot: Snapshot,
}

impl DatasetSnapshot {
    /// The same picture, with reads that `stop` stops ([`Dataset::with_stop`]).
    pub fn with_stop(&self, stop: &Stop) -> DatasetSnapshot {
        let same = self.clone();
        DatasetSnapshot {
            snapshot: same.snapshot.with_stop(Some(stop.clone())),
            ..same
        }
    }

    /// The dataset's name.
    pub fn name(&self) -> &str {
        self.dataset.name()
    }

    /// The dataset's definition, as it was then.
    pub fn def(&self) -> DatasetDef {
        self.layout.stored.def()
    }

    /// A key of the dataset from text.
    pub fn parse_key(&self, text: &str) -> Result<Key> {
        self.dataset.parse_key(text)
    }

    /// A value of the attribute at `path` from text, as [`Dataset::parse_value`] reads it, by the definition of then.
    pub fn parse_value(&self, path: &Path, text: &str) -> Result<Value> {
        parse_value(&self.layout, path, text)
    }

    /// The primary key of one of its records, as text.
    pub fn key_text(&self, record: &Record) -> String {
        record.key_text(&self.dataset)
    }

    /// True when the dataset was dropped before the snapshot was taken.
    pub(crate) fn is_dropped(&self) -> bool {
        let trees = &self.snapshot.version().trees;
        !trees.contains_key(&self.layout.data)
    }

    /// The record of `key`.
    pub fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.dataset.current.usage.got();
        let cost = self.snapshot.cost();
        cost.check()?;
        let found = self.snapshot.get(self.layout.data, key.as_bytes(), &cost)?;
        self.dataset.shared.group.count(&cost);
        found
            .map(|found| Record::new(key.as_bytes().to_vec(), found.seq, found.value))
            .transpose()
    }

    /// A query.
    pub fn query(&self) -> Query {
        Query::new(self.clone())
    }

    /// Records in key order, from one key to another (both included).
    pub fn scan(&self, from: Option<Key>, to: Option<Key>, reverse: bool) -> Result<Scan> {
        Scan::new(self.clone(), from, to, reverse)
    }
}
