//! RepQueries (the paper's section 5.1): subscriptions as repeated queries, a baseline.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use esker::{Result, Seq};
use esker_coding::Misplaced;

use crate::broker::Broker;
use crate::element::Time;
use crate::message::{Notification, Start, Subscription};

/// Subscriptions implemented as queries that are repeated at an interval, and once more when they
/// end. They exist only in memory, and miss publications that expire between two repetitions. If
/// several queries of a user match a publication, the first one to run returns it, and so does
/// every query that is not a [self-join](Subscription::join).
pub struct RepeatedQueries {
    broker: Broker,
    every: Time,
    queries: HashMap<u64, Repeated>,
    /// The time of each query's next run.
    due: BinaryHeap<Reverse<(Time, u64)>>,
    next: u64,
    received: Received,
}

/// The publications that each user received, for self-joins.
type Received = HashMap<Vec<u8>, HashSet<Seq>>;

struct Repeated {
    subscription: Subscription,
    to: Time,
    /// The last publication that it read.
    seen: Seq,
}

/// Called with the number of a query, its tag, and a matching publication.
pub type OnMatch<'t> = dyn FnMut(u64, &[u8], &Notification) + 't;

impl RepeatedQueries {
    /// Repeats queries every `every` units of the broker's time.
    pub fn new(broker: &Broker, every: Time) -> RepeatedQueries {
        RepeatedQueries {
            broker: broker.clone(),
            every: every.max(1),
            queries: HashMap::new(),
            due: BinaryHeap::new(),
            next: 1,
            received: Received::new(),
        }
    }

    /// Runs a query for the first time, and returns its number.
    ///
    /// # Errors
    /// The errors of [`Broker::query`].
    pub fn subscribe(
        &mut self,
        subscription: &Subscription,
        on_match: &mut OnMatch<'_>,
    ) -> Result<u64> {
        let now = subscription.made.unwrap_or_else(|| self.broker.now());
        let inner = &*self.broker.inner;
        let to = inner.end(subscription.end, now);
        let from = inner.start(subscription.from, now);
        let mut query = Repeated {
            subscription: subscription.clone().from(from).until(to),
            to,
            seen: 0,
        };
        let id = self.next;
        self.next += 1;
        query.run(&self.broker, &mut self.received, id, now, on_match)?;
        if to >= now {
            self.due
                .push(Reverse((now.saturating_add(self.every).min(to), id)));
            self.queries.insert(id, query);
        }
        Ok(id)
    }

    /// Runs the queries that are due at or before `now`, in the order of time. Publications with
    /// the time of a repetition must be stored before this call.
    ///
    /// # Errors
    /// The errors of [`Broker::query`].
    pub fn advance(&mut self, now: Time, on_match: &mut OnMatch<'_>) -> Result<()> {
        self.repeat(now, true, on_match)
    }

    /// As [`RepeatedQueries::advance`], if nothing more will be published: runs each query for the
    /// last time.
    ///
    /// # Errors
    /// The errors of [`Broker::query`].
    pub fn finish(&mut self, now: Time, on_match: &mut OnMatch<'_>) -> Result<()> {
        self.repeat(now, false, on_match)
    }

    fn repeat(&mut self, now: Time, again: bool, on_match: &mut OnMatch<'_>) -> Result<()> {
        while let Some(Reverse((time, id))) = self.due.peek().copied().filter(|due| due.0.0 <= now)
        {
            let query = self.queries.get_mut(&id).ok_or_else(|| Misplaced::here())?;
            // If it fails, the query stays due.
            query.run(&self.broker, &mut self.received, id, time, on_match)?;
            self.due.pop();
            if again && time < query.to {
                let next = time.saturating_add(self.every).min(query.to);
                self.due.push(Reverse((next, id)));
            } else {
                self.queries.remove(&id);
            }
        }
        Ok(())
    }

    /// The time at which the next repetition is due.
    pub fn next_due(&self) -> Option<Time> {
        self.due.peek().map(|due| due.0.0)
    }
}

impl Repeated {
    /// Runs the query number `id` once. Changes nothing if the publications cannot be read.
    fn run(
        &mut self,
        broker: &Broker,
        received: &mut Received,
        id: u64,
        now: Time,
        on_match: &mut OnMatch<'_>,
    ) -> Result<()> {
        let mut current = self.subscription.clone().at_time(now);
        // Self-joins are decided here, by `received`.
        let joins = std::mem::take(&mut current.joins);
        let user = &self.subscription.user;
        let mut seen = self.seen;
        for notification in broker.query(&current)? {
            if notification.seq <= self.seen {
                continue;
            }
            seen = seen.max(notification.seq);
            let is_new = user.is_empty()
                || received
                    .entry(user.clone())
                    .or_default()
                    .insert(notification.seq);
            if is_new || !joins {
                on_match(id, &self.subscription.tag, &notification);
            }
        }
        self.seen = seen;
        // The next run starts where this one ends.
        let from = broker.inner.start(self.subscription.from, now);
        self.subscription.from = Start::At(from.max(now));
        Ok(())
    }
}
