//! Delivery from publishers to consumers: each consumer has a short queue, filled in the order of
//! the publications' numbers.
//!
//! A publisher enters its publication in `order` under the writer lock, and sets the outcome there
//! when it has matched the publication. Outcomes are delivered from the front, so that a
//! publication waits for those before it. No publisher waits for a consumer: a consumer whose queue
//! is full, or that may lack a publication because a match failed, is *behind* and reads the lists.
//!
//! Invariants: `order` is sorted by number, and so is each queue. Each entry of `order` has a guard
//! ([`MatchGuard`]), which sets its outcome at the latest when it is dropped: so no entry stays.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use esker::Seq;
use esker::changes::Signal;
use parking_lot::Mutex;

use crate::forms::message::Notification;

/// The maximum number of publications in a queue, and on a page of the lists.
pub(crate) const MAX_QUEUED: usize = 1024;

/// The queues of consumers, and the publications on their way.
#[derive(Default)]
pub(crate) struct Deliveries {
    consumers: AtomicUsize,
    queues: Mutex<HashMap<Seq, Vec<Weak<Queue>>>>,
    /// Publications that are being matched, by number: a matched one waits for those before it.
    order: Mutex<VecDeque<RunningPublication>>,
}

/// A publication that is written, and not yet delivered.
struct RunningPublication {
    seq: Seq,
    is_retracted: bool,
    /// Set when the publication has been matched.
    outcome: Option<Outcome>,
}

impl RunningPublication {
    /// Takes the outcome, if it is known: no consumer if the publication has been withdrawn.
    fn take_outcome(&mut self) -> Option<Outcome> {
        let outcome = self.outcome.take()?;
        Some(if self.is_retracted {
            Outcome::NoConsumer
        } else {
            outcome
        })
    }
}

/// The result of matching a publication, for consumers.
enum Outcome {
    Matched {
        /// The matching subscriptions that have consumers.
        subscriptions: Vec<Seq>,
        notification: Arc<Notification>,
    },
    NoConsumer,
    /// The match failed: consumers read the lists.
    Unknown,
}

/// The queue of a consumer.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) state: Mutex<QueueState>,
    /// Notified when a publication is queued, when the queue falls behind, and when the store has
    /// ended.
    pub(crate) signal: Signal,
}

/// The content of a queue.
#[derive(Default)]
pub(crate) struct QueueState {
    /// At most [`MAX_QUEUED`], sorted by number.
    pub(crate) waiting: VecDeque<Arc<Notification>>,
    /// The page that the consumer has read from the lists, which comes before `waiting`.
    pub(crate) page: VecDeque<Notification>,
    /// Withdrawals since the consumer began to read a page, which may contain their publications.
    pub(crate) withdrawn: Option<HashSet<Seq>>,
    /// The directory entry of the last change: the directory drops a subscription when it ends.
    pub(crate) changed: Option<Arc<[u8]>>,
    /// True if the queue lacks publications.
    pub(crate) is_behind: bool,
}

impl Queue {
    fn push(&self, notification: &Arc<Notification>) {
        let mut state = self.state.lock();
        if state.waiting.len() < MAX_QUEUED && !state.is_behind {
            debug_assert!(
                (state.waiting.back()).is_none_or(|last| last.seq < notification.seq),
                "a queue is filled in the order of numbers"
            );
            state.waiting.push_back(notification.clone());
        } else {
            state.is_behind = true;
        }
        drop(state);
        self.signal.notify();
    }

    /// Makes the consumer read the lists.
    fn fall_behind(&self) {
        self.state.lock().is_behind = true;
        self.signal.notify();
    }
}

impl Deliveries {
    /// False if there are no consumers. A later one first reads everything appended before it.
    pub(crate) fn has_consumers(&self) -> bool {
        self.consumers.load(Ordering::SeqCst) != 0
    }

    /// Announces a publication that is about to be matched, in the order of commits. The guard
    /// delivers its outcome.
    pub(crate) fn begin(&self, seq: Seq) -> Option<MatchGuard<'_>> {
        if !self.has_consumers() {
            return None;
        }
        let mut order = self.order.lock();
        // The next publication after a failed write gets the same number, perhaps before the guard
        // of the failed one is dropped.
        debug_assert!(
            order.back().is_none_or(|last| last.seq <= seq),
            "publications are announced in the order of commits"
        );
        order.push_back(RunningPublication {
            seq,
            is_retracted: false,
            outcome: None,
        });
        drop(order);
        Some(MatchGuard {
            deliveries: self,
            seq,
            outcome: Outcome::Unknown,
        })
    }

    /// Sets the outcome of a publication, and delivers all outcomes that no longer wait for others.
    fn finish(&self, seq: Seq, outcome: Outcome) {
        let mut order = self.order.lock();
        // Of entries with one number at most one is of a publication that was written; it does not
        // matter which of them gets which outcome.
        let is_running =
            |running: &&mut RunningPublication| running.seq == seq && running.outcome.is_none();
        let running = order.iter_mut().find(is_running);
        debug_assert!(running.is_some(), "a publication is finished once");
        if let Some(running) = running {
            running.outcome = Some(outcome);
        }
        // Under the lock, so that queues are filled in order; delivering waits for nothing.
        while let Some(outcome) = order.front_mut().and_then(RunningPublication::take_outcome) {
            order.pop_front();
            self.deliver(outcome);
        }
    }

    /// Puts a publication into the queues of the consumers that receive it.
    fn deliver(&self, outcome: Outcome) {
        let queues = self.queues.lock();
        match outcome {
            Outcome::NoConsumer => {}
            Outcome::Matched {
                subscriptions,
                notification,
            } => {
                for subscription in subscriptions {
                    let queues = queues.get(&subscription).into_iter().flatten();
                    for queue in queues.filter_map(Weak::upgrade) {
                        queue.push(&notification);
                    }
                }
            }
            Outcome::Unknown => {
                for queue in queues.values().flatten().filter_map(Weak::upgrade) {
                    queue.fall_behind();
                }
            }
        }
    }

    /// Withdraws a publication from queues and pages, and from those still to be delivered.
    pub(crate) fn retract(&self, seq: Seq) {
        let mut order = self.order.lock();
        // A publication that was delivered already is not in `order`. A failed write before it may
        // have the same number.
        for running in order.iter_mut().filter(|running| running.seq == seq) {
            running.is_retracted = true;
        }
        let queues = self.queues.lock();
        for queue in queues.values().flatten().filter_map(Weak::upgrade) {
            let mut state = queue.state.lock();
            state.waiting.retain(|waiting| waiting.seq != seq);
            state.page.retain(|read| read.seq != seq);
            if let Some(withdrawn) = &mut state.withdrawn {
                withdrawn.insert(seq);
            }
        }
    }

    /// Passes the directory entry of a moved, renewed or ended subscription to its queues. Called
    /// in the order of its changes, before they are visible.
    pub(crate) fn change(&self, subscription: Seq, entry: &[u8]) {
        let queues = self.queues.lock();
        let Some(consumers) = queues.get(&subscription) else {
            return;
        };
        let entry = Arc::<[u8]>::from(entry);
        for queue in consumers.iter().filter_map(Weak::upgrade) {
            queue.state.lock().changed = Some(entry.clone());
        }
    }

    /// Wakes all waiting and listening consumers, because the store has ended.
    pub(crate) fn wake_all(&self) {
        let queues: Vec<Arc<Queue>> = {
            let queues = self.queues.lock();
            queues
                .values()
                .flatten()
                .filter_map(Weak::upgrade)
                .collect()
        };
        queues.iter().for_each(|queue| queue.signal.notify());
    }

    /// Adds the queue of a consumer: it receives the publications that are announced from now on.
    pub(crate) fn add(&self, subscription: Seq, queue: &Arc<Queue>) {
        let mut queues = self.queues.lock();
        let consumers = queues.entry(subscription).or_default();
        consumers.push(Arc::downgrade(queue));
        drop(queues);
        self.consumers.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes the queue of a consumer, which [`Deliveries::add`] has added.
    pub(crate) fn remove(&self, subscription: Seq, queue: &Arc<Queue>) {
        let mut queues = self.queues.lock();
        let consumers = queues.get_mut(&subscription);
        debug_assert!(consumers.is_some(), "the queue was added");
        if let Some(consumers) = consumers {
            consumers.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(queue)));
            if consumers.is_empty() {
                queues.remove(&subscription);
            }
        }
        drop(queues);
        self.consumers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A publication that is being matched. Dropping the guard delivers the outcome: unknown, unless
/// [`MatchGuard::set_matches`] was called.
pub(crate) struct MatchGuard<'d> {
    deliveries: &'d Deliveries,
    seq: Seq,
    outcome: Outcome,
}

impl MatchGuard<'_> {
    /// Sets the subscriptions that the publication matches. Calls `notification` if one of them has
    /// a consumer.
    pub(crate) fn set_matches(
        &mut self,
        subscriptions: impl Iterator<Item = Seq>,
        notification: impl FnOnce() -> Notification,
    ) {
        let queues = self.deliveries.queues.lock();
        let subscriptions: Vec<Seq> = subscriptions.filter(|id| queues.contains_key(id)).collect();
        drop(queues);
        self.outcome = if subscriptions.is_empty() {
            Outcome::NoConsumer
        } else {
            Outcome::Matched {
                subscriptions,
                notification: Arc::new(notification()),
            }
        };
    }
}

impl Drop for MatchGuard<'_> {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Outcome::NoConsumer);
        self.deliveries.finish(self.seq, outcome);
    }
}

#[cfg(test)]
#[path = "deliver_tests.rs"]
mod tests;
