//! The settings of a repair, its progress and its result.

use std::ops::ControlFlow;
use std::time::Duration;

use esker_lsm::Seq;
use serde::{Deserialize, Serialize};

/// How the repair finds obsolete writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RepairMethod {
    /// By key if compactions of the primary-key index report their drops, otherwise from the
    /// records if their compactions do, otherwise by index.
    #[default]
    Auto,
    /// Reads the writes since the last repair, and the older writes that they replaced, from the
    /// primary-key index only, for all indexes at once.
    Key,
    /// Handles each index separately: sorts its entries by key and validates them (Luo & Carey,
    /// figure 7).
    Index,
    /// A pass over all versions of all records (DELI, algorithm 3).
    Primary {
        /// Whether the data is compacted, too.
        compaction: Compaction,
    },
}

/// When a repair from the records also compacts them to one sorted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Compaction {
    /// Not at all.
    #[default]
    Without,
    /// The repair comes before the compaction, and reads many runs: the baseline that DELI
    /// measures.
    Before,
    /// The repair comes after the compaction, and reads one run: DELI's staged repair.
    After,
}

/// How the repair finds the entries of known keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Lookups {
    /// Chosen by the amount of data to read.
    #[default]
    Auto,
    /// By sorted batches of point lookups, always: for experiments.
    Points,
    /// By a pass over all entries, always: for experiments.
    MergeScan,
}

/// Settings of a repair.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RepairOptions {
    /// How the repair finds obsolete writes.
    pub method: RepairMethod,
    /// The largest memory of sorters and buffers together, in bytes, borrowed from the store's
    /// memory budget. Default 16 MiB.
    pub memory: usize,
    /// The number of reading threads, including the caller's. Default 0: one per core, or one if
    /// the store has no background threads ([`crate::Options::background`]). At most 64.
    pub threads: usize,
    /// The largest number of bytes to read per second, not 0. Default: no limit.
    pub bytes_per_second: Option<u64>,
    /// For a repair by index: do not sort keys that no newer key filter of the primary-key index
    /// contains. Default true; false is for experiments. Helps most if the trees are compacted
    /// together ([`crate::schema::Merging::Correlated`]).
    pub bloom: bool,
    /// How the repair finds the entries of known keys.
    pub lookups: Lookups,
}

impl Default for RepairOptions {
    fn default() -> RepairOptions {
        RepairOptions {
            method: RepairMethod::default(),
            memory: 16 << 20,
            threads: 0,
            bytes_per_second: None,
            bloom: true,
            lookups: Lookups::default(),
        }
    }
}

/// The progress of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairProgress {
    /// Entries read so far.
    pub done: u64,
    /// About how many entries there are.
    pub total: u64,
}

/// Called with the progress from time to time; returns whether to continue. It may use the dataset.
pub(crate) type OnRepair<'p> = dyn FnMut(RepairProgress) -> ControlFlow<()> + 'p;

impl RepairProgress {
    /// The progress of a repair in a store of another crate.
    pub fn new(done: u64, total: u64) -> RepairProgress {
        RepairProgress { done, total }
    }
}

/// The result of a repair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RepairReport {
    /// The method used; never [`RepairMethod::Auto`].
    pub method: RepairMethod,
    /// Entries read: of the primary-key index, the indexes, or the records.
    pub entries: u64,
    /// For a repair by index: how many of them were sorted; the others were known to be obsolete or
    /// valid.
    pub sorted: u64,
    /// Sorted pieces written to disk.
    pub spilled: u64,
    /// Keys looked up one by one.
    pub looked_up: u64,
    /// Obsolete writes found that were not known before.
    pub found: u64,
    /// The repair watermark before: all obsolete writes up to this number were known.
    pub watermark_before: Seq,
    /// The repair watermark now: all obsolete writes up to this number are known.
    pub watermark: Seq,
    /// Bytes read from files, without those that a compaction read.
    pub bytes_read: u64,
    /// How long it took.
    #[serde(rename = "seconds", with = "seconds")]
    pub elapsed: Duration,
    /// False if the task was cancelled, or, on a cluster, another repair had some parts: the
    /// findings are recorded, but the watermark has not moved.
    pub complete: bool,
}

/// A length of time, serialised in seconds.
mod seconds {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
    }
}
