//! The scheduler: which flushes, merges and sweeps are at work, due, or have failed, and who waits for them. The threads are in
//! `threads.rs`, the choice of what is due in `compact.rs` and `sweep.rs`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::failures::Failures;
use super::sweep::Sweeps;
use super::threads::Workers;
use crate::error::Error;
use crate::generation::View;

#[derive(Default)]
pub(super) struct Signals {
    /// Raised to wake the background threads.
    pub(super) work: bool,
    /// The last failure of a flush, when none has succeeded since, and how many there were in a row.
    pub(super) flush_failure: Option<(Error, u64)>,
    /// When the log is to be synced for the writes that asked for it.
    pub(super) sync_at: Option<Instant>,
}

#[derive(Default)]
pub(super) struct Scheduler {
    pub(super) flushing: Mutex<()>,
    pub(super) merging: Mutex<()>,
    /// Up while a bulk load is under way.
    pub(super) ingesting: AtomicBool,
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
    /// Merge backlog, as `f64` bits: 0 or less is none, 1 is the most.
    pressure: AtomicU64,
}

impl Scheduler {
    pub(super) fn wake_background(&self) {
        let mut signals = self.signals.lock();
        signals.work = true;
        self.wake.notify_all();
    }

    /// How far merges are behind: 0 or less is not at all, 1 is the most.
    pub(super) fn pressure(&self) -> f64 {
        f64::from_bits(self.pressure.load(Ordering::Relaxed))
    }

    /// Measures that in a view. Trees whose merges fail do not count: slowing writers down does not help them.
    pub(super) fn measure_pressure(&self, view: &View) {
        let failures = self.failures.lock();
        let trees = view.version.trees.values();
        let pressure = trees
            .filter(|tree| !failures.has(tree.id))
            .map(|tree| tree.due.pressure)
            .fold(0.0, f64::max);
        self.pressure
            .store(f64::to_bits(pressure), Ordering::Relaxed);
    }
}
