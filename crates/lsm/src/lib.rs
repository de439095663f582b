//! The storage engine of Esker: several log-structured merge trees over one log, with extension
//! points.
//!
//! The engine knows keys, values, sequence numbers and components. Records, topics and points are
//! defined by the crates above it, which extend it at six points: an [`attributes::Extractor`] says
//! which attributes tables index per block, a [`digest::Digester`] what a table keeps about all of
//! its entries, a [`merge::MergeOperator`] combines blindly appended operands, a
//! [`merge::CompactionFilterFactory`] drops or rewrites entries in compactions, a
//! [`CompactionPolicy`] chooses what is compacted, a [`Partitioner`] where tables are cut.
//!
//! # The write path
//!
//! [`Batch`] encodes each write once -> `group/commit.rs` gives it sequence numbers, appends it to
//! the log (`wal/`) and inserts it into the memtables (`memtable/`) of the active generation
//! (`generation.rs`) -> a full generation is written to tables (`group/flush.rs`,
//! `compaction/job.rs`, `table/builder.rs`), and a new version (`version/`) is installed.
//!
//! # The read path
//!
//! [`Snapshot`] pins memtables and a version (`read/snapshot.rs`) -> newest component first:
//! memtables, then of each run the one table that can hold the key: its filter, its index, one
//! block (`table/reader.rs`), through the cache (`cache.rs`).
//!
//! # Compaction
//!
//! A policy chooses (`compaction/leveled.rs`, `tiered.rs`) -> the job merges the runs
//! (`merge/cursor.rs`), drops what is obsolete (`merge/stream.rs`), writes tables, and an edit in
//! the manifest makes them the current version.
//!
//! A group can also live on a log that is not its own ([`LogMode`]), and other crates' logs can
//! have the engine's framing ([`wal::LogFormat`]).
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use esker_lsm::{Batch, Cost, Durability, Group, Options, PlainTrees};
//!
//! # fn main() -> esker_lsm::Result<()> {
//! # let fs = Arc::new(esker_sim::memory::Memory::new());
//! let options = Options { fs, ..Options::default() };
//! let group = Group::open("/store".as_ref(), options, Arc::new(PlainTrees), true)?;
//! let trees = group.create_trees(&[("data".into(), vec![]), ("index".into(), vec![])])?;
//! let mut batch = Batch::new();
//! batch.put(trees[0], b"k1", b"red")?;
//! batch.also(esker_lsm::Kind::Put, trees[1], b"red/k1", b"")?;
//! let seq = group.write(&mut batch, Durability::Sync)?;
//! let found = group.snapshot().get(trees[0], b"k1", &Cost::default())?.unwrap();
//! assert_eq!((found.seq, &found.value[..]), (seq, &b"red"[..]));
//! group.close()
//! # }
//! ```

// The layers of these modules: `../layers.txt`.

pub mod attributes;
mod batch;
mod budget;
mod cache;
mod check;
mod checkpoint;
pub mod coding;
mod compaction;
mod cost;
mod cursor;
pub mod digest;
pub mod entry;
mod error;
mod expiry;
mod folder;
pub mod fs;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod generation;
mod group;
mod ingest;
pub mod memtable;
pub mod merge;
mod obsolete;
mod options;
pub mod read;
mod signal;
pub mod sort;
mod stats;
mod stop;
mod stripe;
pub mod synopsis;
pub mod table;
pub mod version;
pub mod wal;

pub use batch::{Batch, Savepoint, ShowWrite, TreeId};
pub use budget::{Account, Budget, Loan, MemoryUse};
pub use cache::BlockCache;
pub use check::CheckReport;
pub use compaction::{LazyLeveled, Leveled, NextTable, RunSink, Tiered, WriteRun, held};
pub use cost::Cost;
pub use cursor::Cursor;
pub use entry::{Kind, MAX_SEQ, Position, Seq, Time, Timed};
pub use error::{Error, Result};
pub use esker_coding::Slice;
pub use expiry::{Clock, LARGEST_JUMP};
pub use group::{
    Commit, Complete, EndedJob, Group, Job, JobDescription, JobFailure, JobKind, LogConsumer,
    NamedSnapshot, Observer, Retry, RunningJob, ShowOperation, Tail, Ticket, TreeChange, Why,
};
pub use obsolete::{SeqSet, Superseded};
pub use options::{BitmapMerges, Durability, KeepLog, LogMode, Options};
pub use read::{
    Component, Entries, EntryCursor, Expected, Found, Lookup, LookupOptions, Snapshot, TreeCursor,
    WalkEntry,
};
pub use signal::{Listening, Signal, Wake};
pub use stats::Stats;
pub use stop::Stop;
pub use stripe::{LazyStriped, Striped};
pub use version::{
    Action, Choice, CompactionPolicy, Cutter, Cutting, DropPolicy, MOST_PARTS, Partitioner,
    PlainTrees, SupersededBy, TreeOptions, TreeProvider,
};
