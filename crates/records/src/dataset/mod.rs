//! A dataset, as its users hold it: records by primary key, and by any attribute.

mod batch;
mod maintain;
mod snapshot;

use std::sync::Arc;

use lsm::{Cost, Durability, Seq, Stop};

pub use batch::WriteBatch;
pub use snapshot::DatasetSnapshot;

use crate::background::Keeper;
use crate::error::{Error, Result};
use crate::query::{Page, Query, Scan, ValuePage};
use crate::record::Record;
use crate::store::{Context, State, Store, View};
use model::Key;
use model::definition::DatasetDef;
use model::schema::{Path, Value};

/// A dataset of an open store. Cheap to clone; usable from any number of threads.
#[derive(Clone)]
pub struct Dataset {
    /// Before the store, so that background maintenance ends first.
    keeper: Arc<Keeper>,
    pub(crate) context: Context,
    /// What stops the reads that users ask for.
    stop: Option<Stop>,
}

impl Dataset {
    pub(crate) fn new(
        store: Arc<Store>,
        state: Arc<State>,
        keeper: Arc<Keeper>,
        stop: Option<Stop>,
    ) -> Dataset {
        Dataset {
            keeper,
            context: Context { store, state },
            stop,
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

    /// Its name.
    pub fn name(&self) -> &str {
        self.context.name()
    }

    /// Its definition. An index that is being built is not in it yet.
    pub fn def(&self) -> DatasetDef {
        self.context.layout().stored.def()
    }

    /// A key of this dataset from text.
    pub fn parse_key(&self, text: &str) -> Result<Key> {
        Key::parse(self.context.key_type(), text).map_err(Error::bad_input)
    }

    /// A value of the attribute at `path` from text, read as the attribute's type; where none is
    /// declared, as a number if it looks like one, else as a string.
    pub fn parse_value(&self, path: &Path, text: &str) -> Result<Value> {
        self.context.layout().parse_value(path, text)
    }

    /// A batch of writes that happen together or not at all.
    pub fn batch(&self) -> WriteBatch {
        WriteBatch::new(self.context.clone(), self.keeper.clone())
    }

    /// Puts a record (a JSON object), replacing the one of the same key.
    pub fn put(&self, json: &[u8]) -> Result<()> {
        let mut batch = self.batch();
        batch.put(json)?;
        batch.commit(self.context.store.durability)
    }

    /// Puts a record whose key must be new ([`crate::ErrorKind::Exists`]).
    pub fn insert(&self, json: &[u8]) -> Result<()> {
        let mut batch = self.batch();
        batch.insert(json)?;
        batch.commit(self.context.store.durability)
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
        self.context.state.usage.got();
        self.find(key, self.stop.as_ref())
    }

    fn find(&self, key: &Key, stop: Option<&Stop>) -> Result<Option<Record>> {
        let cost = Cost::until(stop);
        cost.check()?;
        let found = self.context.store.group.snapshot().get(
            self.context.state.data,
            key.as_bytes(),
            &cost,
        )?;
        self.context.store.group.count(&cost);
        found
            .map(|found| Record::new(key.as_bytes().to_vec(), found.seq, found.value))
            .transpose()
    }

    /// A consistent picture of the dataset, for several queries that belong together and for pages.
    pub fn snapshot(&self) -> DatasetSnapshot {
        DatasetSnapshot::new(self.view())
    }

    /// The same, for what is below.
    pub(crate) fn view(&self) -> View {
        self.context.now().with_stop(self.stop.clone())
    }

    /// A query over the dataset as it is now.
    pub fn query(&self) -> Query {
        Query::new(self.view())
    }

    /// Records in key order, from one key to another (both included), as of now.
    pub fn scan(&self, from: Option<Key>, to: Option<Key>, reverse: bool) -> Result<Scan> {
        Scan::new(self.view(), from, to, reverse)
    }

    /// Makes everything that was written durable.
    pub fn sync(&self) -> Result<()> {
        Ok(self.context.store.group.sync()?)
    }

    /// [`DatasetSnapshot::read_key`], as of now.
    pub fn read_key(&self, key: &Key, ts: Option<Seq>, m: usize) -> Result<Vec<Record>> {
        self.snapshot().read_key(key, ts, m)
    }

    /// [`DatasetSnapshot::read_values`] of one attribute, as of now.
    pub fn read_value(
        &self,
        path: &Path,
        token: &str,
        ts: Option<Seq>,
        m: usize,
        page: Page,
    ) -> Result<ValuePage> {
        self.snapshot().read_value(path, token, ts, m, page)
    }

    /// [`DatasetSnapshot::read_values`], as of now.
    pub fn read_values(
        &self,
        tokens: &[(&Path, &str)],
        ts: Option<Seq>,
        m: usize,
        page: Page,
    ) -> Result<ValuePage> {
        self.snapshot().read_values(tokens, ts, m, page)
    }
}

impl Record {
    /// The primary key as text.
    pub fn key_text(&self, dataset: &Dataset) -> String {
        Key::display(dataset.context.key_type(), self.key())
    }
}
