//! A store: datasets in a folder, over one tree group.

use std::collections::BTreeMap;
use std::path::Path as FsPath;
use std::sync::Arc;

use lsm::{Budget, Clock, Durability, Group, KeepLog, Position, Stop};
use model::PrimaryKey;
use model::definition::{DatasetDef, StoredDef};

use super::batch::Batch;
use super::dataset::{Dataset, check_key_type};
use crate::background::MaintenanceThread;
use crate::catalog::{Layout, Step, is_of_extension, renamed_trees};
use crate::check::{self, CheckReport};
use crate::consumer::ChangeConsumer;
use crate::error::{Error, Result};
use crate::extension::{Extension, ExtensionStore, Extensions};
use crate::stats::StoreStats;
use crate::store::{Current, Handle, Store, check_dataset_name, found_datasets};
use crate::telemetry::{self, Usage};
use crate::trees::{Trees, new_trees};

/// Settings of a store.
#[derive(Clone)]
pub struct Options {
    /// Bytes for memtables, block cache, filters and indexes, and what queries, index builds, repairs and compactions borrow.
    /// Default 128 MiB.
    pub memory_budget: usize,
    /// A budget that several stores share, in place of a separate one; `memory_budget` still says how large memtables
    /// and loans of this store become. Default: none.
    pub budget: Option<Arc<Budget>>,
    /// The durability of writes that do not set their own. Default [`Durability::Sync`].
    pub durability: Durability,
    /// The file system. Default: the disk.
    pub fs: Arc<dyn lsm::fs::Fs>,
    /// Flush, compact and maintain indexes on background threads. Default true; without, that is done by the calls that make it necessary, and a run
    /// is deterministic.
    pub background: bool,
    /// Bytes at which a compaction starts the next table file. Default 32 MiB.
    pub table_size: u64,
    /// How much of the log is kept for [change feeds](crate::Dataset::changes), beyond what is in no table yet: the last so many bytes, or what was
    /// written in some time. Default: nothing.
    pub keep_log: KeepLog,
    /// Capabilities with trees of their own in the store ([`crate::extension`]). A store that has trees of one is opened with it. Default: none.
    pub extensions: Vec<Arc<dyn Extension>>,
    /// The clock by which records expire, in milliseconds since 1970. Default: the system's.
    pub clock: Arc<Clock>,
    /// For experiments only.
    #[doc(hidden)]
    pub tuning: Tuning,
}

/// Settings that the benchmarks vary; programs gain nothing by changing them.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Compress blocks. Default true.
    pub compress: bool,
    /// Bits of the embedded index's filters per distinct value of a block. Default 16.
    pub value_filter_bits: usize,
    /// Key filters whose bits of one key lie in one cache line. Default true.
    pub blocked_filter: bool,
    /// Bytes of a run that a tiered tree does not compact any more. Default 64 GiB.
    pub largest_mergeable: u64,
    /// Which table of a level is compacted next. Default: each in turn.
    pub next_table: lsm::NextTable,
    /// What compactions do about bits that are set meanwhile. Default: side file.
    pub bitmap_merges: lsm::BitmapMerges,
    /// Trees that a job writes to from which on small tables share a file. Default 8.
    pub share_from: usize,
    /// See [`lsm::Options::bitmap_slack`].
    pub bitmap_slack: usize,
    /// See [`lsm::Options::compaction_threads`].
    pub compaction_threads: usize,
    /// See [`lsm::Options::compaction_rate`].
    pub compaction_rate: Option<u64>,
    /// For tests: see `lsm::Options::piece_bytes`.
    #[doc(hidden)]
    pub piece_bytes: Option<u64>,
    /// Repair and choose strategies when that is due. Default true.
    pub background_maintenance: bool,
    /// Operations between two choices of the strategy of a dataset whose strategy is chosen. Default 8192.
    pub choose_every: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        let engine = lsm::Options::default();
        Tuning {
            compress: engine.compress,
            value_filter_bits: engine.value_filter_bits,
            blocked_filter: engine.blocked_filter,
            largest_mergeable: lsm::Tiered::default().largest_mergeable,
            next_table: lsm::NextTable::default(),
            bitmap_merges: engine.bitmap_merges,
            share_from: engine.share_from,
            bitmap_slack: engine.bitmap_slack,
            compaction_threads: engine.compaction_threads,
            compaction_rate: engine.compaction_rate,
            piece_bytes: engine.piece_bytes,
            background_maintenance: true,
            choose_every: 8192,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        let engine = lsm::Options::default();
        Options {
            memory_budget: engine.memory_budget,
            budget: None,
            durability: Durability::Sync,
            fs: engine.fs,
            background: engine.background,
            table_size: engine.table_size,
            keep_log: engine.keep_log,
            clock: engine.clock,
            extensions: Vec::new(),
            tuning: Tuning::default(),
        }
    }
}

/// An open store. Cheap to clone; closed when the last clone and all datasets are dropped.
#[derive(Clone)]
pub struct Database {
    /// Before the store, so that its maintenance ends first.
    maintenance_thread: Arc<MaintenanceThread>,
    pub(crate) shared: Arc<Store>,
    extensions: Extensions,
    /// What stops the reads that users ask for.
    pub(crate) stop: Option<Stop>,
}

impl Database {
    /// Opens the store in `dir`, which must exist ([`Error::NoStore`]). One process at a time
    /// can have it open ([`Error::Locked`]).
    pub fn open(dir: impl AsRef<FsPath>, options: Options) -> Result<Database> {
        Database::open_with(dir.as_ref(), options, false)
    }

    /// Opens the store in `dir`, or makes an empty one there.
    pub fn create_or_open(dir: impl AsRef<FsPath>, options: Options) -> Result<Database> {
        Database::open_with(dir.as_ref(), options, true)
    }

    /// Opens the store in `dir`, which must exist, to read it beside the process that writes it (or without one): every query
    /// works, and no file of the store is written or locked. It sees what is there now, and after [`Database::refresh`]
    /// what is there then. Whatever would write is refused with [`Error::ReadOnly`].
    ///
    /// ```
    /// use esker::{DatasetDef, Database, Options, Type};
    ///
    /// # fn main() -> esker::Result<()> {
    /// let dir = tempfile::tempdir().unwrap();
    /// let writer = Database::create_or_open(dir.path(), Options::default())?;
    /// let events = writer.create_dataset::<u64>("events", DatasetDef::new("id", esker::KeyType::Int))?;
    /// let reader = Database::open_reader(dir.path(), Options::default())?; // in another process, say
    /// events.put_json(br#"{"id":1}"#)?;
    /// reader.refresh()?;
    /// let events = reader.dataset::<u64>("events")?;
    /// assert!(events.get(1)?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_reader(dir: impl AsRef<FsPath>, options: Options) -> Result<Database> {
        let (engine, trees) = Database::engine(&options)?;
        let group = Group::open_reader(dir.as_ref(), engine, Arc::new(trees))?;
        Database::over(group, options)
    }

    /// Of a store that was opened with [`Database::open_reader`]: takes over what was acknowledged to writers since, datasets that were
    /// made and dropped included. Handles of datasets that are still there see it too. Costs what was written since. Does
    /// nothing elsewhere.
    ///
    /// # Errors
    /// What reading fails with; [`Error::OtherHistory`] when another store is in the place of this one. What was seen before stays.
    pub fn refresh(&self) -> Result<()> {
        let group = &self.shared.group;
        if !group.is_reader() {
            return Ok(());
        }
        group.refresh()?;
        let snapshot = group.snapshot();
        let mut datasets = self.shared.datasets.lock();
        let found = found_datasets(&snapshot, &datasets, |_| Usage::default())?;
        *datasets = found;
        Ok(())
    }

    fn open_with(dir: &FsPath, options: Options, create: bool) -> Result<Database> {
        let (engine, trees) = Database::engine(&options)?;
        let db = Database::over(Group::open(dir, engine, Arc::new(trees), create)?, options)?;
        // A crash within `drop_dataset` may have left some. They would retain the log; a failure here is left to the next call.
        let _ = db.shared.release_orphans();
        Ok(db)
    }

    fn engine(options: &Options) -> Result<(lsm::Options, Trees)> {
        let engine = lsm::Options {
            memory_budget: options.memory_budget,
            budget: options.budget.clone(),
            fs: options.fs.clone(),
            background: options.background,
            table_size: options.table_size,
            compress: options.tuning.compress,
            value_filter_bits: options.tuning.value_filter_bits,
            blocked_filter: options.tuning.blocked_filter,
            bitmap_merges: options.tuning.bitmap_merges,
            share_from: options.tuning.share_from,
            bitmap_slack: options.tuning.bitmap_slack,
            compaction_threads: options.tuning.compaction_threads,
            compaction_rate: options.tuning.compaction_rate,
            piece_bytes: options.tuning.piece_bytes,
            keep_log: options.keep_log,
            clock: options.clock.clone(),
            ..lsm::Options::default()
        };
        let trees = Trees {
            table_size: options.table_size,
            largest_mergeable: options.tuning.largest_mergeable,
            next_table: options.tuning.next_table,
            extensions: Extensions::new(&options.extensions)?,
        };
        Ok((engine, trees))
    }

    /// The store over an open group.
    fn over(group: Group, options: Options) -> Result<Database> {
        let counted = telemetry::load(options.fs.as_ref(), group.dir());
        let usage = |name: &str| counted.get(name).map(Usage::new).unwrap_or_default();
        let datasets = found_datasets(&group.snapshot(), &BTreeMap::new(), usage)?;
        let shared = Store {
            group,
            durability: options.durability,
            background_maintenance: options.tuning.background_maintenance,
            choose_every: options.tuning.choose_every,
            datasets: datasets.into(),
            names: Default::default(),
            usage_file: Default::default(),
            turns: Default::default(),
        };
        Ok(Database {
            maintenance_thread: Arc::default(),
            extensions: Extensions::new(&options.extensions)?,
            shared: Arc::new(shared),
            stop: None,
        })
    }

    fn handle(&self, current: Arc<Current>) -> Handle {
        let background = self.maintenance_thread.clone();
        Handle {
            stop: self.stop.clone(),
            ..Handle::new(self.shared.clone(), current, Some(background))
        }
    }

    /// A handle whose reads `stop` stops, with [`Error::Cancelled`]: [`Database::check`], [`Database::backup`], and those of the
    /// datasets that it gives ([`Dataset::with_stop`]).
    pub fn with_stop(&self, stop: &Stop) -> Database {
        Database {
            stop: Some(stop.clone()),
            ..self.clone()
        }
    }

    /// The names of the datasets, sorted.
    pub fn dataset_names(&self) -> Vec<String> {
        self.shared.datasets.lock().keys().cloned().collect()
    }

    /// The dataset called `name`, whose keys are `K` in the program: an integer, a string, or [`Key`](crate::Key) for any. Waits for
    /// nothing, also while datasets are created and dropped.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`]; [`Error::BadInput`] if its keys are not of type `K`.
    pub fn dataset<K: PrimaryKey>(&self, name: &str) -> Result<Dataset<K>> {
        Dataset::new(self.handle(self.current(name)?))
    }

    /// The dataset called `name`, made with this definition where there is none; the definition of one that is there stays as it is.
    ///
    /// # Errors
    /// Those of [`Database::dataset`] and [`Database::create_dataset`].
    pub fn dataset_or_create<K: PrimaryKey>(
        &self,
        name: &str,
        def: DatasetDef,
    ) -> Result<Dataset<K>> {
        match self.create_dataset(name, def) {
            Err(Error::Exists(_)) => self.dataset(name),
            made => made,
        }
    }

    /// A batch of writes to any datasets of the store, which happen together or not at all.
    pub fn batch(&self) -> Batch {
        Batch::new(self.shared.clone())
    }

    fn current(&self, name: &str) -> Result<Arc<Current>> {
        let datasets = self.shared.datasets.lock();
        let current = datasets.get(name).cloned();
        current.ok_or_else(|| Error::unknown_among(name, datasets.keys()))
    }

    /// Makes a dataset. Names are 1 to 64 letters, digits, `-`, `_` and `.`.
    pub fn create_dataset<K: PrimaryKey>(&self, name: &str, def: DatasetDef) -> Result<Dataset<K>> {
        check_dataset_name(name)?;
        def.validate()?;
        check_key_type::<K>(name, def.key_type)?;
        let _reserved = self.shared.names.reserve(name);
        if self.shared.datasets.lock().contains_key(name) {
            return Err(Error::exists(format!("dataset `{name}` exists")));
        }
        let stored = StoredDef::new(&def);
        let group = &self.shared.group;
        group.create_trees(&new_trees(name, &stored))?;
        let layout = Layout::new(name, group.snapshot().version())
            .ok_or_else(|| Error::damaged(format!("dataset {name}: its trees were not created")))?;
        let current = Arc::new(Current::new(name, layout, Usage::default()));
        let mut datasets = self.shared.datasets.lock();
        datasets.insert(name.to_string(), current.clone());
        drop(datasets);
        Dataset::new(self.handle(current))
    }

    /// Drops a dataset with all its records and indexes. Refused while one of its indexes is changed
    /// ([`Error::Busy`]).
    pub fn drop_dataset(&self, name: &str) -> Result<()> {
        let _reserved = self.shared.names.reserve(name);
        let current = self.current(name)?;
        let _changing = current.claim()?;
        let group = &self.shared.group;
        let layout = current.layout_in(group.snapshot().version());
        group.drop_trees(&layout.trees())?;
        self.shared.datasets.lock().remove(name);
        self.shared.replace_usage();
        // The dataset is dropped, whatever becomes of this: consumers that are left are removed by the next drop or the next
        // opening, or when a consumer notes its place.
        let _ = self.shared.release_orphans();
        Ok(())
    }

    /// Gives a dataset another name, durably and at once: after a crash it has the one or the other, with all its records, indexes, notes
    /// and consumers. Handles of it, here and in processes that read beside this one, go on under the new name; what a
    /// [kept snapshot](Database::kept_snapshot) holds has the name that it had. Waits for running compactions of the dataset; other
    /// writes wait for a moment only.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use esker::{Database, DatasetDef, KeyType, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let visits = db.create_dataset::<u64>("vists", DatasetDef::new("id", KeyType::Int))?;
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
    /// [`Error::UnknownDataset`]; [`Error::Exists`] if a dataset has the new name; [`Error::BadInput`] for a name that no dataset can
    /// have; [`Error::Busy`] while one of its indexes is changed; what a write fails with.
    pub fn rename_dataset(&self, name: &str, to: &str) -> Result<()> {
        check_dataset_name(to)?;
        let exists = || Error::exists(format!("dataset `{to}` exists"));
        if name == to {
            self.current(name)?;
            return Err(exists());
        }
        // In one order, whoever renames what.
        let _first = self.shared.names.reserve(name.min(to));
        let _second = self.shared.names.reserve(name.max(to));
        let current = self.current(name)?;
        if self.shared.datasets.lock().contains_key(to) {
            return Err(exists());
        }
        let _changing = current.claim()?;
        let group = &self.shared.group;
        group.rename_trees(&renamed_trees(group.snapshot().version(), name, to))?;
        let mut datasets = self.shared.datasets.lock();
        current.is_renamed(to);
        datasets.remove(name);
        datasets.insert(to.to_string(), current.clone());
        drop(datasets);
        self.shared.replace_usage();
        Ok(())
    }

    /// Trusts the clock, however far it is ahead of the store's last use: what has expired by it may be deleted for good.
    /// [`Database::unconfirmed_time`] says whether that is necessary.
    ///
    /// # Errors
    /// It could not be written down.
    pub fn confirm_time(&self) -> Result<()> {
        Ok(self.shared.group.confirm_time()?)
    }

    /// The time of the clock in milliseconds since 1970, where it is so far ahead that it is not trusted yet ([`Database::confirm_time`]).
    pub fn unconfirmed_time(&self) -> Option<u64> {
        self.shared.group.unconfirmed_time()
    }

    /// Makes everything that was written durable.
    pub fn sync(&self) -> Result<()> {
        Ok(self.shared.group.sync()?)
    }

    /// Writes the memtables to tables.
    pub fn flush(&self) -> Result<()> {
        self.shared.keep_obsolete();
        Ok(self.shared.group.flush()?)
    }

    /// Compacts a dataset (or all, and the trees of extensions) to one run per tree, and drops what is obsolete: also the
    /// index entries of all writes that are known to be obsolete.
    pub fn compact(&self, dataset: Option<&str>) -> Result<()> {
        let layouts: Vec<_> = match dataset {
            Some(name) => vec![self.handle(self.current(name)?).layout()],
            None => {
                let all = self.shared.currents().into_iter();
                all.map(|current| self.handle(current).layout()).collect()
            }
        };
        if dataset.is_none() {
            let snapshot = self.shared.group.snapshot();
            let trees = snapshot.version().trees.values();
            let others = trees.filter(|tree| is_of_extension(&tree.name));
            let others: Vec<_> = others.map(|tree| tree.id).collect();
            self.shared.group.compact_trees(&others)?;
        }
        // Each step needs what those before it reported: what is obsolete and nobody has any more is forgotten when all
        // others have been compacted. Trees that are dropped meanwhile are skipped.
        let group = &self.shared.group;
        let trees_in = |step| -> Vec<_> {
            let trees = layouts.iter().flat_map(|layout| layout.trees_in(step));
            trees.collect()
        };
        group.compact_trees(&trees_in(Step::Report))?;
        group.compact_trees(&trees_in(Step::Drop))?;
        let written = layouts.iter().flat_map(|layout| layout.written());
        let indexes = written.filter_map(|(_, attribute)| attribute.tree);
        group.drop_obsolete(&indexes.collect::<Vec<_>>())?;
        Ok(group.compact_trees(&trees_in(Step::Forget))?)
    }

    /// The place behind everything that is visible now: a feed from there begins with the next change.
    pub fn position(&self) -> Position {
        self.shared.group.position()
    }

    /// The consumers that changes are kept for, of all datasets ([`Dataset::consume`]).
    ///
    /// # Errors
    /// Files cannot be read.
    pub fn change_consumers(&self) -> Result<Vec<ChangeConsumer>> {
        self.shared.consumers()
    }

    /// Makes a copy of the store in `dest`, which must not exist or be empty, while reads and writes
    /// continue: a store of its own with everything written before the call. To restore it, open it, or copy it back to where the store was.
    /// A handle that only reads ([`Database::open_reader`]) makes a copy, too, beside the process that writes: of what it saw at its last
    /// [`refresh`](Database::refresh).
    pub fn backup(&self, dest: impl AsRef<FsPath>) -> Result<()> {
        let stop = self.stop.as_ref();
        Ok(self.shared.group.checkpoint_until(dest.as_ref(), stop)?)
    }

    /// Reads every file and compares every stand-alone index with the data, in bounded memory. All
    /// damage is reported, not the first only.
    ///
    /// # Errors
    /// [`Error::Cancelled`] of a handle that was stopped ([`Database::with_stop`]).
    pub fn check(&self) -> Result<CheckReport> {
        check::check(&self.shared, self.stop.as_ref())
    }

    /// The state of the whole store: datasets, memory, counters since opening.
    pub fn stats(&self) -> StoreStats {
        self.shared.stats()
    }

    /// The part of the store that the extension `name` has ([`crate::extension`]).
    ///
    /// # Errors
    /// The store was opened without it.
    pub fn extension(&self, name: &str) -> Result<ExtensionStore> {
        ExtensionStore::new(self.shared.clone(), &self.extensions, name)
    }

    /// The engine below, for tests and the benchmarks.
    #[doc(hidden)]
    pub fn group(&self) -> &Group {
        &self.shared.group
    }

    /// Closes the store: makes everything durable that was written, and gives up the folder, which can be opened again at once. Clones of
    /// this handle, datasets, snapshots and brokers that still exist answer every later call with [`Error::Closed`]. Dropping the last
    /// handle closes the store, too, but reports no errors.
    ///
    /// # Errors
    /// What could not be made durable, flushed or sealed ([`lsm::Group::close`]). Everything else is done all the same.
    pub fn close(self) -> Result<()> {
        self.maintenance_thread.stop();
        // Nothing depends on what queries noted: what is forgotten is found again.
        self.shared.keep_obsolete();
        self.shared.keep_usage();
        let closed = self.shared.group.close();
        if closed.is_err() {
            self.shared.group.give_up();
        }
        Ok(closed?)
    }
}
