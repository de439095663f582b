//! Named snapshots: the contents of a store at one moment, kept under a name through restarts and
//! in backups, and queried like other snapshots. The engine keeps them
//! ([`esker_lsm::Group::keep_snapshot`]).
//!
//! A kept snapshot has the datasets of its time, even if they were changed or dropped since. So
//! each dataset is read with the layout of the snapshot's version, and through its own
//! [`DatasetState`]: the notes and counts of queries on it do not affect the present dataset.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_lsm::{NamedSnapshot, Seq, Snapshot, Stop};
use esker_model::PrimaryKey;

use super::{Database, DatasetSnapshot};
use crate::error::{Error, Result};
use crate::store::{DatasetState, Handle, Store, View, datasets_in};
use crate::telemetry::Usage;

impl Database {
    /// Keeps the current contents of the store as a snapshot called `name` (1 to 64 letters,
    /// digits, `-`, `_` and `.`) until it is [dropped](Database::drop_snapshot), through restarts
    /// and in backups. Everything in it is durable when this returns. Returns the number of the
    /// last write that it contains. Costs a flush, and, as long as it is kept, the space of the
    /// data replaced since.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use esker::{Database, DatasetDef, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let events = db.create_dataset::<u64>("events", DatasetDef::key("id"))?;
    /// events.put_json(br#"{"id":1,"text":"old"}"#)?;
    /// db.keep_snapshot("monday")?;
    /// events.put_json(br#"{"id":1,"text":"new"}"#)?;
    ///
    /// let monday = db.kept_snapshot("monday")?.dataset::<u64>("events")?;
    /// let record = monday.get(1)?.unwrap();
    /// assert_eq!(record.json(), br#"{"id":1,"text":"old"}"#);
    /// db.drop_snapshot("monday")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`] if there is a snapshot of this name; [`Error::BadInput`] if the name is
    /// invalid, or if there are 1024 snapshots already; also any write error.
    pub fn keep_snapshot(&self, name: &str) -> Result<Seq> {
        check_name(name)?;
        Ok(self.store.group.keep_snapshot(name)?)
    }

    /// Drops the snapshot `name`, and frees the space that only it needed.
    ///
    /// # Errors
    /// [`Error::UnknownSnapshot`]; also any write error.
    pub fn drop_snapshot(&self, name: &str) -> Result<()> {
        Ok(self.store.group.drop_snapshot(name)?)
    }

    /// All datasets as of now: what several datasets have at one moment. It keeps the files that it
    /// reads from being removed, so drop it once its queries are done.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use esker::{Database, DatasetDef, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let users = db.create_dataset::<u64>("users", DatasetDef::key("id"))?;
    /// let visits = db.create_dataset::<u64>("visits", DatasetDef::key("id"))?;
    /// let before = db.snapshot();
    /// let mut batch = db.batch();
    /// batch.put_json(&users, br#"{"id":1}"#)?;
    /// batch.put_json(&visits, br#"{"id":7,"user":1}"#)?;
    /// batch.commit()?;
    ///
    /// assert_eq!(before.dataset::<u64>("visits")?.query().count()?, 0);
    /// let now = db.snapshot();
    /// assert_eq!(now.dataset::<u64>("users")?.query().count()?, 1);
    /// assert_eq!(now.dataset::<u64>("visits")?.query().count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot(&self) -> StoreSnapshot {
        let datasets = self.store.datasets.lock();
        let snapshot = self.store.group.snapshot();
        // A dataset that is being dropped is in the map, and no longer in the version.
        let is_in_version =
            |state: &DatasetState| snapshot.version().trees.contains_key(&state.data);
        let datasets = datasets
            .iter()
            .filter(|(_, state)| is_in_version(state))
            .map(|(name, state)| (name.clone(), state.clone()))
            .collect();
        StoreSnapshot {
            store: self.store.clone(),
            snapshot,
            datasets: Arc::new(datasets),
            stop: self.stop.clone(),
        }
    }

    /// All named snapshots, by name.
    pub fn snapshots(&self) -> Vec<NamedSnapshot> {
        self.store.group.snapshots()
    }

    /// The snapshot `name`.
    ///
    /// # Errors
    /// [`Error::UnknownSnapshot`].
    pub fn kept_snapshot(&self, name: &str) -> Result<StoreSnapshot> {
        let snapshot = self.store.group.kept_snapshot(name)?;
        let datasets = datasets_in(&snapshot, &BTreeMap::new(), &self.store.index_types, |_| {
            Usage::default()
        })?;
        Ok(StoreSnapshot {
            store: self.store.clone(),
            snapshot,
            datasets: Arc::new(datasets),
            stop: self.stop.clone(),
        })
    }
}

/// Snapshot names follow the rules of dataset names.
fn check_name(name: &str) -> Result<()> {
    Ok(esker_model::definition::check_name("snapshot", name)?)
}

/// All datasets of a store at one moment, from [`Database::snapshot`] or
/// [`Database::kept_snapshot`]. Stays readable even if the named snapshot is dropped.
#[derive(Clone)]
pub struct StoreSnapshot {
    store: Arc<Store>,
    snapshot: Snapshot,
    datasets: Arc<BTreeMap<String, Arc<DatasetState>>>,
    stop: Option<Stop>,
}

impl StoreSnapshot {
    /// The number of the last write that it contains.
    pub fn seq(&self) -> Seq {
        self.snapshot.seq()
    }

    /// The names of the datasets in it, sorted.
    pub fn dataset_names(&self) -> Vec<String> {
        self.datasets.keys().cloned().collect()
    }

    /// The dataset that was called `name`, as of the snapshot.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`]; [`Error::BadInput`] if its keys are not of type `K`.
    pub fn dataset<K: PrimaryKey>(&self, name: &str) -> Result<DatasetSnapshot<K>> {
        let state = self
            .datasets
            .get(name)
            .cloned()
            .ok_or_else(|| Error::unknown_dataset_among(name, self.datasets.keys()))?;
        DatasetSnapshot::checked(View {
            layout: state.layout_in(self.snapshot.version()),
            dataset: Handle::new(self.store.clone(), state, None),
            snapshot: self.snapshot.clone().with_stop(self.stop.clone()),
        })
    }
}
