//! The scheduler: the flushes, compactions and sweeps that are running, due, or failed, and the
//! threads that wait for them. The threads are in `threads.rs`, the choice of due work in
//! `compact.rs` and `sweep.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::claims::Claims;
use super::failures::Failures;
use super::jobs::Jobs;
use crate::batch::TreeId;
use crate::compaction::pace::Pace;
use crate::compaction::slots::Slots;
use crate::compaction::sweep::Sweep;
use crate::error::Error;
use crate::generation::View;
use crate::options::Options;
use crate::version::{TreeVersion, Version};

/// Running sweeps, and the results of earlier ones. A thread that resumes a sweep has claimed its
/// trees.
#[derive(Default)]
pub(super) struct Sweeps {
    pub(super) under_way: BTreeMap<TreeId, Sweep>,
    /// Bytes of sets after their last sweep: a set is swept again when it has doubled.
    pub(super) left: BTreeMap<TreeId, usize>,
}

/// The live threads of a group. The work of a missing thread (it could not be started, or has
/// panicked) is done by the writers that need it.
#[derive(Default)]
pub(super) struct Workers {
    pub(super) flush: AtomicBool,
    /// The number of compaction threads.
    pub(super) compact: AtomicUsize,
    pub(super) sync: AtomicBool,
}

#[derive(Default)]
pub(super) struct Signals {
    /// Counts the wake-ups of the background threads, so that each can tell whether it missed one.
    pub(super) work: u64,
    /// The last error of a flush, if none has succeeded since, and the number of consecutive
    /// failures.
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
    /// The largest compaction backlog of any tree, as `f64` bits: 0 or less is none, 1 is the
    /// maximum.
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

/// Trees that are claimed until this is dropped.
#[must_use]
pub(super) struct Claim<'a> {
    scheduler: &'a Scheduler,
    trees: BTreeSet<TreeId>,
}

impl Claim<'_> {
    pub(super) fn has(&self, tree: TreeId) -> bool {
        self.trees.contains(&tree)
    }

    pub(super) fn covers(&self, trees: &BTreeSet<TreeId>) -> bool {
        trees.is_subset(&self.trees)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.trees.is_empty() {
            return;
        }
        self.scheduler.claims.give_back(&self.trees);
        // A thread may have skipped due work on these trees.
        self.scheduler.wake_background();
    }
}

impl Scheduler {
    /// Claims trees, and waits until they are free.
    pub(super) fn claim(&self, trees: BTreeSet<TreeId>) -> Claim<'_> {
        self.claims.take(&trees);
        Claim {
            scheduler: self,
            trees,
        }
    }

    /// Claims trees if they are free and no other claim waits for them.
    pub(super) fn try_claim(&self, trees: BTreeSet<TreeId>) -> Option<Claim<'_>> {
        self.claims.try_take(&trees).then(|| Claim {
            scheduler: self,
            trees,
        })
    }
}

/// Counted until this is dropped.
pub(super) struct Counted<'a>(&'a AtomicUsize);

impl Counted<'_> {
    pub(super) fn new(count: &AtomicUsize) -> Counted<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn trees(ids: &[TreeId]) -> BTreeSet<TreeId> {
        ids.iter().copied().collect()
    }

    fn waiting(scheduler: &Scheduler) -> usize {
        scheduler.claims.waiting()
    }

    /// Waits until `count` claims wait.
    fn await_waiting(scheduler: &Scheduler, count: usize) {
        while waiting(scheduler) < count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_tree_is_claimed_once_and_others_are_free() {
        let scheduler = Scheduler::default();
        let one = scheduler.try_claim(trees(&[1, 2])).unwrap();
        assert!(scheduler.try_claim(trees(&[2, 3])).is_none());
        // A refused claim keeps none of its trees.
        let two = scheduler.try_claim(trees(&[3])).unwrap();
        drop(one);
        assert!(scheduler.try_claim(trees(&[2, 3])).is_none());
        drop(two);
        assert!(scheduler.try_claim(trees(&[2, 3])).is_some());
    }

    #[test]
    fn a_claim_of_many_trees_is_not_overtaken() {
        let scheduler = Scheduler::default();
        let order = AtomicUsize::new(0);
        let (first, second) = (AtomicUsize::new(9), AtomicUsize::new(9));
        std::thread::scope(|scope| {
            let held = scheduler.claim(trees(&[1]));
            scope.spawn(|| {
                let _many = scheduler.claim(trees(&[1, 2, 3]));
                first.store(order.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            });
            await_waiting(&scheduler, 1);
            // Free, but reserved.
            assert!(scheduler.try_claim(trees(&[3])).is_none());
            assert!(scheduler.try_claim(trees(&[4])).is_some());
            scope.spawn(|| {
                let _single = scheduler.claim(trees(&[3]));
                second.store(order.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            });
            await_waiting(&scheduler, 2);
            drop(held);
        });
        assert_eq!(first.into_inner(), 0);
        assert_eq!(second.into_inner(), 1);
        assert!(scheduler.try_claim(trees(&[1, 2, 3, 4])).is_some());
    }

    #[test]
    fn claims_in_any_order_come_to_an_end_and_never_overlap() {
        let scheduler = Scheduler::default();
        let holders: Vec<AtomicUsize> = (0..6).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (scheduler, holders) = (&scheduler, &holders);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    for _ in 0..500 {
                        let wanted: BTreeSet<TreeId> =
                            (0..rng.usize(1..5)).map(|_| rng.u32(0..6)).collect();
                        let claim = if rng.bool() {
                            Some(scheduler.claim(wanted.clone()))
                        } else {
                            scheduler.try_claim(wanted.clone())
                        };
                        if claim.is_none() {
                            continue;
                        }
                        for id in &wanted {
                            let before = holders[*id as usize].fetch_add(1, Ordering::SeqCst);
                            assert_eq!(before, 0);
                        }
                        std::thread::yield_now();
                        for id in &wanted {
                            holders[*id as usize].fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
    }
}
