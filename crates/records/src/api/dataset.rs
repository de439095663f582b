//! A dataset: records by primary key, and by any attribute.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use lsm::{Position, Seq, Stop};
use model::condition::Expr;
use model::definition::DatasetDef;
use model::schema::{IntoPath, KeyType, Path, Type, Value};
use model::{AsKey, Key, KeyRange, PrimaryKey};
use serde::Serialize;

use super::batch::WriteBatch;
use super::query::{Query, Scan};
use super::versions::{KeyVersions, ValueVersions};
use crate::catalog::Layout;
use crate::consumer::{ChangeConsumer, Consumer};
use crate::error::{Error, Result};
use crate::feed::{Changes, ChangesFrom};
use crate::query;
use crate::record::Record;
use crate::store::{Handle, View};
use crate::write::{IntoUpdate, Update};

/// A dataset of an open store. Cheap to clone; usable from any number of threads.
///
/// `K` is what its keys are in the program: an integer, a string, or [`Key`], which is any of these.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// use esker::{Database, DatasetDef, Error, KeyType, Options};
/// use serde_json::json;
///
/// let db = Database::create_or_open(dir.path(), Options::default())?;
/// let users = db.create_dataset::<u64>("users", DatasetDef::new("id", KeyType::Int))?;
/// for id in 1..=9 {
///     users.put(&json!({"id": id}))?;
/// }
/// assert!(users.delete(7)?.is_some() && users.get(7)?.is_none());
/// let mut last = Vec::new();
/// for user in users.scan(5..).rev() {
///     last.push(*user?.key());
/// }
/// assert_eq!(last, [9, 8, 6, 5]);
/// assert!(matches!(db.dataset::<String>("users"), Err(Error::BadInput(_))));
/// # Ok(())
/// # }
/// ```
pub struct Dataset<K = Key> {
    pub(crate) handle: Handle,
    key: PhantomData<fn() -> K>,
}

impl<K> Clone for Dataset<K> {
    fn clone(&self) -> Dataset<K> {
        Dataset {
            handle: self.handle.clone(),
            key: PhantomData,
        }
    }
}

/// Refuses a type of keys that does not stand for those of a dataset.
pub(super) fn check_key_type<K: PrimaryKey>(name: &str, ty: KeyType) -> Result<()> {
    match K::KEY_TYPE {
        Some(wanted) if wanted != ty => Err(Error::bad_input(format!(
            "the keys of dataset `{name}` are of type {ty}, not {wanted}"
        ))),
        _ => Ok(()),
    }
}

impl<K: PrimaryKey> Dataset<K> {
    pub(super) fn new(handle: Handle) -> Result<Dataset<K>> {
        check_key_type::<K>(&handle.name(), handle.key_type())?;
        let key = PhantomData;
        Ok(Dataset { handle, key })
    }

    /// A handle whose reads `stop` stops, with [`Error::Cancelled`]: gets, queries, scans, versions and
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
    /// use esker::{Database, DatasetDef, Error, KeyType, Options, Stop};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let events = db.create_dataset::<u64>("events", DatasetDef::new("id", KeyType::Int))?;
    /// events.put_json(br#"{"id": 1}"#)?;
    ///
    /// let hurried = events.with_stop(&Stop::after(Duration::from_secs(60)));
    /// assert_eq!(hurried.query().count()?, 1);
    ///
    /// let stop = Stop::new();
    /// let waiting = events.with_stop(&stop);
    /// stop.cancel(); // From another thread, say.
    /// assert!(matches!(waiting.query().count(), Err(Error::Cancelled { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_stop(&self, stop: &Stop) -> Dataset<K> {
        Dataset {
            handle: Handle {
                stop: Some(stop.clone()),
                ..self.handle.clone()
            },
            key: PhantomData,
        }
    }

    /// Its name, as of now: a dataset can be [renamed](crate::Database::rename_dataset) while handles of it are in use.
    pub fn name(&self) -> String {
        self.handle.name()
    }

    /// Its definition. An index that is being built is not in it yet.
    pub fn def(&self) -> DatasetDef {
        self.handle.layout().stored.def()
    }

    /// A key of this dataset from text.
    pub fn parse_key(&self, text: &str) -> Result<Key> {
        Ok(Key::parse(self.handle.key_type(), text)?)
    }

    /// A value of the attribute at `path` from text, read as the attribute's type; where none is
    /// declared, as a number if it looks like one, else as a string.
    pub fn parse_value(&self, path: impl IntoPath, text: &str) -> Result<Value> {
        parse_value(&self.handle.layout(), &path.into_path()?, text)
    }

    /// A batch of writes that happen together or not at all.
    pub fn batch(&self) -> WriteBatch<K> {
        WriteBatch::new(self.handle.clone())
    }

    /// Puts a record, replacing the one of the same key: anything that serialises as a JSON object.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, KeyType, Options};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Debug, PartialEq, Serialize, Deserialize)]
    /// struct User {
    ///     id: u64,
    ///     name: String,
    /// }
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let users = db.create_dataset::<u64>("users", DatasetDef::new("id", KeyType::Int))?;
    /// users.put(&User { id: 1, name: "ann".into() })?;
    /// users.put_json(r#"{"id": 2, "name": "bob"}"#)?;
    ///
    /// let bob = users.get(2)?.unwrap();
    /// assert_eq!(bob.json(), br#"{"id": 2, "name": "bob"}"#);
    /// assert_eq!(bob.parse::<User>()?, User { id: 2, name: "bob".into() });
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(&self, record: &(impl Serialize + ?Sized)) -> Result<()> {
        let mut batch = self.batch();
        batch.put(record)?;
        batch.commit()
    }

    /// As [`Dataset::put`], of the text of a JSON object, which is kept byte for byte.
    pub fn put_json(&self, json: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = self.batch();
        batch.put_json(json)?;
        batch.commit()
    }

    /// Puts a record whose key must be new ([`Error::Exists`]).
    pub fn insert(&self, record: &(impl Serialize + ?Sized)) -> Result<()> {
        let mut batch = self.batch();
        batch.insert(record)?;
        batch.commit()
    }

    /// As [`Dataset::insert`], of the text of a JSON object.
    pub fn insert_json(&self, json: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = self.batch();
        batch.insert_json(json)?;
        batch.commit()
    }

    /// Deletes a record, and returns what was there: exactly what this call deleted, whoever else writes.
    ///
    /// # Errors
    /// As [`Dataset::update`].
    pub fn delete(&self, key: impl AsKey<K>) -> Result<Option<Record<K>>> {
        let key = key.as_key(self.handle.key_type())?;
        let old = self.handle.update(&key, &mut |_| Ok(Update::Delete))?;
        old.map(Record::typed).transpose()
    }

    /// Changes the record of `key` by what it is, as durably as the store does by default: no write of others in between is lost. `change` gets the record,
    /// `None` where there is none, and says what becomes of it. Returns the record that was there.
    ///
    /// No lock is held while it runs. If another writer changes the record meanwhile, `update` waits until that write is visible, and
    /// calls `change` again with the new record.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, KeyType, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let counters = db.create_dataset::<String>("counters", DatasetDef::new("id", KeyType::String))?;
    /// for _ in 0..3 {
    ///     counters.update("visits", |old| {
    ///         let count = old.map_or(0, |record| {
    ///             let json: serde_json::Value = serde_json::from_slice(record.json()).unwrap_or_default();
    ///             json["count"].as_u64().unwrap_or(0)
    ///         });
    ///         format!(r#"{{"id": "visits", "count": {}}}"#, count + 1)
    ///     })?;
    /// }
    /// assert_eq!(counters.get("visits")?.unwrap().json(), br#"{"id": "visits", "count": 3}"#);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`] if other writers changed the record a hundred times in a row; [`Error::BadInput`] for a record that does not fit, or
    /// has another key; what reads and writes fail with.
    pub fn update<U: IntoUpdate>(
        &self,
        key: impl AsKey<K>,
        mut change: impl FnMut(Option<&Record<K>>) -> U,
    ) -> Result<Option<Record<K>>> {
        let key = key.as_key(self.handle.key_type())?;
        let old = self.handle.update(&key, &mut |old| {
            let old = old.cloned().map(Record::typed).transpose()?;
            change(old.as_ref()).into_update()
        })?;
        old.map(Record::typed).transpose()
    }

    /// The record of `key`.
    pub fn get(&self, key: impl AsKey<K>) -> Result<Option<Record<K>>> {
        let key = key.as_key(self.handle.key_type())?;
        self.handle.current.usage.got();
        let found = self.handle.find(key, self.handle.stop.as_ref())?;
        found.map(Record::typed).transpose()
    }

    /// A consistent picture of the dataset, for several queries that belong together and for pages.
    pub fn snapshot(&self) -> DatasetSnapshot<K> {
        DatasetSnapshot {
            view: self.handle.snapshot(),
            key: PhantomData,
        }
    }

    /// A query for the records that match the condition, as of now.
    pub fn find(&self, condition: Expr) -> Query<K> {
        self.query().filter(condition)
    }

    /// A query over the dataset as it is now.
    pub fn query(&self) -> Query<K> {
        Query::new(query::Query::new(self.handle.snapshot()))
    }

    /// The records of a range of keys (`..` is all) in the order of the keys, as of now; in the other order with [`Scan::rev`].
    /// What is wrong with the range is the first item.
    pub fn scan(&self, range: impl KeyRange<K>) -> Scan<K> {
        scan(self.handle.snapshot(), range)
    }

    /// [`DatasetSnapshot::versions`], as of now.
    pub fn versions(&self, key: impl AsKey<K>) -> KeyVersions<K> {
        KeyVersions::new(self.handle.snapshot(), key)
    }

    /// [`DatasetSnapshot::versions_with`], as of now.
    pub fn versions_with(&self, path: impl IntoPath, token: impl Into<String>) -> ValueVersions<K> {
        ValueVersions::new(self.handle.snapshot()).and(path, token)
    }

    /// The committed changes of the dataset from a place on, in order, and then those to come.
    ///
    /// The log has what is in no table yet; what is older is there where it is kept ([`crate::Options::keep_log`],
    /// [`Dataset::keep_changes_for`]). Costs writers nothing. To follow from a known state on, take a snapshot, read it, and ask
    /// for the changes behind [`DatasetSnapshot::seq`]:
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, KeyType, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let users = db.create_dataset::<u64>("users", DatasetDef::new("id", KeyType::Int))?;
    /// users.put_json(br#"{"id": 1, "name": "ann"}"#)?;
    ///
    /// let snapshot = users.snapshot();
    /// let mut changes = users.changes(snapshot.seq())?;
    /// assert!(changes.next()?.is_none());
    /// users.put_json(br#"{"id": 2, "name": "bob"}"#)?;
    /// users.delete(1)?;
    ///
    /// let put = changes.next()?.unwrap();
    /// assert_eq!((*put.key(), put.record().is_some()), (2, true));
    /// let deleted = changes.next()?.unwrap();
    /// assert_eq!((*deleted.key(), deleted.record().is_some()), (1, false));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::PositionExpired`] when the log does not go back to the place; [`Error::OtherHistory`] for a place of another
    /// store, of a copy that went its own way, or behind writes that a power cut took.
    pub fn changes(&self, from: impl Into<ChangesFrom>) -> Result<Changes<K>> {
        Changes::new(self.handle.clone(), from.into())
    }

    /// The changes for the consumer `name` of this dataset, which is kept what it has not [dealt with](Consumer::done), through restarts: at
    /// most the newest `bytes` of log, counted over all datasets. It continues where it stopped, or at `from`; a new one begins with the next
    /// change, and is registered, durably, when this returns. It misses nothing, whenever it or the store ends; after a failure it may get
    /// changes twice. Works beside a process that writes, too ([`crate::Database::open_reader`]).
    ///
    /// The same name in another dataset is another consumer. Dropping the dataset ends its consumers. A consumer that an earlier version
    /// kept for the whole store becomes one of the dataset that first uses its name.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, KeyType, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let users = db.create_dataset::<u64>("users", DatasetDef::new("id", KeyType::Int))?;
    ///
    /// let reader = Database::open_reader(dir.path(), Options::default())?;
    /// let beside = reader.dataset::<u64>("users")?;
    /// let mut mailer = beside.consume("mailer", None, 1 << 30)?;
    /// assert!(mailer.is_new());
    /// users.put_json(br#"{"id": 1, "name": "ann"}"#)?;
    /// while let Some(change) = mailer.next()? {
    ///     assert_eq!(*change.key(), 1); // Send a mail.
    ///     mailer.done()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Busy`] while somebody else is this consumer; [`Error::PositionExpired`] and [`Error::OtherHistory`] as
    /// [`Dataset::changes`]; [`Error::BadInput`] for a name that is empty, over 255 bytes or has a 0 byte, and for more than 1024
    /// consumers; [`Error::UnknownDataset`] when the dataset was dropped; what a write fails with.
    pub fn consume(
        &self,
        name: &str,
        from: Option<ChangesFrom>,
        bytes: u64,
    ) -> Result<Consumer<K>> {
        Consumer::new(self.handle.clone(), name, from, bytes)
    }

    /// Keeps the changes behind `position` for the consumer `name` of this dataset, until this or [`Consumer::done`] notes a later
    /// place: at most the newest `bytes` of log, counted over all datasets. Durable when it returns.
    ///
    /// # Errors
    /// As [`Dataset::consume`].
    pub fn keep_changes_for(&self, name: &str, position: Position, bytes: u64) -> Result<()> {
        self.handle.keep_changes_for(name, position, bytes)
    }

    /// Forgets the consumer `name` of this dataset: nothing is kept for it any more. False when there is none.
    ///
    /// # Errors
    /// [`Error::Busy`] while somebody is this consumer; what a write fails with; [`Error::ReadOnly`] of a handle that only reads, for a
    /// consumer that an earlier version kept for the whole store.
    pub fn release_changes(&self, name: &str) -> Result<bool> {
        self.handle.release_changes(name)
    }

    /// The consumer `name` of this dataset, or the one of an earlier version, kept for the whole store, which it would continue.
    ///
    /// # Errors
    /// Files cannot be read.
    pub fn change_consumer(&self, name: &str) -> Result<Option<ChangeConsumer>> {
        self.handle.change_consumer(name)
    }

    /// What programs noted beside the records, by name ([`WriteBatch::note`]).
    ///
    /// # Errors
    /// What reading files gives.
    pub fn notes(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        self.handle.notes()
    }

    /// What may be said of the records that were written through this store since this was last called, each thing once: times without
    /// an offset, which are read as UTC; times that are hardly meant, as of milliseconds that are read as seconds; objects and
    /// positions that are not indexed.
    pub fn remarks(&self) -> Vec<String> {
        self.handle.current.remarks.take()
    }

    /// The indexed attributes at whose paths some records have something that is not indexed, and how many records: an object in the
    /// place of a value, or a position out of range. Such records are kept, and conditions find them as a scan does. Reads every
    /// record.
    ///
    /// # Errors
    /// Any read error.
    pub fn unindexed(&self) -> Result<BTreeMap<Path, u64>> {
        let view = self.handle.now();
        let layout = view.layout.clone();
        let counts = query::count_unindexed(view)?;
        let counted = layout.attributes.iter().zip(counts);
        let counted =
            counted.filter(|(attribute, count)| attribute.kind.is_indexed() && *count > 0);
        Ok(counted
            .map(|(attribute, count)| (attribute.path.clone(), count))
            .collect())
    }

    /// Makes everything that was written durable.
    pub fn sync(&self) -> Result<()> {
        Ok(self.handle.shared.group.sync()?)
    }
}

fn scan<K: PrimaryKey>(view: View, range: impl KeyRange<K>) -> Scan<K> {
    let bounds = range.bounds(view.dataset.key_type());
    let bounds = bounds.map_err(Error::from);
    Scan::new(bounds.and_then(|bounds| query::Scan::new(view, bounds)))
}

fn parse_value(layout: &Layout, path: &Path, text: &str) -> Result<Value> {
    let mut attributes = layout.attributes.iter();
    match attributes.find(|attribute| attribute.path == *path) {
        Some(attribute) => Value::parse(attribute.ty, text)
            .map_err(|why| Error::bad_input(format!("{path}: {why}"))),
        None => Ok((text.parse().map(Value::Int))
            .or_else(|_| Value::parse(Type::Float, text))
            .unwrap_or_else(|_| Value::String(text.to_string()))),
    }
}

/// A dataset at one moment. Keeps the files that it sees from being removed: hold it as long as its
/// queries take, not longer.
pub struct DatasetSnapshot<K = Key> {
    pub(super) view: View,
    key: PhantomData<fn() -> K>,
}

impl<K> Clone for DatasetSnapshot<K> {
    fn clone(&self) -> DatasetSnapshot<K> {
        DatasetSnapshot {
            view: self.view.clone(),
            key: PhantomData,
        }
    }
}

impl<K: PrimaryKey> DatasetSnapshot<K> {
    pub(super) fn new(view: View) -> Result<DatasetSnapshot<K>> {
        check_key_type::<K>(&view.dataset.name(), view.dataset.key_type())?;
        let key = PhantomData;
        Ok(DatasetSnapshot { view, key })
    }

    /// The same picture, with reads that `stop` stops ([`Dataset::with_stop`]).
    pub fn with_stop(&self, stop: &Stop) -> DatasetSnapshot<K> {
        let same = self.view.clone();
        DatasetSnapshot {
            view: View {
                snapshot: same.snapshot.with_stop(Some(stop.clone())),
                ..same
            },
            key: PhantomData,
        }
    }

    /// The dataset's name: as of now, and in a [kept snapshot](crate::Database::kept_snapshot) as it was.
    pub fn name(&self) -> String {
        self.view.dataset.name()
    }

    /// The dataset's definition, as it was then.
    pub fn def(&self) -> DatasetDef {
        self.view.layout.stored.def()
    }

    /// A key of the dataset from text.
    pub fn parse_key(&self, text: &str) -> Result<Key> {
        Ok(Key::parse(self.view.dataset.key_type(), text)?)
    }

    /// A value of the attribute at `path` from text, as [`Dataset::parse_value`] reads it, by the definition of then.
    pub fn parse_value(&self, path: impl IntoPath, text: &str) -> Result<Value> {
        parse_value(&self.view.layout, &path.into_path()?, text)
    }

    /// The record of `key`.
    pub fn get(&self, key: impl AsKey<K>) -> Result<Option<Record<K>>> {
        let key = key.as_key(self.view.dataset.key_type())?;
        self.view.get(key)?.map(Record::typed).transpose()
    }

    /// The sequence number of the last write that it sees.
    pub fn seq(&self) -> Seq {
        self.view.seq()
    }

    /// The latest versions of `key`, as of now or of an earlier write, newest first (DELI's ReadKey). They end where the
    /// record was deleted; there are fewer where it was written less often.
    ///
    /// Of a dataset that keeps `v` versions, one is gone once the key was written (put or deleted) `v` more times. So the
    /// answer to the `m` latest as of a write is all that there was when, of the writes to the key, at most `v - m` are newer;
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
    /// let def = DatasetDef::new("id", KeyType::Int).versions(3);
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

    /// The versions of records that have a value at a path (or several, with [`ValueVersions::and`]), and which are among the latest
    /// versions of their key, those that [`DatasetSnapshot::versions`] gives (DELI's ReadValue). Newest first, a page at a time.
    ///
    /// A token matches the value that it is, and where the attribute's tokenizer is [`Tokenizer::Prefix`](crate::Tokenizer::Prefix) each
    /// string that begins with it.
    ///
    /// What the indexes of the attributes hold is intersected before a record is read, in bounded memory; where none has
    /// an index, all records are read. Index entries that turn out to be obsolete are noted (online repair).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, Index, KeyType, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let def = DatasetDef::new("id", KeyType::Int)
    ///     .index("state", Index::recent().string())
    ///     .versions(2);
    /// let jobs = db.create_dataset::<u64>("jobs", def)?;
    /// for (id, state) in [(1, "ready"), (2, "ready"), (1, "done")] {
    ///     jobs.put_json(format!(r#"{{"id": {id}, "state": "{state}"}}"#))?;
    /// }
    /// // Who is ready, and who was, one version ago?
    /// let ready = || jobs.versions_with("state", "ready");
    /// assert_eq!(ready().read()?.records.len(), 1);
    /// assert_eq!(ready().latest(2).read()?.records.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn versions_with(&self, path: impl IntoPath, token: impl Into<String>) -> ValueVersions<K> {
        ValueVersions::new(self.view.clone()).and(path, token)
    }

    /// A query for the records that match the condition.
    pub fn find(&self, condition: Expr) -> Query<K> {
        self.query().filter(condition)
    }

    /// A query.
    pub fn query(&self) -> Query<K> {
        Query::new(query::Query::new(self.view.clone()))
    }

    /// The records of a range of keys (`..` is all) in the order of the keys; in the other order with [`Scan::rev`].
    /// What is wrong with the range is the first item.
    pub fn scan(&self, range: impl KeyRange<K>) -> Scan<K> {
        scan(self.view.clone(), range)
    }
}
