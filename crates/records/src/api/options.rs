//! The settings of a store.

use std::sync::Arc;

use esker_lsm::{Budget, Clock, Durability, KeepLog, NextTable};

use crate::error::Result;
use crate::extension::{Extension, Extensions};
use crate::index::IndexTypes;
use crate::trees::Trees;

/// Settings of a store.
///
/// ```
/// use esker::{Database, Durability, Options};
///
/// # fn main() -> esker::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let options = Options::new()
///     .memory_budget(256 << 20)
///     .durability(Durability::Os);
/// let db = Database::create_or_open(dir.path(), options)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Options {
    pub(super) engine: esker_lsm::Options,
    pub(super) durability: Durability,
    pub(super) extensions: Vec<Arc<dyn Extension>>,
    pub(super) index_types: IndexTypes,
    pub(super) automatic_maintenance: bool,
    pub(super) operations_per_choice: u64,
    largest_mergeable: u64,
    next_table: NextTable,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            engine: esker_lsm::Options::default(),
            durability: Durability::Sync,
            extensions: Vec::new(),
            index_types: IndexTypes::new(),
            automatic_maintenance: true,
            operations_per_choice: 8192,
            largest_mergeable: esker_lsm::Tiered::default().largest_mergeable,
            next_table: NextTable::default(),
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// Memory budget in bytes: for memtables (the newest writes), the block cache, filters and
    /// block indexes, and for what queries, index builds, repairs and compactions borrow. Default
    /// 128 MiB.
    #[must_use]
    pub fn memory_budget(mut self, bytes: usize) -> Options {
        self.engine.memory_budget = bytes;
        self
    }

    /// A budget that several stores share; the memory budget still limits the memtables and loans
    /// of this store. Default: none.
    #[must_use]
    pub fn budget(mut self, budget: Arc<Budget>) -> Options {
        self.engine.budget = Some(budget);
        self
    }

    /// The default durability of writes. Default [`Durability::Sync`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// The file system. Default: the disk.
    #[must_use]
    pub fn fs(mut self, fs: Arc<dyn esker_lsm::fs::Fs>) -> Options {
        self.engine.fs = fs;
        self
    }

    /// Compress tables with LZ4. Default true. Tables of both kinds can be read.
    #[must_use]
    pub fn compress(mut self, compress: bool) -> Options {
        self.engine.compress = compress;
        self
    }

    /// Read tables through maps of their files (`mmap`), for data that fits into memory: a block
    /// that is stored without compression is used where the page cache has it, without a copy, a
    /// system call, or memory of the budget. So it gains most with [`Options::compress`] of false.
    /// Default false.
    ///
    /// **An I/O error of a mapped file ends the process**: it is SIGBUS at the access, not an error
    /// of the read, and so is a file that another program truncates. [`esker_lsm::Options`]
    /// (`mapped_reads`) says what else it means, and which files are read nevertheless: those of
    /// other systems than Linux, of network file systems, and those read past the page cache.
    #[must_use]
    pub fn mapped_reads(mut self, mapped: bool) -> Options {
        self.engine.mapped_reads = mapped;
        self
    }

    /// Flush, compact and maintain indexes on background threads. Default true. If false, the calls
    /// that make such work necessary do it, and runs are deterministic.
    #[must_use]
    pub fn background(mut self, background: bool) -> Options {
        self.engine.background = background;
        self
    }

    /// The size in bytes at which a compaction starts the next table file. Default 32 MiB.
    #[must_use]
    pub fn table_size(mut self, bytes: u64) -> Options {
        self.engine.table_size = bytes;
        self
    }

    /// How much log to keep for [change feeds](crate::Dataset::changes), beyond the writes that are
    /// not in tables yet: the last bytes, the writes of a period up to a number of bytes, or both.
    /// Default: nothing.
    #[must_use]
    pub fn keep_log(mut self, keep: KeepLog) -> Options {
        self.engine.keep_log = keep;
        self
    }

    /// Adds a capability with its own trees in the store ([`crate::extension`]). A store that has
    /// trees of an extension must be opened with it. Default: none.
    #[must_use]
    pub fn extension(mut self, extension: Arc<dyn Extension>) -> Options {
        self.extensions.push(extension);
        self
    }

    /// True if an extension of this name was added.
    pub fn has_extension(&self, name: &str) -> bool {
        self.extensions
            .iter()
            .any(|extension| extension.name() == name)
    }

    /// Index types of other crates ([`crate::extension::index`]). A store that has indexes of such
    /// a type must be opened with it. Replaces types that were set before. Default: none.
    #[must_use]
    pub fn index_types(mut self, types: IndexTypes) -> Options {
        self.index_types = types;
        self
    }

    /// The clock for expiry and for the age of the kept log, in milliseconds since 1970. Default:
    /// the system's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<Clock>) -> Options {
        self.engine.clock = clock;
        self
    }

    /// For benchmarks and tests: changes settings of the engine.
    #[doc(hidden)]
    #[must_use]
    pub fn engine(mut self, change: impl FnOnce(&mut esker_lsm::Options)) -> Options {
        change(&mut self.engine);
        self
    }

    /// For benchmarks: the largest run in bytes that a tiered tree still compacts. Default
    /// 64 GiB.
    #[doc(hidden)]
    #[must_use]
    pub fn largest_mergeable(mut self, bytes: u64) -> Options {
        self.largest_mergeable = bytes;
        self
    }

    /// For benchmarks: which table of a level to compact next. Default: each in turn.
    #[doc(hidden)]
    #[must_use]
    pub fn next_table(mut self, next: NextTable) -> Options {
        self.next_table = next;
        self
    }

    /// For tests: repairs, strategy choices, and the rest of interrupted changes run automatically
    /// when they are due: on a background thread, or without background threads within writes.
    /// Default true.
    #[doc(hidden)]
    #[must_use]
    pub fn automatic_maintenance(mut self, on: bool) -> Options {
        self.automatic_maintenance = on;
        self
    }

    /// For tests: the number of operations on a dataset with an automatic strategy after which the
    /// strategy is chosen again. Default 8192.
    #[doc(hidden)]
    #[must_use]
    pub fn operations_per_choice(mut self, operations: u64) -> Options {
        self.operations_per_choice = operations;
        self
    }

    /// The engine's options, and the options of the trees.
    pub(super) fn engine_and_trees(&self) -> Result<(esker_lsm::Options, Trees)> {
        let trees = Trees {
            table_size: self.engine.table_size,
            largest_mergeable: self.largest_mergeable,
            next_table: self.next_table,
            extensions: Extensions::new(&self.extensions)?,
            index_types: self.index_types.clone(),
        };
        Ok((self.engine.clone(), trees))
    }
}
