//! Delivery from publishers to consumers: each consumer has a short queue, filled in the order of
//! the publications' numbers.
//!
//! A publisher enters `order` under the writer lock, and leaves its outcome there when it has
//! matched. Outcomes are delivered from the front, so that a publication waits for those before it.
//! No publisher waits for a consumer: a consumer whose queue is full, or that may lack a
//! publication because a match failed, is *behind* and reads the lists.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use esker::Seq;
use esker::changes::Signal;
use parking_lot::Mutex;

use crate::message::Notification;

/// The maximum number of publications in a queue, and on a page of the lists.
pub(crate) const QUEUE: usize = 1024;

/// The queues of consumers, and the publications on their way.
#[derive(Default)]
pub(crate) struct Deliveries {
    consumers: AtomicUsize,
    queues: Mutex<HashMap<Seq, Vec<Weak<Queue>>>>,
    /// Publications that are being matched, by number: a matched one waits for those before it.
    order: Mutex<VecDeque<Slot>>,
}

struct Slot {
    seq: Seq,
    is_retracted: bool,
    /// Set when the publication has been matched.
    outcome: Option<Outcome>,
}

impl Slot {
    /// The outcome, if it is known: no consumer if the publication has been withdrawn.
    fn take(&mut self) -> Option<Outcome> {
        let outcome = self.outcome.take()?;
        Some(if self.is_retracted {
            Outcome::NoConsumer
        } else {
            outcome
        })
    }
}

enum Outcome {
    For(Vec<Seq>, Arc<Notification>),
    NoConsumer,
    /// The match failed: consumers read the lists.
    Unknown,
}

/// The queue of a consumer.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) state: Mutex<State>,
    /// Notified when a publication is queued, when the queue falls behind, and when the store has
    /// ended.
    pub(crate) signal: Signal,
}

#[derive(Default)]
pub(crate) struct State {
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
        if state.waiting.len() < QUEUE && !state.is_behind {
            state.waiting.push_back(notification.clone());
        } else {
            state.is_behind = true;
        }
        drop(state);
        self.signal.notify();
    }

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
    pub(crate) fn begin(&self, seq: Seq) -> Option<Matching<'_>> {
        if !self.has_consumers() {
            return None;
        }
        self.order.lock().push_back(Slot {
            seq,
            is_retracted: false,
            outcome: None,
        });
        Some(Matching {
            deliveries: self,
            seq,
            outcome: Outcome::Unknown,
        })
    }

    /// Sets the outcome of a publication, and delivers all outcomes that no longer wait for others.
    fn finish(&self, seq: Seq, outcome: Outcome) {
        let mut order = self.order.lock();
        if let Some(slot) = order.iter_mut().find(|slot| slot.seq == seq) {
            slot.outcome = Some(outcome);
        }
        // Under the lock, so that queues are filled in order; nothing in it waits.
        while let Some(outcome) = order.front_mut().and_then(Slot::take) {
            order.pop_front();
            let mut queues = self.queues.lock();
            match outcome {
                Outcome::NoConsumer => {}
                Outcome::For(subscriptions, notification) => {
                    for subscription in subscriptions {
                        let queues = queues.get(&subscription).into_iter().flatten();
                        for queue in queues.filter_map(Weak::upgrade) {
                            queue.push(&notification);
                        }
                    }
                }
                Outcome::Unknown => {
                    for queue in queues.values_mut().flatten().filter_map(|q| q.upgrade()) {
                        queue.fall_behind();
                    }
                }
            }
        }
    }

    /// Withdraws a publication from queues and pages, and from those still to be delivered.
    pub(crate) fn retract(&self, seq: Seq) {
        let mut order = self.order.lock();
        if let Some(slot) = order.iter_mut().find(|slot| slot.seq == seq) {
            slot.is_retracted = true;
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
        let Some(of) = queues.get(&subscription) else {
            return;
        };
        let entry = Arc::<[u8]>::from(entry);
        for queue in of.iter().filter_map(Weak::upgrade) {
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

    pub(crate) fn add(&self, subscription: Seq, queue: &Arc<Queue>) {
        let mut queues = self.queues.lock();
        let of = queues.entry(subscription).or_default();
        of.push(Arc::downgrade(queue));
        drop(queues);
        self.consumers.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn remove(&self, subscription: Seq, queue: &Arc<Queue>) {
        let mut queues = self.queues.lock();
        if let Some(of) = queues.get_mut(&subscription) {
            of.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(queue)));
            if of.is_empty() {
                queues.remove(&subscription);
            }
        }
        drop(queues);
        self.consumers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A publication that is being matched.
pub(crate) struct Matching<'d> {
    deliveries: &'d Deliveries,
    seq: Seq,
    outcome: Outcome,
}

impl Matching<'_> {
    /// Sets the subscriptions that the publication matches. Calls `notification` if one of them has
    /// a consumer.
    pub(crate) fn found(
        &mut self,
        subscriptions: impl Iterator<Item = Seq>,
        notification: impl FnOnce() -> Notification,
    ) {
        let queues = self.deliveries.queues.lock();
        let heard: Vec<Seq> = subscriptions.filter(|id| queues.contains_key(id)).collect();
        drop(queues);
        self.outcome = if heard.is_empty() {
            Outcome::NoConsumer
        } else {
            Outcome::For(heard, Arc::new(notification()))
        };
    }
}

impl Drop for Matching<'_> {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Outcome::NoConsumer);
        self.deliveries.finish(self.seq, outcome);
    }
}

#[cfg(test)]
#[path = "deliver_tests.rs"]
mod tests;
