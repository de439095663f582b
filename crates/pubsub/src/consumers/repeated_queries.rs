//! RepQueries (the paper's section 5.1): subscriptions as repeated queries, a baseline.
//!
//! A heap orders the queries by the time of their next run. A query is in the heap exactly as long
//! as it is in the table of queries.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use esker::{Result, Seq};
use esker_coding::Misplaced;

use crate::broker::Broker;
use crate::forms::element::Time;
use crate::forms::message::{Notification, Start, Subscription};

/// Subscriptions implemented as queries that are repeated at an interval, and once more when they
/// end. They exist only in memory, and miss publications that expire between two repetitions. If
/// several queries of a user match a publication, the first one to run returns it, and so does
/// every query that is not a [self-join](Subscription::join).
pub struct RepeatedQueries {
    broker: Broker,
    every: Time,
    queries: HashMap<u64, RepeatedQuery>,
    /// The next run of each query, the earliest on top.
    due: BinaryHeap<Reverse<Run>>,
    /// The number of the next query.
    next_id: u64,
    received: Received,
}

/// The next run of a query. Runs are ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    time: Time,
    id: u64,
}

/// What happens to a query after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterRun {
    /// It is repeated until it ends.
    Repeat,
    Remove,
}

/// The publications that each user received, for self-joins.
type Received = HashMap<Vec<u8>, HashSet<Seq>>;

struct RepeatedQuery {
    /// Its start moves to the time of the last run.
    subscription: Subscription,
    /// The time at which it ends, and of its last run.
    to: Time,
    /// The number of the last publication that it read; 0 before the first.
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
            next_id: 1,
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
        let now = subscription.made_at.unwrap_or_else(|| self.broker.now());
        let inner = &*self.broker.inner;
        let to = inner.resolve_end(subscription.end, now);
        let from = inner.resolve_start(subscription.from, now);
        let mut query = RepeatedQuery {
            subscription: subscription.clone().from(from).until(to),
            to,
            seen: 0,
        };
        let id = self.next_id;
        self.next_id += 1;
        let first = Run { time: now, id };
        query.run(&self.broker, &mut self.received, first, on_match)?;
        if to >= now {
            let time = now.saturating_add(self.every).min(to);
            self.due.push(Reverse(Run { time, id }));
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
        self.run_due(now, AfterRun::Repeat, on_match)
    }

    /// As [`RepeatedQueries::advance`], if nothing more will be published: runs each query for the
    /// last time.
    ///
    /// # Errors
    /// The errors of [`Broker::query`].
    pub fn finish(&mut self, now: Time, on_match: &mut OnMatch<'_>) -> Result<()> {
        self.run_due(now, AfterRun::Remove, on_match)
    }

    /// Runs the queries that are due at or before `now`, in the order of time.
    fn run_due(
        &mut self,
        now: Time,
        after_run: AfterRun,
        on_match: &mut OnMatch<'_>,
    ) -> Result<()> {
        while let Some(Reverse(run)) = self.due.peek().copied().filter(|run| run.0.time <= now) {
            let query = self.queries.get_mut(&run.id);
            let query = query.ok_or_else(|| Misplaced::here())?;
            // If it fails, the query stays due.
            query.run(&self.broker, &mut self.received, run, on_match)?;
            self.due.pop();
            if after_run == AfterRun::Repeat && run.time < query.to {
                let time = run.time.saturating_add(self.every).min(query.to);
                self.due.push(Reverse(Run { time, id: run.id }));
            } else {
                self.queries.remove(&run.id);
            }
        }
        debug_assert_eq!(self.queries.len(), self.due.len());
        Ok(())
    }

    /// The time at which the next repetition is due.
    pub fn next_due(&self) -> Option<Time> {
        self.due.peek().map(|run| run.0.time)
    }
}

impl RepeatedQuery {
    /// Runs the query once. Changes nothing if the publications cannot be read.
    fn run(
        &mut self,
        broker: &Broker,
        received: &mut Received,
        run: Run,
        on_match: &mut OnMatch<'_>,
    ) -> Result<()> {
        let mut current = self.subscription.clone().at_time(run.time);
        // Self-joins are decided here, by `received`.
        let is_self_join = std::mem::take(&mut current.is_self_join);
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
            if is_new || !is_self_join {
                on_match(run.id, &self.subscription.tag, &notification);
            }
        }
        self.seen = seen;
        // The next run starts where this one ends.
        let from = broker.inner.resolve_start(self.subscription.from, run.time);
        self.subscription.from = Start::At(from.max(run.time));
        Ok(())
    }
}
