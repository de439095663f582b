//! The settings of a tree group. Those of its trees: `version/tree.rs`.

use std::sync::Arc;
use std::time::Duration;

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::expiry::Clock;
use crate::fs::Fs;
use crate::fs::disk::Disk;
use crate::synopsis::BITS_PER_VALUE;

/// When a write is acknowledged. A batch is atomic in each case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk before the write returns: no acknowledged write is ever lost. Concurrent writers
    /// share one sync.
    Sync,
    /// On disk at most this long after the write returns: a power cut loses at most that much; a
    /// killed process loses nothing. Less than a millisecond is the same as `Sync`; more than a day
    /// counts as a day.
    Periodic(Duration),
    /// On disk when the operating system writes it: a power cut loses what it had not written; a
    /// killed process loses nothing.
    Os,
}

/// How a compaction handles bits of a bitmap tree that are set while it reads (Luo & Carey section
/// 5.3). Neither way loses a bit: bits belong to sequence numbers, which the output component
/// keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BitmapMerges {
    /// The compaction uses the bitmap as of its start; bits set meanwhile apply when it has ended.
    /// No locking.
    #[default]
    SideFile,
    /// The compaction probes the current bitmap for each entry, so bits set meanwhile apply at once
    /// to the entries still to come. A baseline of the papers.
    Lock,
}

/// How much of the flushed log is retained for [`Group::tail`](crate::Group::tail). Default:
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeepLog {
    /// The last `bytes`, in whole segments.
    pub bytes: u64,
    /// The writes of the last so much time, up to so many bytes.
    pub age: Option<(Duration, u64)>,
}

/// Whose log makes the writes of a group durable. A store has one kind for life.
///
/// # A log of another
///
/// With [`External`](LogMode::External) the caller has a log, a replicated one for example, and the
/// group is the state that follows from it. A batch goes to the memtables alone: the group writes
/// no log, replays none, ignores [`Durability`], and acknowledges a batch at once. What is in
/// memtables is lost with the process.
///
/// The contract, for a caller whose log numbers its entries:
///
/// - An entry is durable in the caller's log before its batch is written here. Otherwise tables may
///   hold what the log lacks.
/// - Each batch also puts the number of its entry under one key, say `applied`. A batch is atomic,
///   and all trees of a generation are flushed together, by one record of the manifest: so whenever
///   the store is opened, the value of `applied` is the exact entry up to which all trees are. The
///   caller applies the entries behind it again.
/// - The log may drop entries up to the number that was `applied` as of
///   [`Group::durable_seq`](crate::Group::durable_seq), the last write of this group that is in
///   tables. [`Group::flush`](crate::Group::flush) moves it on, and
///   [`Group::close`](crate::Group::close) flushes everything.
/// - Trees are created, configured and dropped durably, at once. Who drops a tree flushes before,
///   so that no entry that is applied again writes to it; who creates one expects it to be there
///   when the entries are applied again.
/// - What is loaded past the log is durable at once, too: [`Group::ingest`](crate::Group::ingest)
///   flushes what was written before.
///
/// [`Group::checkpoint`](crate::Group::checkpoint) and named snapshots hold the state as of one
/// batch, `applied` included. Sequence numbers are the group's own: an entry that is applied again
/// gets other numbers.
///
/// What reads the log has none to read, and is refused with [`Error::NoLog`]:
/// [`Group::tail`](crate::Group::tail), observers, consumers
/// ([`Group::keep_log_for`](crate::Group::keep_log_for)), [`Options::keep_log`], and readers beside
/// the writer ([`Group::open_reader`](crate::Group::open_reader)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogMode {
    /// The group has a log of its own.
    #[default]
    Own,
    /// The caller has one.
    External,
}

/// Settings of a tree group.
#[derive(Clone)]
pub struct Options {
    /// Bytes for memtables, block cache, filters, block indexes, obsolete sets, and the loans of
    /// queries, builds, repairs and compactions ([`Budget`]). Default 128 MiB.
    pub memory_budget: usize,
    /// A budget shared with other stores, in place of one of this store's own of `memory_budget`
    /// bytes; that setting still sizes memtables and loans. Default none.
    pub budget: Option<Arc<Budget>>,
    /// The file system. Default: the disk.
    pub fs: Arc<dyn Fs>,
    /// Read tables through maps of their files (`mmap`). Default false.
    ///
    /// A block that is stored without compression is used where it lies: no copy, no system call,
    /// and no place in the block cache, since the page cache has it. A compressed one goes to the
    /// block cache, decompressed straight from the map. It is for data that fits into memory; where
    /// it does not, reads of the file, or direct ones, wait for the disk together and without page
    /// faults. Compactions read files in large pieces in both cases.
    ///
    /// - **An I/O error ends the process.** Where the system cannot read a page of a mapped file,
    ///   the access gets SIGBUS. The library installs no handler. The same access without a map is
    ///   an [`Error::Io`].
    /// - **Tables must not be changed by others.** A file that is truncated under its map gets
    ///   SIGBUS, too. The engine itself never does that. Files on network file systems and FUSE,
    ///   and files that all users may write to, are read, not mapped; who else may write to the
    ///   store's folder, as another user of its group, must not truncate them.
    /// - **Checksums.** A block is verified when it is first touched while the table is open.
    ///   Damage of the disk that begins later is found by [`Group::check`](crate::Group::check).
    ///
    /// Mapped bytes are counted apart from the memory budget ([`MemoryUse::mapped`]). Files are not
    /// mapped, but read as without this option: past the page cache ([`Disk::direct`]), on other
    /// systems than Linux, on file systems of other crates without maps, and where the system
    /// refuses a map.
    ///
    /// [`MemoryUse::mapped`]: crate::MemoryUse::mapped
    pub mapped_reads: bool,
    /// Size of a table file at which a compaction starts the next one, in bytes, at least 1.
    /// Default 32 MiB.
    pub table_size: u64,
    /// Size of a data block before compression, in bytes: 1 to 16 MiB. Default 4 KiB.
    pub block_size: usize,
    /// Compress blocks with LZ4. Default true.
    pub compress: bool,
    /// Bits of value filters (of attributes, per data block) per distinct value; 0 for none.
    /// Default 16: 0.1 % of the blocks without a value answer "maybe". More gains little: a value
    /// always sets six bits. At most 64.
    pub value_filter_bits: usize,
    /// Blocked key filters: the bits of one key lie in one cache line; without, anywhere in the
    /// filter. Tables of both kinds can be read. Default true.
    pub blocked_filter: bool,
    /// How compactions handle bits of a bitmap tree that are set meanwhile. Default: side file.
    pub bitmap_merges: BitmapMerges,
    /// A flush, or a compaction job, that writes to this many trees puts their small tables into
    /// one file, created and synced once; with fewer trees, each table has a file of its own.
    /// Default 8.
    pub share_from: usize,
    /// Whose log it is. Default: the group's own.
    pub log: LogMode,
    /// How much of the flushed log is retained.
    pub keep_log: KeepLog,
    /// The clock for expiry and for the age of the log. Default: the system's.
    pub clock: Arc<Clock>,
    /// Bytes that the set of a bitmap tree may have beyond an allowance per entry of the trees that
    /// read it; a larger set is swept for numbers that no tree has any more. Default 16 KiB.
    pub bitmap_slack: usize,
    /// Flush and compact on background threads. Without them both happen in the calls that make
    /// them necessary, which makes a run deterministic. Default true.
    pub background: bool,
    /// With `background`: the number of compaction threads. Each runs one job at a time, of
    /// different trees; several share a large job. 0, the default: one per core. At most 64.
    pub compaction_threads: usize,
    /// Bytes per second that all compactions together may write. Flushes are not limited. Default:
    /// no limit.
    pub compaction_rate: Option<u64>,
    /// For tests: compactions of more bytes are done in pieces of this size, for any number of
    /// threads.
    #[doc(hidden)]
    pub piece_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_budget: 128 << 20,
            budget: None,
            fs: Arc::new(Disk::new()),
            mapped_reads: false,
            table_size: 32 << 20,
            block_size: 4 << 10,
            compress: true,
            value_filter_bits: BITS_PER_VALUE,
            blocked_filter: true,
            bitmap_merges: BitmapMerges::default(),
            share_from: 8,
            log: LogMode::default(),
            keep_log: KeepLog::default(),
            clock: Arc::new(|| {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                since.map_or(0, |since| since.as_millis() as u64)
            }),
            bitmap_slack: 16 << 10,
            background: true,
            compaction_threads: 0,
            compaction_rate: None,
            piece_bytes: None,
        }
    }
}

/// The largest block: a reader holds several at once.
const MAX_BLOCK: usize = 16 << 20;

/// The most bits of a filter per value or key: the LevelDB++ paper measures up to 100 (its table
/// 8).
pub(crate) const MAX_BITS: usize = 128;

/// The most compaction threads.
const MOST_THREADS: usize = 64;

impl Options {
    /// The budget for a group with these settings.
    pub(crate) fn make_budget(&self) -> Arc<Budget> {
        let own = || Budget::new(self.memory_budget, self.background);
        self.budget.clone().unwrap_or_else(own)
    }

    /// The time for the log's age; 0 where it is unused, so that the bytes written do not depend on
    /// it.
    pub(crate) fn log_time(&self) -> u64 {
        self.keep_log.age.map_or(0, |_| (self.clock)())
    }

    /// Refuses invalid settings.
    pub(crate) fn check(&self) -> Result<()> {
        let limit = |what, limit: usize, value: usize| {
            if value > limit {
                Err(Error::Limit {
                    what,
                    limit: limit as u64,
                    value: value as u64,
                })
            } else {
                Ok(())
            }
        };
        let least = |what: &str, value: u64| match value {
            0 => Err(Error::Invalid(format!(
                "{what} is 0, and must be 1 at least"
            ))),
            _ => Ok(()),
        };
        least("table_size", self.table_size)?;
        least("block_size", self.block_size as u64)?;
        limit("block_size in bytes", MAX_BLOCK, self.block_size)?;
        limit("value_filter_bits", MAX_BITS, self.value_filter_bits)?;
        if self.keep_log == KeepLog::default() {
            Ok(())
        } else {
            self.needs_log("keep_log")
        }
    }

    /// Refuses what needs a log of the group's own, where there is none.
    pub(crate) fn needs_log(&self, what: &'static str) -> Result<()> {
        match self.log {
            LogMode::Own => Ok(()),
            LogMode::External => Err(Error::NoLog { what }),
        }
    }

    /// The number of compaction threads.
    pub(crate) fn compaction_threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        match (self.background, self.compaction_threads) {
            (false, _) => 1,
            (true, 0) => cores().min(MOST_THREADS),
            (true, threads) => threads.min(MOST_THREADS),
        }
    }

    /// Bytes of memtables at which a generation is full: an eighth of the budget. With one
    /// generation filling and two being flushed, memtables stay within three eighths.
    pub(crate) fn generation_bytes(&self) -> usize {
        (self.memory_budget / 8).max(64 << 10)
    }
}
