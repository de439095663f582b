//! What the jobs of a group share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::pace::Pace;
use super::shared::SharedFiles;
use super::slots::Slots;
use crate::entry::Time;
use crate::options::Options;
use crate::stats::Counters;
use crate::version::{TableSource, Version};

/// Bytes that a compaction reads ahead from each of its runs.
pub(crate) const READAHEAD: usize = 256 << 10;

/// State shared by the jobs of a group.
pub(crate) struct CompactionContext<'a> {
    pub(crate) source: &'a TableSource,
    pub(crate) options: &'a Options,
    pub(crate) counters: &'a Counters,
    /// Allocates file numbers.
    pub(crate) next_file: &'a (dyn Fn() -> u64 + Sync),
    /// Shared files for small tables; without, each table has a file of its own.
    pub(crate) shared: Option<&'a SharedFiles<'a>>,
    /// Set when the group is closing: compactions abort.
    pub(crate) closing: &'a AtomicBool,
    /// True when a bulk load may install a run below the flushed one: one that was running at any
    /// time since before the job's version was read.
    pub(crate) is_ingesting: bool,
    /// The write rate limit, if any.
    pub(crate) pace: Option<&'a Pace>,
    /// Threads that may help with large compactions.
    pub(crate) slots: Option<&'a Slots>,
    /// Counts the bytes written.
    pub(crate) written: Option<&'a AtomicU64>,
    /// Set when a piece of a compaction has failed: the other pieces abort.
    pub(crate) abandoned: AtomicBool,
    /// Entries that expire up to this time are dropped.
    pub(crate) time: Time,
    /// The version at the start of the job, and a function that returns the current one.
    pub(crate) version: Arc<Version>,
    pub(crate) now: Arc<dyn Fn() -> Arc<Version> + Send + Sync>,
}

impl CompactionContext<'_> {
    /// True when the running job should abort.
    pub(super) fn is_aborted(&self) -> bool {
        self.closing.load(Ordering::Relaxed) || self.abandoned.load(Ordering::Relaxed)
    }
}
