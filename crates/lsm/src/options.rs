//! How a tree group is set up. Its trees: `version/tree_options.rs`.

use std::sync::Arc;
use std::time::Duration;

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::expiry::Clock;
use crate::fs::Fs;
use crate::fs::disk::Disk;
use crate::synopsis::BITS_PER_VALUE;

/// When a write counts as done. A batch is never torn, whichever is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk before the write returns: nothing acknowledged is ever lost. Concurrent writers share one sync.
    Sync,
    /// On disk at the latest this long after the write returns: a power cut loses at most that
    /// long; a killed process loses nothing. Less than a millisecond is the same as `Sync`; more than a day
    /// counts as a day.
    Periodic(Duration),
    /// On disk when the operating system sees fit: a power cut loses what it had not written; a
    /// killed process loses nothing.
    Os,
}

/// How a merge copes with bits of a bitmap tree that are set while it reads (Luo & Carey section 5.3).
/// Neither loses one: bits belong to sequence numbers, which the merged component keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BitmapMerges {
    /// The merge works with the bitmap as it was when it began; what is set meanwhile counts when
    /// it has ended. No locking.
    #[default]
    SideFile,
    /// The merge asks the bitmap of the moment for each entry, so what is set meanwhile is left out
    /// at once where the merge has not passed it.
    Lock,
}

/// How much of the log is kept behind the flushes, for [`Group::tail`](crate::Group::tail). Default: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeepLog {
    /// The last so many bytes, in whole segments.
    pub bytes: u64,
    /// What was written in this time, up to so many bytes.
    pub age: Option<(Duration, u64)>,
}

/// Settings of a tree group.
#[derive(Clone)]
pub struct Options {
    /// Bytes for memtables, block cache, filters, block indexes, obsolete sets, and what queries, builds, repairs and compactions
    /// borrow ([`Budget`]). Default 128 MiB.
    pub memory_budget: usize,
    /// A budget that other stores have a share of, too, in place of one of this store's own of `memory_budget` bytes; that still says
    /// how large memtables and loans become. Default none.
    pub budget: Option<Arc<Budget>>,
    /// The file system. Default: the disk.
    pub fs: Arc<dyn Fs>,
    /// Size of a table file at which a merge starts the next one, in bytes, at least 1. Default 32 MiB.
    pub table_size: u64,
    /// Size of a data block before compression, in bytes: 1 to 16 MiB. Default 4 KiB.
    pub block_size: usize,
    /// Compress blocks with LZ4. Default true.
    pub compress: bool,
    /// Bits of value filters (of attributes, per data block) per distinct value; 0 for none. Default 16:
    /// 0.1 % of the blocks without a value say "maybe". More buys little: a value always sets six bits. At most 64.
    pub value_filter_bits: usize,
    /// Key filters whose bits of one key lie in one cache line; without, anywhere in the filter. Tables
    /// of both kinds can be read. Default true.
    pub blocked_filter: bool,
    /// What merges do about bits of a bitmap tree that are set meanwhile. Default: side file.
    pub bitmap_merges: BitmapMerges,
    /// A flush, or a job of merges, that writes to so many trees puts their small tables into one file, which is made
    /// and synced once; with fewer, each has a file of its own. Default 8.
    pub share_from: usize,
    /// How much of the log is kept.
    pub keep_log: KeepLog,
    /// The clock by which entries expire, and by which the log's age is measured. Default: the system's.
    pub clock: Arc<Clock>,
    /// Bytes that the set of a bitmap tree may have beyond some for each entry of the trees that name it: when it has more,
    /// the numbers are looked for that no tree has anything of any more. Default 16 KiB.
    pub bitmap_slack: usize,
    /// Flush and merge on threads of the group's own. Without them both happen in the calls that
    /// make them necessary, which makes a run deterministic. Default true.
    pub background: bool,
    /// With `background`: how many threads compact, each a job at a time, of other trees; large jobs are done by several. 0, the default:
    /// as many as the machine has cores. At most 64.
    pub compaction_threads: usize,
    /// Bytes per second that compactions may write, all together. Flushes are not held up. Default: as fast as it goes.
    pub compaction_rate: Option<u64>,
    /// For tests: merges of more bytes are done in pieces of so many, whoever does them.
    #[doc(hidden)]
    pub piece_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_budget: 128 << 20,
            budget: None,
            fs: Arc::new(Disk::new()),
            table_size: 32 << 20,
            block_size: 4 << 10,
            compress: true,
            value_filter_bits: BITS_PER_VALUE,
            blocked_filter: true,
            bitmap_merges: BitmapMerges::default(),
            share_from: 8,
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

/// The largest block: a reader holds some at once.
const MAX_BLOCK: usize = 16 << 20;

/// The most bits of a filter per value or key.
pub(crate) const MAX_BITS: usize = 64;

/// The most threads that compact.
const MOST_THREADS: usize = 64;

impl Options {
    /// The budget of a group that is opened with these settings.
    pub(crate) fn make_budget(&self) -> Arc<Budget> {
        let own = || Budget::new(self.memory_budget, self.background);
        self.budget.clone().unwrap_or_else(own)
    }

    /// The time by which the log's age is measured; 0 where nobody asks for it, so that what is written does not depend on it.
    pub(crate) fn log_time(&self) -> u64 {
        self.keep_log.age.map_or(0, |_| (self.clock)())
    }

    /// Refuses what cannot be meant.
    pub(crate) fn check(&self) -> Result<()> {
        let limit = |what, limit: usize, value: usize| match value > limit {
            true => Err(Error::Limit {
                what,
                limit: limit as u64,
                value: value as u64,
            }),
            false => Ok(()),
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
        limit("value_filter_bits", MAX_BITS, self.value_filter_bits)
    }

    /// How many threads compact.
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
