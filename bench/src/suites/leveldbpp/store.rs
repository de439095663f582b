//! Esker with one index, as the experiments ask it.

use std::path::Path as FsPath;

use esker::schema::Merging;
use esker::{
    Database, Dataset, DatasetDef, Durability, IndexKind, Key, KeyType, Operand, Options, Path,
    Type, Value, WriteBatch, field,
};
use esker_lsm::{Cost, Stats};

use super::data::Set;
use crate::failure::{Failure, Result};
use crate::workload::{Attribute, Find};

/// How a store is set up.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The indexed attribute, if any, and how it is indexed.
    pub index: Option<(Attribute, IndexKind)>,
    /// Bytes of memory in all.
    pub memory: usize,
    /// Bytes of a table file.
    pub table_size: u64,
    /// Compress blocks.
    pub compress: bool,
    /// Bits per distinct value of a block in the filters of embedded indexes.
    pub value_filter_bits: usize,
}

/// A store with one dataset. Cloned readers can be used from other threads.
pub struct Store {
    db: Database,
    batch: WriteBatch,
    /// What questions are asked of.
    pub reader: Reader,
}

/// What questions are asked of.
#[derive(Clone)]
pub struct Reader {
    dataset: Dataset,
    set: Set,
    user: Path,
    time: Path,
}

/// What a question cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    /// Questions that this is the mean of.
    pub questions: usize,
    /// Records answered.
    pub answers: f64,
    /// Candidates that the index gave.
    pub candidates: f64,
    /// Data blocks of the data tree.
    pub data_blocks: f64,
    /// Data blocks of the index tree.
    pub index_blocks: f64,
    /// Zone maps and filters of blocks asked.
    pub synopses: f64,
}

/// What a tree is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shape {
    /// Sorted runs on disk: the `L` of the papers' formulas.
    pub runs: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

impl Store {
    /// Makes a store in `dir`.
    pub fn create(dir: &FsPath, set: &Set, setup: &Setup) -> Result<Store> {
        let options = Options::new()
            .memory_budget(setup.memory)
            .table_size(setup.table_size)
            .engine(|engine| {
                engine.compress = setup.compress;
                engine.value_filter_bits = setup.value_filter_bits;
            })
            .durability(Durability::Os);
        let db = Database::create_or_open(dir, options)?;
        let (user, user_type) = set.user();
        let (user, time): (Path, Path) = (user.parse()?, set.time().parse()?);
        // As LevelDB++ has them.
        let mut def = DatasetDef::new("id", KeyType::Int).merging(Merging::Leveled);
        def = match setup.index {
            Some((Attribute::User, kind)) => {
                def.index(user.clone(), esker::Index::new(kind).of_type(user_type))
            }
            Some((Attribute::Time, kind)) => {
                def.index(time.clone(), esker::Index::new(kind).of_type(Type::Int))
            }
            None => def,
        };
        let dataset = db.create_dataset::<esker::Key>("records", def)?;
        let batch = dataset.batch();
        let reader = Reader {
            dataset,
            set: set.clone(),
            user,
            time,
        };
        Ok(Store { db, batch, reader })
    }

    /// Writes a record.
    pub fn put(&mut self, body: &[u8]) -> Result<()> {
        self.batch.put_json(body)?;
        Ok(self.batch.durability(Durability::Os).commit()?)
    }

    /// Flushes, and merges until nothing is left to merge.
    pub fn settle(&self) -> Result<()> {
        self.db.flush()?;
        Ok(self.db.group().run_compactions()?)
    }

    /// The engine's counters since the store was opened.
    pub fn stats(&self) -> Stats {
        self.db.group().stats()
    }

    /// The data tree and the index tree (empty without one).
    pub fn shapes(&self) -> Result<(Shape, Shape)> {
        let snapshot = self.db.group().snapshot();
        let (mut data, mut index) = (Shape::default(), Shape::default());
        for tree in snapshot.version().trees.values() {
            let shape = if tree.name.ends_with("/data") {
                &mut data
            } else {
                &mut index
            };
            shape.runs += tree.runs.len() as u64;
            shape.bytes += tree.size();
            for file in tree.runs.iter().flat_map(|run| run.tables.iter()) {
                shape.entries += file.meta().entries;
                let (table, mut hints) = (file.table()?, Vec::new());
                for partition in 0..table.partitions() {
                    table.all_blocks(partition, &Cost::default(), &mut hints)?;
                }
                shape.blocks += hints.len() as u64;
            }
        }
        Ok((data, index))
    }
}

impl Reader {
    /// Reads a record.
    pub fn get(&self, key: u64, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let key = Key::new(KeyType::Int, &Value::Int(i128::from(key))).map_err(Failure::new)?;
        if let Some(record) = self.dataset.get(&key)? {
            visit(record.json());
        }
        Ok(())
    }

    fn query(&self, find: &Find) -> esker::Query {
        let path = match find.attribute {
            Attribute::User => &self.user,
            Attribute::Time => &self.time,
        };
        let text = |value| self.set.text(find.attribute, value);
        let query = self.dataset.query().limit(find.limit);
        match find.lo == find.hi {
            true => query.filter(field(path).eq(Operand::text(text(find.lo)))),
            false => query.filter(
                field(path).range(Operand::text(text(find.lo))..=Operand::text(text(find.hi))),
            ),
        }
    }

    /// Finds records.
    pub fn find(&self, find: &Find, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        for record in self.query(find).run()? {
            visit(record?.json());
        }
        Ok(())
    }

    /// Finds records, and tells what that cost.
    pub fn cost(&self, find: &Find) -> Result<Spent> {
        let mut answer = self.query(find).run()?;
        for record in &mut answer {
            record?;
        }
        let told = answer.explain();
        Ok(Spent {
            questions: 1,
            answers: told.steps.answers as f64,
            candidates: told.steps.candidates as f64,
            data_blocks: told.cost.data.data_blocks as f64,
            index_blocks: told.cost.index.unwrap_or_default().data_blocks as f64,
            synopses: told.cost.data.synopses_probed as f64,
        })
    }
}
