//! The scheduler: the flushes, compactions and sweeps that are running, due, or failed, and the threads that wait for
//! them. The threads are in `threads.rs`, the choice of due work in `compact.rs` and `sweep.rs`.

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
    /// Counts the wake-ups of the background threads, so that each can tell whether it missed one.
    pub(super) work: u64,
    /// The last error of a flush, if none has succeeded since, and the number of consecutive failures.
    pub(super) flush_failure: Option<(Error, u64)>,
    /// When the log is due to be synced for periodic writes.
    pub(super) sync_at: Option<Instant>,
}

#[derive(Default)]
pub(super) struct Scheduler {
    pub(super) flushing: Mutex<()>,
    /// The claimed trees.
    pub(super) claims: Claims,
    /// Running bulk loads.
    pub(super) ingesting: AtomicUsize,
    /// The limit of compaction threads, and their current number.
    pub(super) slots: Slots,
    /// The write rate limit of compactions.
    pub(super) pace: Pace,
    pub(super) jobs: Jobs,
    pub(super) signals: Mutex<Signals>,
    /// Signalled when there is background work.
    pub(super) wake: Condvar,
    /// Signalled when a flush has ended, successfully or not.
    pub(super) flushed: Condvar,
    /// Held by the thread that closes.
    pub(super) closers: Mutex<()>,
    pub(super) workers: Workers,
    pub(super) failures: Mutex<Failures>,
    pub(super) sweeps: Mutex<Sweeps>,
    /// The largest compaction backlog of any tree, as `f64` bits: 0 or less is none, 1 is the maximum.
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

    /// The compaction backlog: 0 or less is none, 1 is the maximum.
    pub(super) fn pressure(&self) -> f64 {
        f64::from_bits(self.pressure.load(Ordering::Relaxed))
    }

    /// The backlog of some trees.
    pub(super) fn pressure_of(&self, version: &Version, trees: &[TreeId]) -> f64 {
        // Where no tree has a backlog, none of these has.
        if self.pressure() <= 0.0 {
            return 0.0;
        }
        let trees = trees.iter().filter_map(|id| version.trees.get(id));
        self.most_pressure(trees)
    }

    /// Measures the backlog of all trees of a view.
    pub(super) fn measure_pressure(&self, view: &View) {
        let pressure = self.most_pressure(view.version.trees.values());
        self.pressure
            .store(f64::to_bits(pressure), Ordering::Relaxed);
    }

    /// Trees whose compactions fail do not count: slowing writers down does not help them.
    fn most_pressure<'t>(&self, trees: impl Iterator<Item = &'t Arc<TreeVersion>>) -> f64 {
        let failures = self.failures.lock();
        trees
            .filter(|tree| !failures.has(tree.id))
            .map(|tree| tree.due.pressure)
            .fold(0.0, f64::max)
    }
}
