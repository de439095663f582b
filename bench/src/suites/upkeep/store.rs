//! Esker as the experiments on index maintenance set it up and ask it.

use std::ops::ControlFlow;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use esker::experimental::LookupOptions;
use esker::maintain::Validation;
use esker::maintain::{RepairOptions, RepairReport};
use esker::schema::{Maintenance, Merging, Repair};
use esker::{
    Database, Dataset, DatasetDef, Durability, IndexKind, Key, KeyType, Operand, Options, Order,
    Path, Type, Value, WriteBatch, field,
};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::workload::upserts::{ATTRIBUTES, TIME};

const DATASET: &str = "tweets";

/// What memory there is for the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cache {
    /// Less than the data: reads go round the page cache, so that the budget is all there is.
    Small,
    /// All of it.
    All,
}

impl Cache {
    /// Both.
    pub const BOTH: [Cache; 2] = [Cache::Small, Cache::All];

    /// Its name in the rows.
    pub fn name(self) -> &'static str {
        match self {
            Cache::Small => "direct",
            Cache::All => "cached",
        }
    }

    /// The budget for so many bytes of JSON. An eighth of it is a memtable, half of it block cache.
    pub fn budget(self, bytes: usize) -> usize {
        match self {
            Cache::Small => (bytes / 8).max(1 << 20),
            Cache::All => bytes.max(64 << 20),
        }
    }
}

/// How indexes are kept. The subject of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// There are no indexes on attributes.
    NoIndex,
    /// A write takes the entries of the old record back.
    Eager,
    /// A write only adds entries; whoever reads asks which are obsolete.
    Validation,
    /// The same, but merges note what is obsolete.
    ValidationRepaired,
    /// A write sets the bit of the old one.
    MutableBitmap,
    /// A write only adds entries, there is no primary-key index; merges of the data note what is obsolete.
    Deferred,
    /// The same, but what is obsolete is looked for when that is asked for.
    DeferredStaged,
    /// The same, and nobody notes what is obsolete.
    DeferredUnrepaired,
    /// A write only adds entries, and its key to a tree of each index.
    DeletedKey,
}

impl Strategy {
    /// Its name in the rows.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::NoIndex => "no index",
            Strategy::Eager => "eager",
            Strategy::Validation => "validation",
            Strategy::ValidationRepaired => "validation + repair",
            Strategy::MutableBitmap => "mutable-bitmap",
            Strategy::Deferred => "deferred",
            Strategy::DeferredStaged => "deferred + staged",
            Strategy::DeferredUnrepaired => "deferred unrepaired",
            Strategy::DeletedKey => "deleted-key",
        }
    }

    fn settings(self) -> (Maintenance, Repair) {
        match self {
            Strategy::Eager => (Maintenance::Eager, Repair::None),
            Strategy::Validation => (Maintenance::Validation, Repair::None),
            Strategy::ValidationRepaired => (Maintenance::Validation, Repair::Merge),
            Strategy::MutableBitmap => (Maintenance::MutableBitmap, Repair::None),
            Strategy::NoIndex | Strategy::Deferred => (Maintenance::Deferred, Repair::Merge),
            Strategy::DeferredStaged => (Maintenance::Deferred, Repair::Staged),
            Strategy::DeferredUnrepaired => (Maintenance::Deferred, Repair::None),
            Strategy::DeletedKey => (Maintenance::DeletedKey, Repair::None),
        }
    }
}

/// How a store is set up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// How indexes are kept.
    pub strategy: Strategy,
    /// How many of the attributes are indexed, from the first.
    pub indexes: usize,
    /// What memory there is.
    pub cache: Cache,
    /// Bytes of it.
    pub memory: usize,
    /// Bytes of a component that is not merged any more.
    pub largest_mergeable: u64,
    /// Whether key filters keep the bits of a key together.
    pub blocked_filter: bool,
    /// Whether components have a range filter of [`TIME`].
    pub range_filter: bool,
    /// Whether all trees merge the same components together.
    pub correlated: bool,
}

impl Setup {
    fn options(&self) -> Options {
        let mut options = Options::new()
            .memory_budget(self.memory)
            .durability(Durability::Os)
            .engine(|engine| engine.blocked_filter = self.blocked_filter)
            .largest_mergeable(self.largest_mergeable);
        if self.cache == Cache::Small {
            options = options.fs(Arc::new(esker::fs::disk::Disk::direct()));
        }
        options
    }

    fn def(&self) -> Result<DatasetDef> {
        let (maintenance, repair) = self.strategy.settings();
        let mut def = DatasetDef::new("id", KeyType::Int)
            .maintenance(maintenance)
            .repair(repair)
            .merging(match self.correlated {
                true => Merging::Correlated,
                false => Merging::Tiered,
            });
        if self.range_filter {
            def = def.index(
                TIME,
                esker::Index::new(IndexKind::Filter).of_type(Type::Int),
            );
        }
        if self.strategy != Strategy::NoIndex {
            for name in ATTRIBUTES.iter().take(self.indexes) {
                def = def.index(
                    *name,
                    esker::Index::new(IndexKind::Composite).of_type(Type::Int),
                );
            }
        }
        Ok(def)
    }
}

/// A record on its way to a store.
#[derive(Debug, Clone, Default)]
pub struct Upsert {
    /// The primary key.
    pub key: u64,
    /// The value of the first attribute.
    pub value: u64,
    /// The JSON.
    pub body: Vec<u8>,
}

/// What a store counted since it was opened, where it counts.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Data blocks that were read by questions and by writes, from a cache or not.
    pub data_blocks: u64,
    /// Blocks of any kind that came from files.
    pub blocks_read: u64,
    /// Microseconds that writers waited.
    pub stalled_micros: u64,
}

/// What is measured: Esker, or a peer.
pub trait Subject {
    /// Writes a record, in the place of another if there is one.
    fn upsert(&mut self, record: &Upsert) -> Result<()>;

    /// Reads a record.
    fn get(&self, key: u64, visit: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Finds records, newest first.
    fn find(&self, range: &Range, visit: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Counts records.
    fn count(&self, range: &Range) -> Result<u64>;

    /// Writes what is in memory to where it belongs, and merges until nothing is left to merge.
    fn settle(&mut self) -> Result<()>;

    /// Its counters.
    fn counters(&self) -> Result<Counters>;

    /// Sorted runs on disk: of the data, and of all indexes together; none where that is not how it
    /// keeps them.
    fn runs(&self) -> Result<(usize, usize)>;
}

/// A store with one dataset.
pub struct Store {
    dir: PathBuf,
    setup: Setup,
    open: Option<Open>,
}

struct Open {
    db: Database,
    dataset: Dataset,
    batch: WriteBatch,
}

/// A question by an attribute: the records with a value from `lo` to `hi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Which of [`ATTRIBUTES`].
    pub attribute: usize,
    /// The least value.
    pub lo: u64,
    /// The greatest, included.
    pub hi: u64,
}

/// How a question is answered through an index.
#[derive(Debug, Clone)]
pub struct How {
    /// How candidates are validated.
    pub validation: Validation,
    /// By which optimizations records are looked up.
    pub lookup: LookupOptions,
    /// In which order they are wanted.
    pub order: Order,
}

impl Default for How {
    fn default() -> How {
        How {
            validation: Validation::default(),
            lookup: LookupOptions::default(),
            order: Order::Any,
        }
    }
}

impl Store {
    /// Makes a store in `dir`.
    pub fn create(dir: &FsPath, setup: &Setup) -> Result<Store> {
        let db = Database::create_or_open(dir, setup.options())?;
        let dataset = db.create_dataset::<esker::Key>(DATASET, setup.def()?)?;
        let batch = dataset.batch();
        Ok(Store {
            dir: dir.to_path_buf(),
            setup: setup.clone(),
            open: Some(Open { db, dataset, batch }),
        })
    }

    /// Closes the store and opens it again: its caches are empty then, and its counters are 0.
    pub fn reopen(&mut self) -> Result<()> {
        if let Some(Open { db, dataset, batch }) = self.open.take() {
            drop((dataset, batch));
            db.close()?;
        }
        let db = Database::open(&self.dir, self.setup.options())?;
        let dataset = db.dataset::<esker::Key>(DATASET)?;
        let batch = dataset.batch();
        self.open = Some(Open { db, dataset, batch });
        Ok(())
    }

    fn open(&self) -> Result<&Open> {
        self.open
            .as_ref()
            .ok_or_else(|| Failure::new("the store could not be opened again"))
    }

    fn open_mut(&mut self) -> Result<&mut Open> {
        self.open
            .as_mut()
            .ok_or_else(|| Failure::new("the store could not be opened again"))
    }

    /// Writes a record unless its key has one; tells whether it was written.
    pub fn insert(&mut self, record: &Upsert) -> Result<bool> {
        let open = self.open_mut()?;
        open.batch.insert_json(&record.body)?;
        match open.batch.durability(Durability::Os).commit() {
            Ok(()) => Ok(true),
            Err(esker::Error::Exists(_)) => {
                open.batch.clear();
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Merges everything into one component.
    pub fn compact(&self) -> Result<()> {
        Ok(self.open()?.db.compact(None)?)
    }

    fn query(&self, name: &str, lo: u64, hi: u64) -> Result<esker::Query> {
        let path: Path = name.parse()?;
        let query = self.open()?.dataset.query();
        let [lo, hi] = [lo, hi].map(|n| Operand::text(n.to_string()));
        Ok(query.filter(field(&path).range(lo..=hi)))
    }

    /// Finds records, not by recency: in the order and by the way that is asked for.
    pub fn visit(&self, range: &Range, how: &How, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let query = self.query(ATTRIBUTES[range.attribute], range.lo, range.hi)?;
        visit_all(
            query.validation(how.validation).lookup(how.lookup),
            how,
            visit,
        )
    }

    /// Finds records by the time of their write, in any order.
    pub fn visit_time(&self, lo: u64, hi: u64, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        visit_all(self.query(TIME, lo, hi)?, &How::default(), visit)
    }

    /// Gives the keys of the records with a value in the range; tells how many.
    pub fn keys(&self, range: &Range, how: &How) -> Result<u64> {
        let query = self.query(ATTRIBUTES[range.attribute], range.lo, range.hi)?;
        let mut keys = 0;
        for key in query.validation(how.validation).keys()? {
            std::hint::black_box(key?);
            keys += 1;
        }
        Ok(keys)
    }

    /// Finds out what is obsolete.
    pub fn repair(&self, options: &RepairOptions) -> Result<RepairReport> {
        let dataset = &self.open()?.dataset;
        Ok(dataset.repair(options).run()?)
    }

    /// Reads every record, in the order of keys; tells how many.
    pub fn scan(&self, visit: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let mut records = 0;
        for record in self.open()?.dataset.scan(..) {
            visit(record?.json());
            records += 1;
        }
        Ok(records)
    }
}

fn visit_all(query: esker::Query, how: &How, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
    query.order(how.order.clone()).visit(&mut |record| {
        visit(record.json());
        ControlFlow::Continue(())
    })?;
    Ok(())
}

impl Subject for Store {
    fn upsert(&mut self, record: &Upsert) -> Result<()> {
        let open = self.open_mut()?;
        open.batch.put_json(&record.body)?;
        Ok(open.batch.durability(Durability::Os).commit()?)
    }

    fn get(&self, key: u64, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let key = Key::new(KeyType::Int, &Value::Int(i128::from(key))).map_err(Failure::new)?;
        if let Some(record) = self.open()?.dataset.get(&key)? {
            visit(record.json());
        }
        Ok(())
    }

    fn find(&self, range: &Range, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let query = self.query(ATTRIBUTES[range.attribute], range.lo, range.hi)?;
        for record in query.run()? {
            visit(record?.json());
        }
        Ok(())
    }

    fn count(&self, range: &Range) -> Result<u64> {
        let query = self.query(ATTRIBUTES[range.attribute], range.lo, range.hi)?;
        Ok(query.count()?)
    }

    fn settle(&mut self) -> Result<()> {
        let open = self.open()?;
        open.db.flush()?;
        Ok(open.db.group().run_compactions()?)
    }

    fn counters(&self) -> Result<Counters> {
        let stats = self.open()?.db.group().stats();
        Ok(Counters {
            data_blocks: stats.data_blocks,
            blocks_read: stats.blocks_read,
            stalled_micros: stats.stalled_micros + stats.slowed_micros,
        })
    }

    fn runs(&self) -> Result<(usize, usize)> {
        let snapshot = self.open()?.db.group().snapshot();
        let (mut data, mut indexes) = (0, 0);
        for tree in snapshot.version().trees.values() {
            match tree.name.ends_with("/data") {
                true => data += tree.runs.len(),
                false => indexes += tree.runs.len(),
            }
        }
        Ok((data, indexes))
    }
}
