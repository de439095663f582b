//! Claims: exclusive access of a job to trees.
//!
//! A job that removes tables from trees (compactions, sweeps, moves), installs a run under them, or drops or
//! configures them, claims these trees first, and loads the view after that. So what it has read stays valid until it
//! installs its result, except for runs that are added on top: flushes and additions to obsolete sets need no claim.
//!
//! A claim takes all of its trees in one step, so no job holds some of its trees while waiting for others, and claims
//! cannot deadlock. A thread never waits for a claim while it holds the writer's lock or another claim; a claim
//! without waiting ([`Scheduler::try_claim`]) may be added to another. Waiting claims are served in FIFO order: a
//! tree that one waits for is not given to a later one, so a claim of many trees is not starved by claims of single
//! ones.

use std::collections::{BTreeSet, VecDeque};

use parking_lot::{Condvar, Mutex};

use super::scheduler::Scheduler;
use crate::batch::TreeId;

#[derive(Default)]
pub(super) struct Claims {
    state: Mutex<State>,
    given_back: Condvar,
}

#[derive(Default)]
struct State {
    held: BTreeSet<TreeId>,
    /// The waiting claims, by ticket.
    waiting: VecDeque<(u64, BTreeSet<TreeId>)>,
    tickets: u64,
}

impl State {
    /// True when no job holds any of the trees, or has waited for one since before `ticket`.
    fn is_free(&self, trees: &BTreeSet<TreeId>, ticket: u64) -> bool {
        let before = self.waiting.iter().take_while(|(other, _)| *other < ticket);
        let mut before = before.map(|(_, waits)| waits);
        self.held.is_disjoint(trees) && before.all(|waits| waits.is_disjoint(trees))
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
        let claims = &self.scheduler.claims;
        let mut state = claims.state.lock();
        for tree in &self.trees {
            state.held.remove(tree);
        }
        drop(state);
        claims.given_back.notify_all();
        // A thread may have skipped due work on these trees.
        self.scheduler.wake_background();
    }
}

impl Scheduler {
    /// Claims trees, and waits until they are free.
    pub(super) fn claim(&self, trees: BTreeSet<TreeId>) -> Claim<'_> {
        let mut state = self.claims.state.lock();
        let ticket = state.tickets;
        state.tickets += 1;
        if !state.is_free(&trees, ticket) {
            state.waiting.push_back((ticket, trees.clone()));
            while !state.is_free(&trees, ticket) {
                self.claims.given_back.wait(&mut state);
            }
            state.waiting.retain(|(other, _)| *other != ticket);
        }
        state.held.extend(&trees);
        Claim {
            scheduler: self,
            trees,
        }
    }

    /// Claims trees if they are free and no other claim waits for them.
    pub(super) fn try_claim(&self, trees: BTreeSet<TreeId>) -> Option<Claim<'_>> {
        let mut state = self.claims.state.lock();
        if !state.is_free(&trees, u64::MAX) {
            return None;
        }
        state.held.extend(&trees);
        Some(Claim {
            scheduler: self,
            trees,
        })
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
        scheduler.claims.state.lock().waiting.len()
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
    fn who_waits_for_many_trees_is_not_overtaken() {
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
                        let claim = match rng.bool() {
                            true => Some(scheduler.claim(wanted.clone())),
                            false => scheduler.try_claim(wanted.clone()),
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
