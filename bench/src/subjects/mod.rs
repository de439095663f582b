//! What is measured: Esker with each kind of index, and its peers. One file each.
//!
//! All get the same records, and all do the same work: a put writes the record and keeps both
//! attributes findable, atomically, in the page cache when it returns; a find gives whole records,
//! newest written first.

mod esker;
mod fjall;
mod keyed;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::failure::{Failure, Result};
use crate::workload::{Find, Record};

/// What an answer is handed to, record by record (the JSON).
pub type Visit<'a> = &'a mut dyn FnMut(&[u8]);

/// A store with the tweets in it.
pub trait Subject {
    /// Writes a record, new or in the place of another.
    fn put(&mut self, record: &Record<'_>) -> Result<()>;

    /// Reads a record by its key.
    fn get(&mut self, key: u64, visit: Visit<'_>) -> Result<()>;

    /// Finds records by an attribute. Only asked of subjects with indexes.
    fn find(&mut self, find: &Find, visit: Visit<'_>) -> Result<()>;

    /// Writes what is in memory to where it belongs, and waits until nothing is left to do in the
    /// background.
    fn settle(&mut self) -> Result<()>;

    /// What several threads may do at once, of subjects that are measured so.
    fn shared(&self) -> Option<&dyn Reads> {
        None
    }

    /// What several threads may write at once, of subjects that are measured so.
    fn shared_writes(&self) -> Option<&dyn Writes> {
        None
    }

    /// The subject's own counters since it was opened, by name. `blocks_read` and `blocks_cached`
    /// where it knows them.
    fn counters(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }
}

/// Reads by any number of threads.
pub trait Reads: Sync {
    /// As [`Subject::get`].
    fn get(&self, key: u64, visit: Visit<'_>) -> Result<()>;

    /// As [`Subject::find`].
    fn find(&self, find: &Find, visit: Visit<'_>) -> Result<()>;
}

/// Puts a record.
pub type Put<'a> = Box<dyn FnMut(&Record<'_>) -> Result<()> + 'a>;

/// Writes by any number of threads, of records without an index.
pub trait Writes: Sync {
    /// What one thread writes with. A put is on disk when it returns, or without `synced` in the page cache.
    fn writer(&self, synced: bool) -> Result<Put<'_>>;
}

/// Where and how a subject is opened.
#[derive(Debug, Clone)]
pub struct Setup {
    /// A folder of its own, empty.
    pub dir: PathBuf,
    /// Bytes of block cache.
    pub cache_bytes: usize,
    /// True when nothing but that cache may cache: reads (and writes of tables) go round the page
    /// cache. Only Esker and RocksDB can.
    pub direct: bool,
}

/// How the hand-made indexes of a key-value store are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Indexes {
    /// There are none.
    None,
    /// Entries are only ever added; what a read finds through them is checked against the record.
    Blind,
    /// A put reads the old record first, and removes its entries.
    Eager,
}

/// Tells whether the subject with this name can be asked by attribute.
pub fn has_indexes(name: &str) -> bool {
    !name.ends_with(" none")
}

/// Tells whether the subject with this name was compiled in.
pub fn is_built(name: &str) -> bool {
    cfg!(feature = "rocksdb") || !name.starts_with("rocksdb ")
}

/// Opens the subject with this name: `esker KIND`, `esker KIND+KIND` (of `user_id` and of
/// `created_at`), `rocksdb|fjall none|blind|eager`, `lmdb eager`, `redb eager`, `sqlite off|normal`.
pub fn open(name: &str, setup: &Setup) -> Result<Box<dyn Subject>> {
    let (store, how) = name.split_once(' ').unwrap_or((name, ""));
    let indexes = match how {
        "none" => Some(Indexes::None),
        "blind" => Some(Indexes::Blind),
        "eager" => Some(Indexes::Eager),
        _ => None,
    };
    Ok(match (store, indexes) {
        ("esker", _) => Box::new(esker::Esker::open(how, setup)?),
        #[cfg(feature = "rocksdb")]
        ("rocksdb", Some(indexes)) => Box::new(rocksdb::Rocks::open(indexes, setup)?),
        _ if !is_built(name) => return Err(Failure::new("built without RocksDB")),
        ("fjall", Some(indexes)) => Box::new(fjall::Fjall::open(indexes, setup)?),
        ("lmdb", Some(Indexes::Eager)) => Box::new(lmdb::Lmdb::open(setup)?),
        ("redb", Some(Indexes::Eager)) => Box::new(redb::Redb::open(setup)?),
        ("sqlite", None) => Box::new(sqlite::Sqlite::open(how, setup)?),
        _ => return Err(Failure::new(format!("there is no subject `{name}`"))),
    })
}
