//! How a tree group and its trees are set up.

use std::sync::Arc;
use std::time::Duration;

use crate::attributes::Extractor;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::fs::disk::Disk;
use crate::merge::{MergeFilter, MergeOperator};
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

/// Tells the time: milliseconds since 1970.
pub type Clock = dyn Fn() -> u64 + Send + Sync;

/// Settings of a tree group.
#[derive(Clone)]
pub struct Options {
    /// Bytes for memtables, block cache, filters and block indexes together. Default 128 MiB.
    pub memory_budget: usize,
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
    /// The clock that the log's age is told by. Default: the system's.
    pub clock: Arc<Clock>,
    /// Bytes that the set of a bitmap tree may have beyond some for each entry of the trees that name it: when it has more,
    /// the numbers are looked for that no tree has anything of any more. Default 16 KiB.
    pub bitmap_slack: usize,
    /// Flush and merge on threads of the group's own. Without them both happen in the calls that
    /// make them necessary, which makes a run deterministic. Default true.
    pub background: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_budget: 128 << 20,
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
        }
    }
}

/// The largest block: a reader holds some at once.
const MAX_BLOCK: usize = 16 << 20;

/// The most bits of a filter per value or key.
const MAX_BITS: usize = 64;

/// The most that the cache is made for: its tables are laid out for as many blocks as it may hold.
const MAX_CACHE: usize = 1 << 40;

impl Options {
    /// The time by which the log's age is told; 0 where nobody asks for it, so that what is written does not depend on it.
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

    /// Bytes of memtables at which a generation is full: an eighth of the budget. With one
    /// generation filling and two being flushed, memtables stay within three eighths.
    pub(crate) fn generation_bytes(&self) -> usize {
        (self.memory_budget / 8).max(64 << 10)
    }

    /// The block cache's share: half of the budget. The last eighth is left to merge buffers and
    /// the pinned top of the block indexes.
    pub(crate) fn cache_bytes(&self) -> usize {
        (self.memory_budget / 2).min(MAX_CACHE)
    }
}

/// Which components of a tree are merged, and when.
#[derive(Debug, Clone, PartialEq)]
pub enum Policy {
    /// LevelDB's: one run per level below level 0, each ten times the size of the one above; a merge
    /// takes one table of a level, round robin over the keys, and those that it overlaps below.
    Leveled(Leveled),
    /// AsterixDB's: runs of level 0 only; a sequence of them is merged when the younger ones
    /// together outgrow the oldest by a ratio (Luo & Carey section 2.1).
    Tiered(Tiered),
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::Leveled(Leveled::default())
    }
}

/// Sizes of a leveled tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Leveled {
    /// Runs of level 0 at which they are merged into level 1.
    pub level0_runs: usize,
    /// Bytes that level 1 may hold.
    pub level1_bytes: u64,
    /// How many times more each further level may hold.
    pub multiplier: u64,
}

impl Default for Leveled {
    fn default() -> Leveled {
        Leveled {
            level0_runs: 4,
            level1_bytes: 64 << 20,
            multiplier: 10,
        }
    }
}

/// Sizes of a tiered tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Tiered {
    /// A sequence of runs is merged when the younger ones together are this many times the size of
    /// its oldest.
    pub ratio: f64,
    /// A run of more bytes than this is never merged again.
    pub largest_mergeable: u64,
}

impl Default for Tiered {
    fn default() -> Tiered {
        Tiered {
            ratio: 1.2,
            largest_mergeable: 64 << 30,
        }
    }
}

/// The bitmap tree that says which writes to a tree are over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupersededBy {
    /// Its name. Merges leave out puts whose sequence number is in it; where the tree has a [`MergeFilter`] it
    /// is for the filter, which is told of it.
    pub tree: String,
    /// What flushes and merges do about puts that they leave out because newer versions of the key are
    /// there.
    pub leaves_out: LeavesOut,
}

/// How flushes and merges leave out a put that has enough newer versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeavesOut {
    /// Nobody is told.
    Silently,
    /// Its number goes to the bitmap tree, in the same step.
    Told,
    /// Only once the bitmap tree's mark has passed the write that replaced it: until then it is kept, to be
    /// found by a scan.
    Repaired,
    /// Nobody is told, and puts whose number is in the bitmap tree stay, too. Queries alone pass over them.
    Regardless,
}

/// Settings of one tree. They are code, so they are not stored: a [`TreeProvider`] gives them again
/// at every opening.
#[derive(Clone)]
pub struct TreeOptions {
    /// Attributes of the tree's entries, for synopses and memtable maps.
    pub extractor: Option<Arc<dyn Extractor>>,
    /// Combines operands; a tree without one keeps operands apart.
    pub operator: Option<Arc<dyn MergeOperator>>,
    /// May drop or rewrite entries as they are merged.
    pub filter: Option<Arc<dyn MergeFilter>>,
    /// Which components are merged, and when.
    pub policy: Policy,
    /// How many versions of a key survive merges (at least 1).
    pub versions: usize,
    /// Bits of key filter per key; 0 for none (a tree that is never asked for single keys).
    pub filter_bits_per_key: usize,
    /// The name of a tree whose merges this one repeats on its own components of the same IDs
    /// (correlated merging, Luo & Carey section 4.1). Needs a tiered policy on both.
    pub follows: Option<String>,
    /// True for a bitmap tree: what is written to it are sequence numbers ([`crate::entry::seq_key`]) with empty values,
    /// nothing is ever deleted from it, its tables hold chunks of numbers, and are kept in memory as a [`crate::SeqSet`]
    /// ([`crate::Snapshot::superseded`]). Numbers that nobody can ask about any more are forgotten.
    pub bitmap: bool,
    /// Which writes to this tree are over, where something keeps account of that.
    pub superseded: Option<SupersededBy>,
    /// Older entries are still to come ([`crate::Group::ingest_oldest`]), so anti-matter is kept even
    /// where nothing older is there yet.
    pub incomplete: bool,
}

impl Default for TreeOptions {
    fn default() -> TreeOptions {
        TreeOptions {
            extractor: None,
            operator: None,
            filter: None,
            policy: Policy::default(),
            versions: 1,
            filter_bits_per_key: 10,
            follows: None,
            bitmap: false,
            superseded: None,
            incomplete: false,
        }
    }
}

impl TreeOptions {
    /// The same with each number where it makes sense: what a provider says is code, so there is nobody to
    /// refuse it to.
    pub(crate) fn bounded(mut self) -> TreeOptions {
        self.versions = self.versions.max(1);
        self.filter_bits_per_key = self.filter_bits_per_key.min(MAX_BITS);
        if let Policy::Leveled(leveled) = &mut self.policy {
            leveled.level0_runs = leveled.level0_runs.clamp(1, 1 << 20);
            leveled.level1_bytes = leveled.level1_bytes.max(1);
            leveled.multiplier = leveled.multiplier.max(2);
        }
        self
    }

    /// True when flushes and merges leave one version of a key.
    pub(crate) fn keeps_one(&self) -> bool {
        let by = self.superseded.as_ref();
        self.versions <= 1 && by.is_none_or(|by| by.leaves_out != LeavesOut::Repaired)
    }
}

/// Gives each tree its options, when a group is opened and when a tree is created or its
/// configuration changed.
pub trait TreeProvider: Send + Sync {
    /// The options of the tree that was created with this name and these configuration bytes.
    /// [`Error::Invalid`](crate::Error::Invalid) refuses them; of a tree that is there already that is damage.
    fn tree_options(&self, name: &str, config: &[u8]) -> Result<TreeOptions>;
}

/// A provider for groups whose trees are all plain.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainTrees;

impl TreeProvider for PlainTrees {
    fn tree_options(&self, _name: &str, _config: &[u8]) -> Result<TreeOptions> {
        Ok(TreeOptions::default())
    }
}
