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

use esker::changes::{Listening, Signal, Wake};
use esker::{ChangesFrom, Dataset, Error, Expr, Key, Position, Seq};
use parking_lot::{Condvar, Mutex};

use super::id::EventId;
use super::source::{Feed, Next, renamed};
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
pub(super) enum Taken<'g> {
    /// So many new changes at most.
    Feed(Reading<'g>, usize),
    /// Another worker's turn, or too many changes are outstanding: until then.
    Not(Option<Instant>),
}

/// The feed while a worker reads it. If the worker panics, the next one reads again what it had
/// read.
pub(super) struct Reading<'g> {
    group: &'g Group,
    worker: u64,
    feed: Option<Box<Feed>>,
    is_back: bool,
}

impl Reading<'_> {
    /// The feed.
    ///
    /// # Errors
    /// Those of opening it.
    pub(super) fn feed(&mut self) -> Result<&mut Feed, Problem> {
        let opened = match self.feed.take() {
            Some(feed) => feed,
            None => self.group.open()?,
        };
        Ok(self.feed.insert(opened))
    }

    /// Puts the feed back, after the worker got these changes. Returns when the first change is
    /// sent again.
    pub(super) fn put_back(
        mut self,
        changes: Vec<(Seq, Position)>,
        deadline: Option<Duration>,
        waits: bool,
    ) -> Option<Instant> {
        self.is_back = true;
        let feed = self.feed.take();
        (self.group).put_feed(feed, self.worker, changes, deadline, waits)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if !self.is_back {
            self.group
                .put_feed(None, self.worker, Vec::new(), None, false);
        }
    }
}

/// A call that stores the position. Others wait for its end, which comes also if it panics.
struct Storing<'g> {
    group: &'g Group,
    /// What was stored.
    stored: Option<Position>,
}

impl Drop for Storing<'_> {
    fn drop(&mut self) {
        let mut state = self.group.state.lock();
        state.is_storing = false;
        state.stored_at = Instant::now();
        if let Some(stored) = self.stored {
            state.stored = stored;
        }
        drop(state);
        self.group.stored.notify_all();
    }
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

    /// Everything up to here was sent, or is for no worker.
    pub(super) fn read(&self) -> Position {
        self.state.lock().read
    }

    /// Calls `wake` when a worker has something to do besides new changes.
    pub(super) fn listen(&self, wake: Arc<Wake>) -> Result<Vec<Listening>, Problem> {
        let changes = self.dataset.changes(ChangesFrom::Now)?;
        Ok(vec![changes.listen(wake.clone())?, self.news.listen(wake)])
    }

    /// The id of an event at a position.
    pub(super) fn id(&self, position: Position) -> EventId {
        EventId::new(&self.dataset, position)
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
    pub(super) fn store(&self) -> Result<Position, Problem> {
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
            let mut storing = Storing {
                group: self,
                stored: None,
            };
            self.dataset.keep_changes_for(&self.name, low, self.keep)?;
            storing.stored = Some(low);
            drop(storing);
            state = self.state.lock();
        }
        Ok(state.stored)
    }

    /// Adds a worker; `None` if the group has ended.
    pub(super) fn join(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if state.has_ended {
            return None;
        }
        state.last_worker += 1;
        let worker = state.last_worker;
        state.workers.insert(worker, true);
        Some(worker)
    }

    pub(super) fn leave(&self, worker: u64) {
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
    pub(super) fn ending(&self) -> Option<Next> {
        if self.is_renamed() {
            self.end(Some(renamed(&self.dataset_name).into()));
        }
        let state = self.state.lock();
        let why = state.why.clone();
        state.has_ended.then(|| why.map_or(Next::End, Next::Fail))
    }

    /// Changes that were not acknowledged in time, which this worker gets now.
    pub(super) fn take_due(&self, worker: u64, deadline: Option<Duration>) -> Vec<(Seq, Position)> {
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
    pub(super) fn give_back(&self, changes: &[(Seq, Position)]) {
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
    pub(super) fn take_feed(&self, worker: u64, may_yield: bool) -> Taken<'_> {
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
        let feed = match std::mem::replace(&mut state.feed, FeedPlace::Taken) {
            FeedPlace::Here(feed) => Some(feed),
            FeedPlace::Closed | FeedPlace::Taken => None,
        };
        let reading = Reading {
            group: self,
            worker,
            feed,
            is_back: false,
        };
        Taken::Feed(reading, room)
    }

    fn open(&self) -> Result<Box<Feed>, Problem> {
        let read = self.state.lock().read;
        Ok(Box::new(self.feed_from(read)?))
    }

    pub(super) fn feed_from(&self, position: Position) -> Result<Feed, Error> {
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
            state.read = feed.position();
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
    pub(super) fn has_skipped(&self) -> bool {
        let state = self.state.lock();
        state.sent.is_empty()
            && state.stored.seq < state.read.seq
            && !state.is_storing
            && state.stored_at.elapsed() >= SKIPS
    }
}
