//! A dataset: its records, queries, change feed and snapshots.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use esker_lsm::{Position, Stop};
use esker_model::condition::Expr;
use esker_model::definition::DatasetDef;
use esker_model::fields::Fields;
use esker_model::query::{Aggregation, Request};
use esker_model::schema::{Extracted, Extraction, IntoPath, Path, Value};
use esker_model::{AsKey, FromRecord, Key, KeyRange, PrimaryKey, Record, Update};
use serde::Serialize;

use super::aggregate::AggregateQuery;
use super::batch::WriteBatch;
use super::dataset_snapshot::DatasetSnapshot;
use super::query::{Query, Scan};
use super::reading::{check_key_type, get_many, scan};
use super::versions::{KeyVersions, ValueVersions};
use crate::consumer::{ChangeConsumer, Consumer};
use crate::error::Result;
use crate::feed::{Changes, ChangesFrom};
use crate::query;
use crate::record;
use crate::store::Handle;
use crate::write::IntoUpdate;

/// A dataset of an open store. Cheap to clone; usable from any number of threads.
///
/// `K` is the type of its keys in the program: an integer, a string, or [`Key`], which stands for
/// any. Reads return [`Record`]s, or values of the type `V` ([`Dataset::typed`]).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// use esker::{Database, DatasetDef, Error, Options};
/// use serde_json::json;
///
/// let db = Database::create_or_open(dir.path(), Options::default())?;
/// let users = db.create_dataset::<u64>("users", DatasetDef::key("id"))?;
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
pub struct Dataset<K = Key, V = Record<K>> {
    pub(crate) handle: Handle,
    key: PhantomData<fn() -> (K, V)>,
}

/// Makes the new state of a record of the previous one, which it gets as it is stored and as a `V`.
pub(super) type ChangeRecord<'c, V> = dyn FnMut(Option<&Record>, Option<&V>) -> Result<Update> + 'c;

impl<K, V> Clone for Dataset<K, V> {
    fn clone(&self) -> Dataset<K, V> {
        Dataset {
            handle: self.handle.clone(),
            key: PhantomData,
        }
    }
}

impl<K: PrimaryKey, V: FromRecord<K>> Dataset<K, V> {
    pub(super) fn new(handle: Handle) -> Result<Dataset<K, V>> {
        check_key_type::<K>(&handle.name(), handle.key_type())?;
        let key = PhantomData;
        Ok(Dataset { handle, key })
    }

    /// The same dataset, with reads that return values of the type `W`: records that do not fit it
    /// are [`crate::Error::BadInput`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, Dataset, DatasetDef, Index, Options, field};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, PartialEq, Debug)]
    /// struct User {
    ///     id: u64,
    ///     name: String,
    /// }
    ///
    /// let db = Database::create_or_open(dir.path(), Options::new())?;
    /// let def = DatasetDef::key("id").index("name", Index::lazy().string());
    /// let users: Dataset<u64, User> = db.create_dataset::<u64>("users", def)?.typed();
    /// users.put(&User { id: 7, name: "ann".to_string() })?;
    ///
    /// assert_eq!(users.get(7)?.map(|user| user.name), Some("ann".to_string()));
    /// for user in users.find(field("name").eq("ann")) {
    ///     assert_eq!(user?.id, 7);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn typed<W: FromRecord<K>>(&self) -> Dataset<K, W> {
        Dataset {
            handle: self.handle.clone(),
            key: PhantomData,
        }
    }

    /// A handle whose reads end with [`crate::Error::Cancelled`] when `stop` fires: gets, queries,
    /// scans, versions and [`Dataset::advise`], also on its snapshots. Writes, repairs and index
    /// changes are not affected. If this handle has a token already, the new one has `stop`
    /// instead.
    ///
    /// An iterator over an answer returns the error once and ends; a new query, without the token
    /// or with another, can run at once.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use std::time::Duration;
    ///
    /// use esker::{Database, DatasetDef, Error, Options, Stop};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let events = db.create_dataset::<u64>("events", DatasetDef::key("id"))?;
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
    pub fn with_stop(&self, stop: &Stop) -> Dataset<K, V> {
        Dataset {
            handle: Handle {
                stop: Some(stop.clone()),
                ..self.handle.clone()
            },
            key: PhantomData,
        }
    }

    /// Its current name: a dataset can be [renamed](crate::Database::rename_dataset) while handles
    /// are in use.
    pub fn name(&self) -> String {
        self.handle.name()
    }

    /// A number that no other dataset of its store has or had. It stays when the dataset is
    /// [renamed](crate::Database::rename_dataset).
    pub fn number(&self) -> u64 {
        self.handle.state.data.into()
    }

    /// Its definition. It does not contain an index that is still being built.
    pub fn def(&self) -> DatasetDef {
        self.handle.layout().stored.def()
    }

    /// Parses a key of this dataset.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the text is not a key of the dataset's type.
    pub fn parse_key(&self, text: &str) -> Result<Key> {
        Ok(Key::parse(self.handle.key_type(), text)?)
    }

    /// Extracts the key from the JSON of a record or of a patch.
    ///
    /// # Errors
    /// [`crate::Error::Record`] if the JSON has no key, or a key of another type.
    pub fn key_of(&self, json: impl AsRef<[u8]>) -> Result<K> {
        let stored = &self.handle.layout().stored;
        let extraction = Extraction::new((stored.key.clone(), stored.key_type), Vec::new());
        let mut extracted = Extracted::default();
        extraction.extract(json.as_ref(), &mut extracted)?;
        let key = Key::from_encoded(stored.key_type, extracted.key().to_vec());
        Ok(K::from_key(key)?)
    }

    /// Parses a value of the attribute at `path` as the attribute's type. If the path is not
    /// declared, text that looks like a number is a number, any other text a string.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the path is invalid, or the text is not a value of the type.
    pub fn parse_value(&self, path: impl IntoPath, text: &str) -> Result<Value> {
        Ok((self.handle.layout().shape).parse_value(&path.into_path()?, text)?)
    }

    /// An empty batch of writes to this dataset, which are applied together or not at all
    /// ([`Batch`](super::Batch)).
    pub fn batch(&self) -> WriteBatch<K> {
        WriteBatch::of_dataset(self.handle.clone())
    }

    /// Puts a record, anything that serialises as a JSON object; it replaces the record with the
    /// same key.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, Options};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Debug, PartialEq, Serialize, Deserialize)]
    /// struct User {
    ///     id: u64,
    ///     name: String,
    /// }
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let users = db.create_dataset::<u64>("users", DatasetDef::key("id"))?;
    /// users.put(&User { id: 1, name: "ann".into() })?;
    /// users.put_json(r#"{"id": 2, "name": "bob"}"#)?;
    ///
    /// let bob = users.get(2)?.unwrap();
    /// assert_eq!(bob.json(), br#"{"id": 2, "name": "bob"}"#);
    /// assert_eq!(bob.parse::<User>()?, User { id: 2, name: "bob".into() });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Record`] if the record does not fit the dataset's definition;
    /// [`crate::Error::BadInput`] if it cannot be serialised; also any write error.
    pub fn put(&self, record: &(impl Serialize + ?Sized)) -> Result<()> {
        let mut batch = self.batch();
        batch.put(record)?;
        batch.commit()
    }

    /// As [`Dataset::put`], for the text of a JSON object, which is stored byte for byte.
    ///
    /// # Errors
    /// As [`Dataset::put`].
    pub fn put_json(&self, json: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = self.batch();
        batch.put_json(json)?;
        batch.commit()
    }

    /// Puts a record whose key must be new.
    ///
    /// # Errors
    /// [`crate::Error::Exists`] if the key has a record; also as [`Dataset::put`].
    pub fn insert(&self, record: &(impl Serialize + ?Sized)) -> Result<()> {
        let mut batch = self.batch();
        batch.insert(record)?;
        batch.commit()
    }

    /// As [`Dataset::insert`], for the text of a JSON object, which is stored byte for byte.
    ///
    /// # Errors
    /// As [`Dataset::insert`].
    pub fn insert_json(&self, json: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = self.batch();
        batch.insert_json(json)?;
        batch.commit()
    }

    /// Deletes a record and returns it: exactly the record that this call deleted, even if others
    /// write at the same time. A record that is not a `V` is not deleted.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the record is not a `V`; also as [`Dataset::update`].
    pub fn delete(&self, key: impl AsKey<K>) -> Result<Option<V>> {
        self.update_from(key, &mut |_, _| Ok(Update::Delete))
    }

    /// Changes the record of `key` depending on its content, with the store's default durability,
    /// without losing concurrent writes. `change` receives the record, or `None`, and returns the
    /// new state. Returns the previous record.
    ///
    /// No lock is held while `change` runs. If another writer changes the record in the meantime,
    /// `update` waits until that write is visible, and calls `change` again with the new record.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let definition = DatasetDef::key("id");
    /// let counters = db.create_dataset::<String>("counters", definition)?;
    /// for _ in 0..3 {
    ///     counters.update("visits", |old| {
    ///         let count = old.map_or(0, |record| {
    ///             let json = serde_json::from_slice::<serde_json::Value>(record.json());
    ///             json.unwrap_or_default()["count"].as_u64().unwrap_or(0)
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
    /// [`crate::Error::Conflict`] if other writers changed the record a hundred times in a row;
    /// [`crate::Error::BadInput`] if the record is not a `V`, or the new record does not fit or has
    /// another key; also any read or write error.
    pub fn update<U: IntoUpdate>(
        &self,
        key: impl AsKey<K>,
        mut change: impl FnMut(Option<&V>) -> U,
    ) -> Result<Option<V>> {
        self.update_from(key, &mut |_, old| change(old).into_update())
    }

    /// As [`Dataset::update`], with the previous record as it is stored and as a `V`. Converts it
    /// before the write, so that one that does not fit `V` is left as it is.
    pub(super) fn update_from(
        &self,
        key: impl AsKey<K>,
        change: &mut ChangeRecord<'_, V>,
    ) -> Result<Option<V>> {
        let key = key.as_key(self.handle.key_type())?;
        let mut previous = None;
        self.handle.update(&key, &mut |old| {
            previous = old.cloned().map(record::valued).transpose()?;
            change(old, previous.as_ref())
        })?;
        Ok(previous)
    }

    /// The record of `key`.
    ///
    /// # Errors
    /// [`crate::Error::BadInput`] if the key is not of the dataset's type, or the record is not a
    /// `V`; also any read error.
    pub fn get(&self, key: impl AsKey<K>) -> Result<Option<V>> {
        let key = key.as_key(self.handle.key_type())?;
        self.handle.state.usage.count_get();
        let record = self.handle.find(key, self.handle.stop.as_ref())?;
        record.map(record::valued).transpose()
    }

    /// The records of several keys, each at the place of its key: as many calls of
    /// [`Dataset::get`], but the data is read once, in the order of the keys.
    ///
    /// # Errors
    /// As [`Dataset::get`].
    pub fn get_many<Q: AsKey<K>>(
        &self,
        keys: impl IntoIterator<Item = Q>,
    ) -> Result<Vec<Option<V>>> {
        get_many(&self.handle.snapshot(), keys)
    }

    /// A consistent view of the dataset, for several queries that belong together and for pages.
    pub fn snapshot(&self) -> DatasetSnapshot<K, V> {
        DatasetSnapshot::unchecked(self.handle.snapshot())
    }

    /// A query for the records that match the condition, as of now.
    pub fn find(&self, condition: Expr) -> Query<K, V> {
        self.query().filter(condition)
    }

    /// A query over the dataset as it is now.
    pub fn query(&self) -> Query<K, V> {
        self.request(Request::default())
    }

    /// A query from data, as of now: [`Query::request`] of a query on this store or another, or one
    /// that was read with serde.
    pub fn request(&self, request: Request) -> Query<K, V> {
        Query::new(query::ViewQuery::new(self.handle.snapshot(), request))
    }

    /// Aggregates of groups of records from data, as of now: [`AggregateQuery::aggregation`] of a
    /// query on this store or another, or one that was read with serde.
    pub fn aggregation(&self, aggregation: Aggregation) -> AggregateQuery {
        let query = query::ViewQuery::new(self.handle.snapshot(), Request::default());
        AggregateQuery::new(query, aggregation)
    }

    /// The records in a range of keys (`..` is all), ordered by key, as of now; [`Scan::rev`]
    /// reverses the order. If the range is invalid, the first item is the error.
    pub fn scan(&self, range: impl KeyRange<K>) -> Scan<K, V> {
        scan(self.handle.snapshot(), range)
    }

    /// [`DatasetSnapshot::versions`], as of now.
    pub fn versions(&self, key: impl AsKey<K>) -> KeyVersions<K> {
        KeyVersions::new(self.handle.snapshot(), key)
    }

    /// [`DatasetSnapshot::versions_with`], as of now.
    pub fn versions_with(&self, path: impl IntoPath, value: impl Into<String>) -> ValueVersions<K> {
        ValueVersions::new(self.handle.snapshot()).and(path, value)
    }

    /// The committed changes of the dataset after a position, in order, and then new changes as
    /// they are committed.
    ///
    /// The log contains the writes that are not in tables yet; older ones only if they are kept
    /// ([`crate::Options::keep_log`], [`Dataset::keep_changes_for`]). Costs writers nothing. To
    /// follow changes from a known state, take a snapshot, read it, and request the changes after
    /// [`DatasetSnapshot::seq`]:
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let users = db.create_dataset::<u64>("users", DatasetDef::key("id"))?;
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
    /// [`crate::Error::PositionExpired`] if the log no longer reaches back to the position;
    /// [`crate::Error::OtherHistory`] if the position belongs to another store or to a copy that
    /// has diverged, or lies after writes that a power cut destroyed.
    pub fn changes(&self, from: impl Into<ChangesFrom>) -> Result<Changes<K>> {
        Changes::new(self.handle.clone(), from.into())
    }

    /// The changes for the consumer `name` of this dataset. The store keeps the changes that the
    /// consumer has not [acknowledged](Consumer::done), through restarts: at most the newest
    /// `bytes` of log, counted over all datasets. The consumer continues where it stopped, or at
    /// `from`. A new consumer begins with the next change, and is registered durably when this
    /// returns. It misses no change, even if the process or the store stops at any time; after a
    /// failure it may receive changes twice. Also works in a process that only reads, beside the
    /// one that writes ([`crate::Database::open_reader`]).
    ///
    /// The same name in another dataset is another consumer. Dropping the dataset ends its
    /// consumers. A consumer that an earlier version registered for the whole store moves to the
    /// dataset that first uses its name.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let users = db.create_dataset::<u64>("users", DatasetDef::key("id"))?;
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
    /// [`crate::Error::Busy`] while another handle holds this consumer;
    /// [`crate::Error::PositionExpired`] and [`crate::Error::OtherHistory`] as for
    /// [`Dataset::changes`]; [`crate::Error::BadInput`] if the name is empty, longer than 255 bytes
    /// or has a 0 byte, or if there are 1024 consumers already; [`crate::Error::UnknownDataset`] if
    /// the dataset was dropped; also any write error.
    pub fn consume(
        &self,
        name: &str,
        from: Option<ChangesFrom>,
        bytes: u64,
    ) -> Result<Consumer<K>> {
        Consumer::new(self.handle.clone(), name, from, bytes)
    }

    /// Keeps the changes after `position` for the consumer `name` of this dataset, until another
    /// call or [`Consumer::done`] sets a later position: at most the newest `bytes` of log, counted
    /// over all datasets. Durable when it returns.
    ///
    /// # Errors
    /// As [`Dataset::consume`].
    pub fn keep_changes_for(&self, name: &str, position: Position, bytes: u64) -> Result<()> {
        self.handle.keep_changes_for(name, position, bytes)
    }

    /// Removes the consumer `name` of this dataset: the store no longer keeps changes for it.
    /// Returns false if it does not exist.
    ///
    /// # Errors
    /// [`crate::Error::Busy`] while a handle holds this consumer; [`crate::Error::ReadOnly`] if the
    /// handle only reads and an earlier version registered the consumer for the whole store; also
    /// any write error.
    pub fn release_changes(&self, name: &str) -> Result<bool> {
        self.handle.release_changes(name)
    }

    /// The consumer `name` of this dataset, or the consumer of that name that an earlier version
    /// registered for the whole store and that this one would continue.
    ///
    /// # Errors
    /// Any read error.
    pub fn change_consumer(&self, name: &str) -> Result<Option<ChangeConsumer>> {
        self.handle.change_consumer(name)
    }

    /// The notes that programs stored with the records, by name ([`WriteBatch::note`]).
    ///
    /// # Errors
    /// Any read error.
    pub fn notes(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        self.handle.notes()
    }

    /// Remarks about the records written through this store since the last call, each once: times
    /// without an offset, which are read as UTC; implausible times, such as milliseconds read as
    /// seconds; objects and positions that are not indexed.
    pub fn remarks(&self) -> Vec<String> {
        self.handle.state.remarks.take()
    }

    /// The fields of the records, as of now: [`DatasetSnapshot::fields`].
    ///
    /// # Errors
    /// Any read error.
    pub fn fields(&self) -> Result<Option<Fields>> {
        self.snapshot().fields()
    }

    /// For each indexed attribute, the number of records with a value at its path that is not
    /// indexed: an object, or a position out of range. Such records are stored, and conditions
    /// treat them as a scan does. Reads every record.
    ///
    /// # Errors
    /// Any read error.
    pub fn unindexed(&self) -> Result<BTreeMap<Path, u64>> {
        let view = self.handle.now();
        let layout = view.layout.clone();
        let counts = query::count_unindexed(view)?;
        debug_assert_eq!(counts.len(), layout.attributes.len());
        let counted = layout.attributes.iter().zip(counts);
        let unindexed =
            counted.filter(|(attribute, count)| attribute.kind.is_indexed() && *count > 0);
        Ok(unindexed
            .map(|(attribute, count)| (attribute.path.clone(), count))
            .collect())
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// Any write error.
    pub fn sync(&self) -> Result<()> {
        Ok(self.handle.store.group.sync()?)
    }
}
