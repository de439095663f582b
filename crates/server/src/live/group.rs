//! A named consumer with its connections (workers), and the changes that were sent to them and not
//! acknowledged.
//!
//! **Invariants.** The position that the store has is never behind a change that is not
//! acknowledged. A change is in `sent` before it leaves a step, so before a client can have it. At
//! most [`MOST`] changes are in `sent`; only their numbers are kept, and what is sent again is read
//! again. The feed is taken out of the state while a worker reads it, so that no lock is held
//! across a call of the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use esker::changes::{Listening, Signal, Wake};
use esker::{ChangesFrom, Dataset, Error, Expr, Key, Position, Seq};
use parking_lot::{Condvar, Mutex};

use super::source::{Event, Feed, Found, Next, STEP_TIME, Source, Step, renamed};
use crate::problem::Problem;

/// Changes that may be outstanding; then sending waits for acknowledgements.
const MOST: usize = 1000;

/// Changes that one of several workers gets at a time.
const BATCH: usize = 16;

/// How long a worker waits for one that has less to do.
const YIELD: Duration = Duration::from_millis(10);

/// How often the position moves past changes that are for no worker, at most.
const SKIPS: Duration = Duration::from_secs(10);

/// What the workers of a consumer read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reads {
    pub(super) condition: Option<Expr>,
    pub(super) with_old: bool,
    pub(super) is_shared: bool,
}

/// A consumer with its workers.
pub(crate) struct Group {
    dataset: Dataset<Key>,
    /// Its name when the group began: by it was decided who may read.
    dataset_name: String,
    name: String,
    keep: u64,
    reads: Reads,
    state: Mutex<State>,
    /// Wakes acknowledgements that wait for another one's write.
    stored: Condvar,
    /// Wakes workers.
    news: Signal,
}

struct State {
    feed: FeedPlace,
    /// Every change up to here was sent, or is for no worker.
    read: Position,
    /// The position as the store has it.
    stored: Position,
    stored_at: Instant,
    is_storing: bool,
    sent: BTreeMap<Seq, Sent>,
    /// The workers; true for one that waits for changes.
    workers: BTreeMap<u64, bool>,
    last_worker: u64,
    /// True when the group has no future; the reason, for its workers.
    has_ended: bool,
    why: Option<Problem>,
}

enum FeedPlace {
    /// It is opened by the next worker that reads.
    Closed,
    Here(Box<Feed>),
    /// A worker reads it.
    Taken,
}

/// A change that was sent, and not acknowledged.
struct Sent {
    /// The position before it.
    before: Position,
    worker: u64,
    /// When it is sent again.
    due: Option<Instant>,
}

impl State {
    /// Every change up to here is acknowledged, or is for no worker.
    fn low(&self) -> Position {
        let first = self.sent.first_key_value();
        first.map_or(self.read, |(_, sent)| sent.before)
    }

    fn sent_to(&self, worker: u64) -> usize {
        let of_worker = self.sent.values().filter(|sent| sent.worker == worker);
        of_worker.count()
    }

    fn next_due(&self) -> Option<Instant> {
        self.sent.values().filter_map(|sent| sent.due).min()
    }
}

/// What a worker may read.
enum Taken {
    /// So many new changes at most.
    Feed(Option<Box<Feed>>, usize),
    /// Another worker's turn, or too many changes are outstanding: until then.
    Not(Option<Instant>),
}

/// What a consumer does at the moment.
#[derive(Default)]
pub(crate) struct Activity {
    pub(crate) connections: usize,
    pub(crate) outstanding: usize,
}

impl Group {
    pub(super) fn new(
        dataset: Dataset<Key>,
        name: String,
        keep: u64,
        reads: Reads,
        begin: Position,
    ) -> Group {
        Group {
            dataset_name: dataset.name(),
            dataset,
            name,
            keep,
            reads,
            state: Mutex::new(State {
                feed: FeedPlace::Closed,
                read: begin,
                stored: begin,
                stored_at: Instant::now(),
                is_storing: false,
                sent: BTreeMap::new(),
                workers: BTreeMap::new(),
                last_worker: 0,
                has_ended: false,
                why: None,
            }),
            stored: Condvar::new(),
            news: Signal::default(),
        }
    }

    pub(super) fn reads(&self) -> &Reads {
        &self.reads
    }

    pub(super) fn has_ended(&self) -> bool {
        self.is_renamed() || self.state.lock().has_ended
    }

    fn is_renamed(&self) -> bool {
        self.dataset.name() != self.dataset_name
    }

    pub(super) fn has_workers(&self) -> bool {
        let state = self.state.lock();
        !state.has_ended && !state.workers.is_empty()
    }

    /// True if its state is more than the store has.
    pub(super) fn is_needed(&self) -> bool {
        let state = self.state.lock();
        let is_used = !state.workers.is_empty() || !state.sent.is_empty();
        is_used && !state.has_ended
    }

    pub(super) fn activity(&self) -> Activity {
        let state = self.state.lock();
        Activity {
            connections: state.workers.len(),
            outstanding: state.sent.len(),
        }
    }

    /// Ends its workers.
    pub(super) fn end(&self, why: Option<Problem>) {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.why = why;
        drop(state);
        self.news.notify();
    }

    /// Acknowledges changes. Those of the only connection are acknowledged with all before them;
    /// others one by one, as another worker may have those before them. Returns how many were
    /// outstanding, and the position of the consumer then. Calls the store.
    ///
    /// # Errors
    /// 400 for a change that was not sent; any write error.
    pub(super) fn acknowledge(&self, received: &[Position]) -> Result<(usize, Position), Problem> {
        let mut state = self.state.lock();
        let is_unknown =
            |one: &&Position| one.history != state.read.history || one.seq > state.read.seq;
        if let Some(unknown) = received.iter().find(is_unknown) {
            let detail = format!("change {unknown} was not sent to consumer `{}`", self.name);
            return Err(Problem::bad_request(detail));
        }
        let before = state.sent.len();
        for one in received {
            if self.reads.is_shared {
                state.sent.remove(&one.seq);
            } else {
                state.sent.retain(|seq, _| *seq > one.seq);
            }
        }
        let count = before - state.sent.len();
        drop(state);
        self.news.notify();
        Ok((count, self.store()?))
    }

    /// Stores what is acknowledged now, unless another call does so for it.
    fn store(&self) -> Result<Position, Problem> {
        let mut state = self.state.lock();
        let wanted = state.low();
        while state.stored.seq < wanted.seq {
            if state.has_ended {
                let why = state.why.clone();
                return Err(why.unwrap_or_else(|| Problem::internal("the consumer has ended")));
            }
            if state.is_storing {
                self.stored.wait(&mut state);
                continue;
            }
            state.is_storing = true;
            let low = state.low();
            drop(state);
            let stored = self.dataset.keep_changes_for(&self.name, low, self.keep);
            state = self.state.lock();
            state.is_storing = false;
            state.stored_at = Instant::now();
            if stored.is_ok() {
                state.stored = low;
            }
            self.stored.notify_all();
            stored?;
        }
        Ok(state.stored)
    }

    /// Adds a worker; `None` if the group has ended.
    fn join(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if state.has_ended {
            return None;
        }
        state.last_worker += 1;
        let worker = state.last_worker;
        state.workers.insert(worker, true);
        Some(worker)
    }

    fn leave(&self, worker: u64) {
        let mut state = self.state.lock();
        state.workers.remove(&worker);
        let mut unused = FeedPlace::Closed;
        if state.workers.is_empty() && matches!(state.feed, FeedPlace::Here(_)) {
            std::mem::swap(&mut unused, &mut state.feed);
        }
        drop(state);
        // Without the lock: it closes a file.
        drop(unused);
        self.news.notify();
    }

    /// The problem that ends the workers, if they are to end.
    fn ending(&self) -> Option<Next> {
        if self.is_renamed() {
            self.end(Some(renamed(&self.dataset_name).into()));
        }
        let state = self.state.lock();
        let why = state.why.clone();
        state.has_ended.then(|| why.map_or(Next::End, Next::Fail))
    }

    /// Changes that were not acknowledged in time, which this worker gets now.
    fn take_due(&self, worker: u64, deadline: Option<Duration>) -> Vec<(Seq, Position)> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let is_due = |sent: &Sent| sent.due.is_some_and(|due| due <= now);
        let due = state.sent.iter_mut().filter(|(_, sent)| is_due(sent));
        let taken = due.take(BATCH).map(|(seq, sent)| {
            sent.worker = worker;
            sent.due = deadline.map(|deadline| now + deadline);
            (*seq, sent.before)
        });
        taken.collect()
    }

    /// Changes that a worker took and did not get.
    fn give_back(&self, changes: &[(Seq, Position)]) {
        let now = Instant::now();
        let mut state = self.state.lock();
        for (seq, _) in changes {
            if let Some(sent) = state.sent.get_mut(seq) {
                sent.due = Some(now);
            }
        }
        drop(state);
        self.news.notify();
    }

    /// Takes the feed for a worker. One that `may_yield` leaves it to another that waits and has
    /// less to do.
    fn take_feed(&self, worker: u64, may_yield: bool) -> Taken {
        let mut state = self.state.lock();
        let own = state.sent_to(worker);
        let others = state.workers.len().max(1);
        let room = (MOST / others).max(1).saturating_sub(own);
        let room = room.min(MOST.saturating_sub(state.sent.len()));
        let waits_with_less =
            |other: u64, waits: bool| waits && other != worker && state.sent_to(other) < own;
        let mut workers = state.workers.iter();
        let is_others_turn =
            may_yield && workers.any(|(other, waits)| waits_with_less(*other, *waits));
        let is_taken = matches!(state.feed, FeedPlace::Taken);
        let due = state.next_due();
        if room == 0 || is_others_turn || is_taken {
            // One that may have no more could not take its turn.
            state.workers.insert(worker, room > 0);
            let again = (is_others_turn && !is_taken).then(|| Instant::now() + YIELD);
            return Taken::Not(due.into_iter().chain(again).min());
        }
        state.workers.insert(worker, false);
        let room = if self.reads.is_shared {
            room.min(BATCH)
        } else {
            room
        };
        match std::mem::replace(&mut state.feed, FeedPlace::Taken) {
            FeedPlace::Here(feed) => Taken::Feed(Some(feed), room),
            FeedPlace::Closed | FeedPlace::Taken => Taken::Feed(None, room),
        }
    }

    fn open(&self) -> Result<Box<Feed>, Problem> {
        let read = self.state.lock().read;
        Ok(Box::new(self.feed_from(read)?))
    }

    fn feed_from(&self, position: Position) -> Result<Feed, Error> {
        let mut changes = self.dataset.changes(position)?;
        if self.reads.with_old {
            changes = changes.with_old()?;
        }
        Ok(Feed::new(
            &self.dataset,
            changes,
            self.reads.condition.as_ref(),
        ))
    }

    /// Puts the feed back, after a worker got these changes.
    fn put_feed(
        &self,
        feed: Option<Box<Feed>>,
        worker: u64,
        changes: Vec<(Seq, Position)>,
        deadline: Option<Duration>,
        waits: bool,
    ) -> Option<Instant> {
        let due = deadline.map(|deadline| Instant::now() + deadline);
        let mut state = self.state.lock();
        for (seq, before) in changes {
            let sent = Sent {
                before,
                worker,
                due,
            };
            state.sent.insert(seq, sent);
        }
        if let Some(feed) = &feed {
            state.read = feed.changes.position();
        }
        let mut unused = None;
        state.feed = match feed {
            Some(feed) if state.workers.is_empty() => {
                unused = Some(feed);
                FeedPlace::Closed
            }
            Some(feed) => FeedPlace::Here(feed),
            None => FeedPlace::Closed,
        };
        if let Some(here) = state.workers.get_mut(&worker) {
            *here = waits;
        }
        let due = state.next_due();
        let has_others = state.workers.len() > 1;
        drop(state);
        drop(unused);
        // Those that wait for the feed; a signal to itself would never end.
        if has_others && !waits {
            self.news.notify();
        }
        due
    }

    /// True if nothing is outstanding and the store's position is far behind: what lies between is
    /// for no worker.
    fn has_skipped(&self) -> bool {
        let state = self.state.lock();
        state.sent.is_empty()
            && state.stored.seq < state.read.seq
            && !state.is_storing
            && state.stored_at.elapsed() >= SKIPS
    }
}

/// A connection to a consumer.
pub(crate) struct Worker {
    group: Arc<Group>,
    number: u64,
    deadline: Option<Duration>,
    /// It waited for another worker just now.
    has_yielded: bool,
    /// Where a reader continues that has everything so far, if that is known.
    place: Option<Position>,
}

impl Worker {
    /// A new worker of a group; `None` if the group has ended.
    pub(super) fn of(group: &Arc<Group>, deadline: Option<Duration>) -> Option<Worker> {
        let number = group.join()?;
        let is_shared = group.reads.is_shared;
        Some(Worker {
            group: group.clone(),
            number,
            deadline,
            has_yielded: false,
            place: Some(group.state.lock().read).filter(|_| !is_shared),
        })
    }

    /// Sends changes again that were not acknowledged in time. True if there were any.
    fn send_again(&mut self, step: &mut Step) -> Result<bool, Problem> {
        let group = &self.group;
        let due = group.take_due(self.number, self.deadline);
        let (Some((_, before)), Some((last, _))) = (due.first(), due.last()) else {
            return Ok(false);
        };
        let mut next = 0;
        let mut read = || -> Result<(), Error> {
            let mut feed = group.feed_from(*before)?;
            let until = Instant::now() + Duration::from_secs(3600);
            while let Found::Change(change) = feed.next(until)? {
                let place = due.iter().position(|(seq, _)| *seq == change.seq());
                if let Some(place) = place {
                    step.push(Event::of(&change));
                    next = place + 1;
                }
                if change.seq() >= *last || step.is_full() {
                    break;
                }
            }
            Ok(())
        };
        let result = read();
        let rest = due.get(next..).unwrap_or_default();
        if !rest.is_empty() {
            group.give_back(rest);
        }
        result?;
        if next == 0 {
            return Err(Problem::internal("a change that was sent is not there"));
        }
        Ok(true)
    }

    fn send_new(&mut self, step: &mut Step) -> Result<(), Problem> {
        let group = self.group.clone();
        let (feed, room) = match group.take_feed(self.number, !self.has_yielded) {
            Taken::Feed(feed, room) => {
                self.has_yielded = false;
                (feed, room)
            }
            Taken::Not(until) => {
                self.has_yielded = true;
                step.next = Next::Wait(until);
                return Ok(());
            }
        };
        let opened = match feed {
            Some(feed) => Ok(feed),
            None => group.open(),
        };
        let mut feed = match opened {
            Ok(feed) => feed,
            Err(problem) => {
                group.put_feed(None, self.number, Vec::new(), None, true);
                return Err(problem);
            }
        };
        let until = Instant::now() + STEP_TIME;
        let mut changes = Vec::new();
        let ended = loop {
            if step.is_full() || changes.len() >= room {
                break Ok(false);
            }
            let before = feed.changes.position();
            match feed.next(until) {
                Ok(Found::Change(change)) => {
                    changes.push((change.seq(), before));
                    step.push(Event::of(&change));
                }
                Ok(Found::Skipped) => break Ok(false),
                Ok(Found::Nothing) => break Ok(true),
                Err(error) => break Err(error),
            }
        };
        let waits = !matches!(ended, Ok(false)) && changes.is_empty();
        let is_shared = group.reads.is_shared;
        self.place = Some(feed.changes.position()).filter(|_| !is_shared);
        let due = group.put_feed(Some(feed), self.number, changes, self.deadline, waits);
        if ended? {
            step.next = Next::Wait(due);
        }
        Ok(())
    }

    /// What comes next, with what was found so far.
    fn find(&mut self, step: &mut Step) -> Result<(), Problem> {
        if self.send_again(step)? {
            return Ok(());
        }
        self.send_new(step)?;
        if self.group.has_skipped() {
            self.group.store()?;
        }
        Ok(())
    }
}

impl Source for Worker {
    fn step(&mut self) -> Step {
        let mut step = Step::default();
        if let Some(next) = self.group.ending() {
            step.next = next;
            return step;
        }
        if let Err(problem) = self.find(&mut step) {
            if problem.status() == StatusCode::NOT_FOUND {
                // The dataset was dropped, and the consumer with it.
                self.group.end(Some(problem.clone()));
            }
            step.next = Next::Fail(problem);
        }
        step
    }

    fn listen(&self, wake: Arc<Wake>) -> Result<Vec<Listening>, Problem> {
        let changes = self.group.dataset.changes(ChangesFrom::Now)?;
        Ok(vec![
            changes.listen(wake.clone())?,
            self.group.news.listen(wake),
        ])
    }

    fn place(&self) -> Option<String> {
        self.place.map(|place| place.to_string())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.group.leave(self.number);
    }
}
