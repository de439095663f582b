//! What is measured: a store of records with a point each, and Esker as one.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path as FsPath;
use std::sync::Arc;

use esker::experimental::NextTable;
use esker::schema::Merging;
use esker::{
    AreaExpr, Database, Dataset, DatasetDef, Durability, Explain, Index, IndexKind, KeyType,
    Options, Order, field,
};
use esker_lsm::Seq;
use esker_lsm::version::TreeVersion;
use serde::{Deserialize, Serialize};

use super::places::{Place, Rect};
use crate::failure::Result;

const DATASET: &str = "places";
const POINT: &str = "lon,lat";

/// A record on its way to a store.
#[derive(Debug, Clone, Default)]
pub struct Item {
    /// The primary key.
    pub id: u32,
    /// Its point.
    pub at: Place,
    /// The JSON.
    pub body: Vec<u8>,
}

/// Is given the JSON of records.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8]);

/// What questions cost since the store was made, where it counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// Data blocks of the index, from a cache or not; where the index has no tree of its own, blocks of the records that it
    /// looked into.
    pub index_blocks: u64,
    /// Data blocks of every tree.
    pub blocks: u64,
    /// Blocks of any kind that came from files.
    pub blocks_read: u64,
}

/// What was written since the store was made, where it counts. In bytes of tables.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written {
    /// By flushes, and by flushes and compactions, to the tree of the index.
    pub index: (u64, u64),
    /// The same, to all trees.
    pub all: (u64, u64),
}

/// A store.
pub trait Space {
    /// Writes records in one transaction, in the place of those that there are. `new`: there are none.
    fn put(&mut self, items: &[Item], new: bool) -> Result<()>;

    /// Finds the records in a rectangle, in any order.
    fn find(&mut self, rect: &Rect, visit: Visit<'_>) -> Result<()>;

    /// Counts them.
    fn count(&mut self, rect: &Rect) -> Result<u64>;

    /// Finds the records that are nearest to a place; false where there is no such question.
    fn nearest(&mut self, at: Place, records: usize, visit: Visit<'_>) -> Result<bool>;

    /// Writes what is in memory to where it belongs, and compacts until nothing is due.
    fn settle(&mut self) -> Result<()>;

    /// What questions cost so far.
    fn cost(&self) -> Cost {
        Cost::default()
    }

    /// What was written so far. To be called after every few writes, so that no table comes and goes unseen.
    fn written(&mut self) -> Option<Written> {
        None
    }

    /// Sorted runs of the index.
    fn runs(&self) -> usize {
        0
    }
}

/// The index of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// There is none.
    None,
    /// Of the longitude alone, as a number: what an index costs that is not of points.
    Composite,
    /// In z-order.
    Z,
    /// Leveled, tables cut by space.
    Mbr,
    /// Tiered, tables cut by space.
    Stacked,
    /// None of its own.
    Embedded,
}

impl Kind {
    /// True where points are found through it.
    pub fn is_of_points(self) -> bool {
        !matches!(self, Kind::None | Kind::Composite)
    }

    fn def(self, def: DatasetDef) -> Result<DatasetDef> {
        let name = match self {
            Kind::None => return Ok(def),
            Kind::Composite => return Ok(def.index("lon", Index::composite().float())),
            Kind::Z => "spatial:z",
            Kind::Mbr => "spatial:mbr",
            Kind::Stacked => "spatial:stacked",
            Kind::Embedded => "spatial:embedded",
        };
        let kind: IndexKind = name.parse()?;
        let index = Index::new(kind).of_type(Index::spatial().type_of());
        Ok(def.index(POINT, index))
    }
}

/// How Esker is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The index.
    pub kind: Kind,
    /// Leveled as LevelDB does it, as in the paper; otherwise as Esker does it unless told otherwise.
    pub leveled: bool,
    /// The budget, in bytes.
    pub memory: usize,
    /// Whether reads go round the page cache.
    pub direct: bool,
    /// Bytes of a table, if not the usual.
    pub table: Option<u64>,
    /// Bytes of a tiered run that is not compacted any more, if any.
    pub largest: Option<u64>,
    /// Whether the table of a level that overlaps the fewest is compacted next, and not each in turn.
    pub best: bool,
}

/// Esker.
pub struct Esker {
    db: Database,
    dataset: Dataset<u32>,
    cost: Cost,
    tally: Tally,
}

impl Esker {
    /// Makes a store in `dir`.
    pub fn create(dir: &FsPath, setup: &Setup) -> Result<Esker> {
        let mut options = Options::new()
            .memory_budget(setup.memory)
            .durability(Durability::Os);
        if setup.direct {
            options = options.fs(Arc::new(esker::fs::disk::Disk::direct()));
        }
        if let Some(table) = setup.table {
            options = options.table_size(table);
        }
        if let Some(largest_mergeable) = setup.largest {
            options = options.largest_mergeable(largest_mergeable);
        }
        if setup.best {
            options = options.next_table(NextTable::FewestOverlapped);
        }
        let def = DatasetDef::new("id", KeyType::Int).merging(match setup.leveled {
            true => Merging::Leveled,
            false => Merging::default(),
        });
        let db = Database::create_or_open(dir.join("esker"), options)?;
        let dataset = db.create_dataset(DATASET, setup.kind.def(def)?)?;
        Ok(Esker {
            db,
            dataset,
            cost: Cost::default(),
            tally: Tally::default(),
        })
    }

    fn paid(&mut self, explain: &Explain) {
        let (cost, paid) = (&explain.cost, &mut self.cost);
        paid.index_blocks += cost.index.map_or(0, |cost| cost.data_blocks);
        for part in [Some(cost.data), cost.index, cost.keys]
            .into_iter()
            .flatten()
        {
            paid.blocks += part.data_blocks;
            paid.blocks_read += part.blocks_read;
        }
    }

    fn within(&self, rect: &Rect) -> esker::Query<u32> {
        let [west, south, east, north] = rect.degrees();
        let area = AreaExpr::rect(west, south, east, north);
        self.dataset.find(field(POINT).within(area))
    }
}

impl Space for Esker {
    fn put(&mut self, items: &[Item], _: bool) -> Result<()> {
        let mut batch = self.dataset.batch();
        for item in items {
            batch.put_json(&item.body)?;
        }
        Ok(batch.commit()?)
    }

    fn find(&mut self, rect: &Rect, visit: Visit<'_>) -> Result<()> {
        let explain = self.within(rect).order(Order::Any).visit(&mut |record| {
            visit(record.json());
            ControlFlow::Continue(())
        })?;
        self.paid(&explain);
        Ok(())
    }

    fn count(&mut self, rect: &Rect) -> Result<u64> {
        let (count, explain) = self.within(rect).count_explained()?;
        self.paid(&explain);
        Ok(count)
    }

    fn nearest(&mut self, at: Place, records: usize, visit: Visit<'_>) -> Result<bool> {
        let query = self.dataset.query();
        let (found, explain) = query.nearest_explained(POINT, at.degrees(), records, None)?;
        for near in found {
            visit(near.record.json());
        }
        self.paid(&explain);
        Ok(true)
    }

    fn settle(&mut self) -> Result<()> {
        self.db.flush()?;
        Ok(self.db.group().run_compactions()?)
    }

    fn cost(&self) -> Cost {
        self.cost
    }

    fn written(&mut self) -> Option<Written> {
        let snapshot = self.db.group().snapshot();
        let trees = &snapshot.version().trees;
        if let Some(tree) = trees.values().find(|tree| is_index(tree)) {
            self.tally.see(tree);
        }
        let stats = self.db.group().stats();
        Some(Written {
            index: (
                self.tally.flushed,
                self.tally.flushed + self.tally.compacted,
            ),
            all: (
                stats.flush_bytes,
                stats.flush_bytes + stats.merge_write_bytes,
            ),
        })
    }

    fn runs(&self) -> usize {
        let snapshot = self.db.group().snapshot();
        let mut trees = snapshot.version().trees.values();
        trees
            .find(|tree| is_index(tree))
            .map_or(0, |tree| tree.runs.len())
    }
}

fn is_index(tree: &TreeVersion) -> bool {
    tree.name.contains("/index/")
}

/// What was written to one tree, by its tables: the store's own counters are of all trees together.
#[derive(Debug, Default)]
struct Tally {
    /// Tables that were there the last time.
    tables: HashSet<u64>,
    /// The last write of the newest of them.
    newest: Seq,
    flushed: u64,
    compacted: u64,
}

impl Tally {
    fn see(&mut self, tree: &TreeVersion) {
        let tables: HashSet<u64> = tree.tables().map(|table| table.meta().number).collect();
        let newest = self.newest;
        for table in tree.tables() {
            let meta = table.meta();
            if self.tables.contains(&meta.number) {
                continue;
            }
            // What a flush writes is newer than everything before; a compaction has older things, too.
            match meta.min_seq > newest {
                true => self.flushed += meta.size,
                false => self.compacted += meta.size,
            }
            self.newest = self.newest.max(meta.max_seq);
        }
        self.tables = tables;
    }
}
