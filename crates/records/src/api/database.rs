//! A store: datasets in a folder, over one tree group.

use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::Arc;

use esker_lsm::{Group, Position, Stop};
use esker_model::PrimaryKey;
use esker_model::definition::{DatasetDef, StoredDef};

use super::batch::Batch;
use super::dataset::Dataset;
use super::options::Options;
use super::reading::check_key_type;
use crate::background::MaintenanceThread;
use crate::catalog::{CompactionStep, Layout, is_of_extension, renamed_trees};
use crate::check::{self, CheckReport};
use crate::consumer::ChangeConsumer;
use crate::error::{Error, Result};
use crate::extension::{ExtensionStore, Extensions};
use crate::stats::StoreStats;
use crate::store::{DatasetState, Handle, Store, check_dataset_name, datasets_in};
use crate::telemetry::{self, Usage};
use crate::trees::new_trees;

/// An open store. Cheap to clone; closed when the last clone and all datasets are dropped.
#[derive(Clone)]
pub struct Database {
    /// Declared before the store, so that its maintenance ends first.
    maintenance_thread: Arc<MaintenanceThread>,
    pub(crate) store: Arc<Store>,
    extensions: Extensions,
    /// Stops reads that users request.
    pub(crate) stop: Option<Stop>,
}

/// What opening does if the folder has no store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Create,
    Fail,
}

impl Database {
    /// Opens the store in `dir`, which must exist. One process at a time can have it open.
    ///
    /// # Errors
    /// [`Error::NoStore`] if the folder has no store; [`Error::Locked`] if another process has it
    /// open; [`Error::Unsupported`] if it has trees of an extension or of an index type that the
    /// options lack; also any read error.
    pub fn open(dir: impl AsRef<FsPath>, options: Options) -> Result<Database> {
        Database::open_with(dir.as_ref(), options, IfMissing::Fail)
    }

    /// Opens the store in `dir`, or creates an empty one there.
    ///
    /// # Errors
    /// As [`Database::open`], except [`Error::NoStore`]; also any write error.
    pub fn create_or_open(dir: impl AsRef<FsPath>, options: Options) -> Result<Database> {
        Database::open_with(dir.as_ref(), options, IfMissing::Create)
    }

    /// Opens the store in `dir`, which must exist, to read it beside the process that writes it (or
    /// without one): every query works, and no file of the store is written or locked. It sees the
    /// store as of now, and after [`Database::refresh`] as of that call. Calls that would write
    /// fail with [`Error::ReadOnly`].
    ///
    /// ```
    /// use esker::{DatasetDef, Database, Options, Type};
    ///
    /// # fn main() -> esker::Result<()> {
    /// let dir = tempfile::tempdir().unwrap();
    /// let writer = Database::create_or_open(dir.path(), Options::default())?;
    /// let definition = DatasetDef::key("id");
    /// let events = writer.create_dataset::<u64>("events", definition)?;
    /// // In another process, say:
    /// let reader = Database::open_reader(dir.path(), Options::default())?;
    /// events.put_json(br#"{"id":1}"#)?;
    /// reader.refresh()?;
    /// let events = reader.dataset::<u64>("events")?;
    /// assert!(events.get(1)?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Database::open`], except [`Error::Locked`].
    pub fn open_reader(dir: impl AsRef<FsPath>, options: Options) -> Result<Database> {
        let (engine, trees) = options.engine_and_trees()?;
        let group = Group::open_reader(dir.as_ref(), engine, Arc::new(trees))?;
        Database::with_group(group, options)
    }

    /// Makes a handle from [`Database::open_reader`] see everything that was acknowledged to
    /// writers since, including created and dropped datasets. Handles of existing datasets see it,
    /// too. The cost is proportional to the writes since then. Does nothing for a store opened for
    /// writing.
    ///
    /// # Errors
    /// Any read error; [`Error::OtherHistory`] if another store has replaced this one in the
    /// folder. After an error the handle still sees what it saw before.
    pub fn refresh(&self) -> Result<()> {
        let group = &self.store.group;
        if !group.is_reader() {
            return Ok(());
        }
        group.refresh()?;
        let snapshot = group.snapshot();
        let mut datasets = self.store.datasets.lock();
        let present = datasets_in(&snapshot, &datasets, &self.store.index_types, |_| {
            Usage::default()
        })?;
        *datasets = present;
        Ok(())
    }

    fn open_with(dir: &FsPath, options: Options, missing: IfMissing) -> Result<Database> {
        let (engine, trees) = options.engine_and_trees()?;
        let creates = missing == IfMissing::Create;
        let group = Group::open(dir, engine, Arc::new(trees), creates)?;
        let db = Database::with_group(group, options)?;
        // A crash in `drop_dataset` may have left consumers that retain the log. A failure here is
        // left to the next opening.
        let _ = db.store.release_orphans();
        Ok(db)
    }

    /// Opens the datasets of an open group.
    fn with_group(group: Group, options: Options) -> Result<Database> {
        let counted = telemetry::load(options.engine.fs.as_ref(), group.dir());
        let usage = |name: &str| counted.get(name).map(Usage::new).unwrap_or_default();
        let datasets = datasets_in(
            &group.snapshot(),
            &BTreeMap::new(),
            &options.index_types,
            usage,
        )?;
        let store = Store {
            group,
            durability: options.durability,
            automatic_maintenance: options.automatic_maintenance,
            operations_per_choice: options.operations_per_choice,
            index_types: options.index_types,
            datasets: datasets.into(),
            names: Default::default(),
            usage_file: Default::default(),
            exclusive_commit: Default::default(),
        };
        Ok(Database {
            maintenance_thread: Arc::default(),
            extensions: Extensions::new(&options.extensions)?,
            store: Arc::new(store),
            stop: None,
        })
    }

    /// A handle of a dataset that has the stop token and the maintenance thread of this one.
    fn handle(&self, state: Arc<DatasetState>) -> Handle {
        let background = self.maintenance_thread.clone();
        Handle {
            stop: self.stop.clone(),
            ..Handle::new(self.store.clone(), state, Some(background))
        }
    }

    /// A handle whose reads end with [`Error::Cancelled`] when `stop` fires: [`Database::check`],
    /// [`Database::backup`], and the reads of datasets obtained from it ([`Dataset::with_stop`]).
    pub fn with_stop(&self, stop: &Stop) -> Database {
        Database {
            stop: Some(stop.clone()),
            ..self.clone()
        }
    }

    /// The names of the datasets, sorted.
    pub fn dataset_names(&self) -> Vec<String> {
        self.store.datasets.lock().keys().cloned().collect()
    }

    /// The dataset called `name`. `K` is the type of its keys in the program: an integer, a string,
    /// or [`Key`](crate::Key) for any. Never waits, even while datasets are created and dropped.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`]; [`Error::BadInput`] if its keys are not of type `K`.
    pub fn dataset<K: PrimaryKey>(&self, name: &str) -> Result<Dataset<K>> {
        Dataset::new(self.handle(self.dataset_state(name)?))
    }

    /// The dataset called `name`, created with this definition if it does not exist. An existing
    /// dataset keeps its definition.
    ///
    /// # Errors
    /// The errors of [`Database::dataset`] and [`Database::create_dataset`].
    pub fn dataset_or_create<K: PrimaryKey>(
        &self,
        name: &str,
        def: DatasetDef,
    ) -> Result<Dataset<K>> {
        match self.create_dataset(name, def) {
            Err(Error::Exists(_)) => self.dataset(name),
            created => created,
        }
    }

    /// An empty batch of writes to any datasets of the store, which are applied together or not at
    /// all.
    pub fn batch(&self) -> Batch {
        Batch::of_store(self.store.clone())
    }

    /// The shared state of the dataset called `name`.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`], with the names that are similar.
    fn dataset_state(&self, name: &str) -> Result<Arc<DatasetState>> {
        let state = self.store.datasets.lock().get(name).cloned();
        // Names are compared without the lock.
        state.ok_or_else(|| Error::unknown_dataset_among(name, self.dataset_names().iter()))
    }

    /// Creates a dataset. Names are 1 to 64 letters, digits, `-`, `_` and `.`, but not `.` and
    /// `..`.
    ///
    /// # Errors
    /// [`Error::Exists`] if a dataset has the name; [`Error::BadInput`] if the name or the
    /// definition is invalid, or the keys are not of type `K`; also any write error.
    pub fn create_dataset<K: PrimaryKey>(&self, name: &str, def: DatasetDef) -> Result<Dataset<K>> {
        check_dataset_name(name)?;
        let def = def.with_keys::<K>()?;
        def.validate()?;
        for index in &def.indexes {
            self.store.index_types.check(index.kind)?;
        }
        check_key_type::<K>(name, def.key_type)?;
        let _reserved = self.store.names.reserve(name);
        if self.store.datasets.lock().contains_key(name) {
            return Err(Error::exists(format!("dataset `{name}` exists already")));
        }
        let stored = StoredDef::new(&def);
        let group = &self.store.group;
        group.create_trees(&new_trees(name, &stored))?;
        let layout = Layout::new(name, group.snapshot().version(), &self.store.index_types)
            .ok_or_else(|| Error::damaged(format!("dataset {name}: its trees were not created")))?;
        let state = Arc::new(DatasetState::new(name, layout, Usage::default()));
        let mut datasets = self.store.datasets.lock();
        datasets.insert(name.to_string(), state.clone());
        drop(datasets);
        Dataset::new(self.handle(state))
    }

    /// Drops a dataset with all its records and indexes.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`]; [`Error::Busy`] while one of its indexes is being changed; also
    /// any write error.
    pub fn drop_dataset(&self, name: &str) -> Result<()> {
        let _reserved = self.store.names.reserve(name);
        let state = self.dataset_state(name)?;
        let _changing = state.claim()?;
        let group = &self.store.group;
        let layout = state.layout_in(group.snapshot().version());
        group.drop_trees(&layout.trees())?;
        self.store.datasets.lock().remove(name);
        self.store.save_usage();
        // The dataset is dropped even if this fails. Remaining consumers are removed by the next
        // drop, the next opening, or when a consumer records its place.
        let _ = self.store.release_orphans();
        Ok(())
    }

    /// Renames a dataset, durably and atomically: after a crash it has either the old or the new
    /// name, with all its records, indexes, notes and consumers. Open handles, here and in
    /// processes that read the store, continue to work under the new name; a [kept
    /// snapshot](Database::kept_snapshot) still holds the dataset under its old name. Waits for
    /// running compactions of the dataset; other writes wait only briefly.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use esker::{Database, DatasetDef, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let visits = db.create_dataset::<u64>("vists", DatasetDef::key("id"))?;
    /// visits.put_json(br#"{"id":1}"#)?;
    /// db.rename_dataset("vists", "visits")?;
    /// assert_eq!(db.dataset_names(), ["visits"]);
    /// assert_eq!(visits.name(), "visits");
    /// assert!(visits.get(1)?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::UnknownDataset`]; [`Error::Exists`] if a dataset has the new name;
    /// [`Error::BadInput`] if the new name is invalid; [`Error::Busy`] while one of its indexes is
    /// being changed; also any write error.
    pub fn rename_dataset(&self, name: &str, to: &str) -> Result<()> {
        check_dataset_name(to)?;
        let exists = || Error::exists(format!("dataset `{to}` exists already"));
        if name == to {
            self.dataset_state(name)?;
            return Err(exists());
        }
        // In a fixed order, so that concurrent renames cannot deadlock.
        let _first = self.store.names.reserve(name.min(to));
        let _second = self.store.names.reserve(name.max(to));
        let state = self.dataset_state(name)?;
        if self.store.datasets.lock().contains_key(to) {
            return Err(exists());
        }
        let _changing = state.claim()?;
        let group = &self.store.group;
        group.rename_trees(&renamed_trees(group.snapshot().version(), name, to))?;
        let mut datasets = self.store.datasets.lock();
        state.rename(to);
        datasets.remove(name);
        datasets.insert(to.to_string(), state.clone());
        drop(datasets);
        self.store.save_usage();
        Ok(())
    }

    /// Confirms that the clock is right, however far it is ahead of the store's last use: from then
    /// on the store may delete records that have expired by it. [`Database::unconfirmed_time`] says
    /// whether this is necessary.
    ///
    /// # Errors
    /// If the confirmation cannot be written.
    pub fn confirm_time(&self) -> Result<()> {
        Ok(self.store.group.confirm_time()?)
    }

    /// The time of the clock in milliseconds since 1970, if it is so far ahead that the store does
    /// not trust it yet ([`Database::confirm_time`]).
    pub fn unconfirmed_time(&self) -> Option<u64> {
        self.store.group.unconfirmed_time()
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// Any write error.
    pub fn sync(&self) -> Result<()> {
        Ok(self.store.group.sync()?)
    }

    /// Writes the memtables to tables.
    ///
    /// # Errors
    /// Any write error.
    pub fn flush(&self) -> Result<()> {
        self.store.save_obsolete_notes();
        Ok(self.store.group.flush()?)
    }

    /// Compacts a dataset, or with `None` all datasets and extensions, to one sorted run per tree,
    /// and drops obsolete data, including the index entries of all writes known to be obsolete.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`]; also any read or write error.
    pub fn compact(&self, dataset: Option<&str>) -> Result<()> {
        let states = match dataset {
            Some(name) => vec![self.dataset_state(name)?],
            None => {
                let snapshot = self.store.group.snapshot();
                let trees = snapshot.version().trees.values();
                let of_extensions = trees.filter(|tree| is_of_extension(&tree.name));
                let ids: Vec<_> = of_extensions.map(|tree| tree.id).collect();
                self.store.group.compact_trees(&ids)?;
                self.store.dataset_states()
            }
        };
        let layout_of = |state| self.handle(state).layout();
        let layouts: Vec<_> = states.into_iter().map(layout_of).collect();
        // Each step uses the reports of those before it: an obsolete number without entries is
        // forgotten when all other trees have been compacted. Trees that are dropped concurrently
        // are skipped.
        let group = &self.store.group;
        let trees_in = |step| -> Vec<_> {
            let trees = layouts.iter().flat_map(|layout| layout.trees_in(step));
            trees.collect()
        };
        group.compact_trees(&trees_in(CompactionStep::Report))?;
        group.compact_trees(&trees_in(CompactionStep::Drop))?;
        let written = layouts.iter().flat_map(|layout| layout.written());
        let indexes = written.filter_map(|(_, attribute)| attribute.tree);
        group.drop_obsolete(&indexes.collect::<Vec<_>>())?;
        Ok(group.compact_trees(&trees_in(CompactionStep::Forget))?)
    }

    /// The position after everything that is visible now: a feed from there begins with the next
    /// change.
    pub fn position(&self) -> Position {
        self.store.group.position()
    }

    /// The consumers of changes of all datasets ([`Dataset::consume`]).
    ///
    /// # Errors
    /// Any read error.
    pub fn change_consumers(&self) -> Result<Vec<ChangeConsumer>> {
        self.store.consumers()
    }

    /// Copies the store into `dest`, which must not exist or must be empty, while reads and writes
    /// continue. The copy is a complete store with everything written before the call. To restore
    /// it, open it, or copy it back to the original folder. A handle from [`Database::open_reader`]
    /// can make a copy, too, beside the process that writes: it contains what the handle saw at its
    /// last [`refresh`](Database::refresh).
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the handle was stopped ([`Database::with_stop`]); also any read or
    /// write error. An incomplete copy is not a store.
    pub fn backup(&self, dest: impl AsRef<FsPath>) -> Result<()> {
        let stop = self.stop.as_ref();
        Ok(self.store.group.checkpoint_until(dest.as_ref(), stop)?)
    }

    /// Reads every file and compares every stand-alone index (one with its own tree) with the
    /// records, in bounded memory. Reports all damage, not only the first.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the handle was stopped ([`Database::with_stop`]).
    pub fn check(&self) -> Result<CheckReport> {
        check::check(&self.store, self.stop.as_ref())
    }

    /// The state of the whole store: datasets, memory, counters since opening.
    pub fn stats(&self) -> StoreStats {
        self.store.stats()
    }

    /// The part of the store that belongs to the extension `name` ([`crate::extension`]).
    ///
    /// # Errors
    /// If the store was opened without it.
    pub fn extension(&self, name: &str) -> Result<ExtensionStore> {
        ExtensionStore::new(self.store.clone(), &self.extensions, name)
    }

    /// The engine, for tests and benchmarks.
    #[doc(hidden)]
    pub fn group(&self) -> &Group {
        &self.store.group
    }

    /// Closes the store: makes all writes durable and releases the folder, which can be opened
    /// again at once. On remaining clones, datasets, snapshots and brokers every later call fails
    /// with [`Error::Closed`]. Dropping the last handle closes the store, too, but reports no
    /// errors.
    ///
    /// # Errors
    /// If syncing, flushing or sealing failed ([`esker_lsm::Group::close`]). The other steps are
    /// done all the same.
    pub fn close(self) -> Result<()> {
        self.maintenance_thread.stop();
        // Errors are ignored: queries find obsolete writes again if their notes are lost.
        self.store.save_obsolete_notes();
        self.store.save_usage_if_changed();
        let closed = self.store.group.close();
        if closed.is_err() {
            self.store.group.give_up();
        }
        Ok(closed?)
    }
}

#[cfg(test)]
mod tests {
    use esker_model::schema::KeyType;

    use super::*;

    #[test]
    fn a_name_that_no_address_can_hold_is_refused_but_a_dataset_that_has_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let open = || Database::create_or_open(&path, Options::new()).unwrap();
        let def = || DatasetDef::new("id", KeyType::Int);
        let db = open();
        db.create_dataset::<u64>("...", def()).unwrap();
        for name in [".", ".."] {
            let refused = [
                db.create_dataset::<u64>(name, def()).map(drop),
                db.rename_dataset("...", name),
                db.keep_snapshot(name).map(drop),
            ];
            for error in refused.map(Result::unwrap_err) {
                assert!(
                    error.to_string().contains("an address cannot hold it"),
                    "{error}"
                );
            }
            // As an earlier version created it.
            let trees = new_trees(name, &StoredDef::new(&def()));
            db.store.group.create_trees(&trees).unwrap();
        }
        db.close().unwrap();
        let db = open();
        assert_eq!(db.dataset_names(), [".", "..", "..."]);
        let known = db.dataset::<u64>("..").unwrap();
        known.put_json(br#"{"id": 1}"#).unwrap();
        assert!(known.get(1).unwrap().is_some());
        db.rename_dataset("..", "up").unwrap();
        db.drop_dataset(".").unwrap();
        assert_eq!(db.dataset_names(), ["...", "up"]);
    }
}
