//! Claims: exclusive access of a job to trees.
//!
//! A job that removes tables from trees (compactions, sweeps, moves), installs a run under them, or
//! drops or configures them, claims these trees first, and loads the view after that. So what it
//! has read stays valid until it installs its result, except for runs that are added on top:
//! flushes and additions to obsolete sets need no claim.
//!
//! A claim takes all of its trees in one step, so no job holds some of its trees while waiting for
//! others, and claims cannot deadlock. A thread never waits for a claim while it holds the writer's
//! lock or another claim; a claim without waiting may be added to another. Waiting claims are
//! served in FIFO order: a tree that one waits for is not given to a later one, so a claim of many
//! trees is not starved by claims of single ones.

use std::collections::{BTreeSet, VecDeque};

use parking_lot::{Condvar, Mutex};

use crate::batch::TreeId;

#[derive(Default)]
pub(super) struct Claims {
    state: Mutex<State>,
    returned: Condvar,
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

impl Claims {
    /// Takes trees, and waits until they are free.
    pub(super) fn take(&self, trees: &BTreeSet<TreeId>) {
        let mut state = self.state.lock();
        let ticket = state.tickets;
        state.tickets += 1;
        if !state.is_free(trees, ticket) {
            state.waiting.push_back((ticket, trees.clone()));
            while !state.is_free(trees, ticket) {
                self.returned.wait(&mut state);
            }
            state.waiting.retain(|(other, _)| *other != ticket);
        }
        state.held.extend(trees);
    }

    /// Takes trees if they are free and no job waits for them: true then.
    pub(super) fn try_take(&self, trees: &BTreeSet<TreeId>) -> bool {
        let mut state = self.state.lock();
        let is_free = state.is_free(trees, u64::MAX);
        if is_free {
            state.held.extend(trees);
        }
        is_free
    }

    pub(super) fn give_back(&self, trees: &BTreeSet<TreeId>) {
        let mut state = self.state.lock();
        for tree in trees {
            let was_held = state.held.remove(tree);
            debug_assert!(was_held, "a tree is given back that no job holds");
        }
        drop(state);
        self.returned.notify_all();
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }
}
