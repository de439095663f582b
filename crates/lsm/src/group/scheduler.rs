//! The scheduler: which flushes, merges and sweeps are at work, due, or have failed, and who waits for them. The threads are in
//! `threads.rs`, the choice of what is due in `compact.rs` and `sweep.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::claims::Claims;
use super::failures::Failures;
use super::jobs::Jobs;
use super::sweep::Sweeps;
use super::threads::Workers;
use crate::batch::TreeId;
use crate::compaction::pace::Pace;
use crate::compaction::pieces::Slots;
use crate::error::Error;
use crate::generation::View;
use crate::options::Options;
use crate::version::{TreeVersion, Version};

#[derive(Default)]
pub(super) struct Signals {
    /// Counts how often the background threads were woken, so that each knows whether it was since it looked.
    pub(super) work: u64,
    /// The last failure of a flush, when none has succeeded since, and how many there were in a row.
    pub(super) flush_failure: Option<(Error, u64)>,
    /// When the log is to be synced for the writes that asked for it.
    pub(super) sync_at: Option<Instant>,
}

#[derive(Default)]
pub(super) struct Scheduler {
    pub(super) flushing: Mutex<()>,
    /// The trees that somebody works on.
    pub(super) claims: Claims,
    /// Bulk loads under way.
    pub(super) ingesting: AtomicUsize,
    /// Threads that compactions may have, and have.
    pub(super) slots: Slots,
    /// How fast compactions may write.
    pub(super) pace: Pace,
    pub(super) jobs: Jobs,
    pub(super) signals: Mutex<Signals>,
    /// Woken when there is background work.
    pub(super) wake: Condvar,
    /// Woken when a flush has ended, well or not.
    pub(super) flushed: Condvar,
    /// Held by the one who closes.
    pub(super) closers: Mutex<()>,
    pub(super) workers: Workers,
    pub(super) failures: Mutex<Failures>,
    pub(super) sweeps: Mutex<Sweeps>,
    /// Merge backlog of the tree that has most, as `f64` bits: 0 or less is none, 1 is the most.
    pressure: AtomicU64,
}

impl Scheduler {
    pub(super) fn new(options: &Options) -> Scheduler {
        Scheduler {
            slots: Slots::new(options.compaction_threads()),
            pace: Pace::new(options.compaction_rate),
            ..Scheduler::default()
        }
    }

    pub(super) fn wake_background(&self) {
        let mut signals = self.signals.lock();
        signals.work += 1;
        self.wake.notify_all();
    }

    /// How far merges of any tree are behind: 0 or less is not at all, 1 is the most.
    pub(super) fn pressure(&self) -> f64 {
        f64::from_bits(self.pressure.load(Ordering::Relaxed))
    }

    /// The same of those of some trees.
    pub(super) fn pressure_of(&self, version: &Version, trees: &[TreeId]) -> f64 {
        // Where no tree is behind, none of these is.
        if self.pressure() <= 0.0 {
            return 0.0;
        }
        let trees = trees.iter().filter_map(|id| version.trees.get(id));
        self.most_pressure(trees)
    }

    /// Measures that of all trees of a view.
    pub(super) fn measure_pressure(&self, view: &View) {
        let pressure = self.most_pressure(view.version.trees.values());
        self.pressure
            .store(f64::to_bits(pressure), Ordering::Relaxed);
    }

    /// Trees whose merges fail do not count: slowing writers down does not help them.
    fn most_pressure<'t>(&self, trees: impl Iterator<Item = &'t Arc<TreeVersion>>) -> f64 {
        let failures = self.failures.lock();
        trees
            .filter(|tree| !failures.has(tree.id))
            .map(|tree| tree.due.pressure)
            .fold(0.0, f64::max)
    }
}
