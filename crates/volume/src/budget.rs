//! Memory that many share.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// A number of bytes that is lent out, in the order in which it was asked for: a large request is
/// not overtaken for ever by small ones.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lent: usize,
    /// The most that was ever lent.
    most: usize,
    next: u64,
    waiting: VecDeque<u64>,
}

/// Bytes that are lent until it is dropped.
#[derive(Debug)]
pub struct Loan {
    of: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// So many bytes.
    pub fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget {
            limit,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Waits until `bytes` are free. `None` when `is_over` says so first; it is asked again after
    /// each [`Budget::wake`].
    pub fn lend(self: &Arc<Self>, bytes: usize, is_over: impl Fn() -> bool) -> Option<Loan> {
        let bytes = bytes.min(self.limit);
        let mut state = self.state.lock();
        let turn = state.next;
        state.next += 1;
        state.waiting.push_back(turn);
        loop {
            let over = is_over();
            let is_next = state.waiting.front() == Some(&turn);
            if over || (is_next && state.lent + bytes <= self.limit) {
                state.waiting.retain(|other| *other != turn);
                self.changed.notify_all();
                if over {
                    return None;
                }
                state.lent += bytes;
                state.most = state.most.max(state.lent);
                let of = Arc::clone(self);
                return Some(Loan { of, bytes });
            }
            self.changed.wait(&mut state);
        }
    }

    /// Lends `bytes` where that is possible without waiting.
    pub fn try_lend(self: &Arc<Self>, bytes: usize) -> Option<Loan> {
        let bytes = bytes.min(self.limit);
        let mut state = self.state.lock();
        if !state.waiting.is_empty() || state.lent + bytes > self.limit {
            return None;
        }
        state.lent += bytes;
        state.most = state.most.max(state.lent);
        let of = Arc::clone(self);
        Some(Loan { of, bytes })
    }

    /// Lets those that wait ask whether their connections have ended.
    pub fn wake(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Bytes that are lent.
    pub fn lent(&self) -> usize {
        self.state.lock().lent
    }

    /// The most bytes that were lent at any time.
    pub fn most(&self) -> usize {
        self.state.lock().most
    }

    /// Bytes that can be lent.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.of.state.lock().lent -= self.bytes;
        self.of.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_large_loan_is_not_overtaken() {
        let budget = Budget::new(10);
        let first = budget.lend(6, || false).unwrap();
        std::thread::scope(|scope| {
            let large = scope.spawn(|| budget.lend(10, || false).unwrap());
            while budget.state.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            let small = scope.spawn(|| budget.lend(1, || false).unwrap());
            while budget.state.lock().waiting.len() < 2 {
                std::thread::yield_now();
            }
            assert_eq!(budget.lent(), 6, "the small one waits behind the large one");
            drop(first);
            let large = large.join().unwrap();
            assert_eq!(budget.lent(), 10);
            drop(large);
            drop(small.join().unwrap());
        });
        assert_eq!(budget.lent(), 0);
    }

    #[test]
    fn a_wait_that_is_over_lets_the_next_one_pass() {
        let budget = Budget::new(10);
        let first = budget.lend(6, || false).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let large = scope.spawn(|| budget.lend(10, || over.load(Ordering::SeqCst)).is_none());
            while budget.state.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            let small = scope.spawn(|| budget.lend(4, || false).is_some());
            over.store(true, Ordering::SeqCst);
            budget.wake();
            assert!(large.join().unwrap());
            assert!(small.join().unwrap());
        });
        drop(first);
        assert_eq!(budget.lent(), 0);
    }
}
