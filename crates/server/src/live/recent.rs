//! The recent changes of a dataset, read from the log once for all of its streams.
//!
//! One task follows the log of a dataset that has streams ([`Recent::follow`]). A stream that has
//! read nearly everything takes its changes from here; one that is behind reads the log by itself
//! until it is here. So a commit costs one read of the log for each dataset with streams, and wakes
//! the streams of its own dataset alone.
//!
//! **Invariants.** Under the lock, `changes` has every change behind `from` and up to `to`, in
//! order; both only grow. What is evicted moves `from` first, so that a stream that needed it sees
//! that it is behind. Streams are woken after `changes` has grown, and look after they began to
//! listen. After an error of the follower nothing is added: streams then read the log themselves,
//! and find that error, or go on.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

use esker::changes::{Listening, Signal, Wake};
use esker::{Change, Changes, ChangesFrom, Dataset, Error, ErrorKind, Key, Position, Record};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The bytes of changes that are kept for a dataset, at most.
const KEPT: usize = 4 << 20;

/// What a change costs beside its records.
const OVERHEAD: usize = 256;

/// The most changes that a stream takes at a time.
const TAKEN: usize = 256;

/// The most bytes of changes that a stream takes at a time, but for a single one.
const TAKEN_BYTES: usize = 64 << 10;

/// The recent changes of a dataset.
pub(crate) struct Recent {
    dataset: Dataset<Key>,
    name: String,
    most: usize,
    state: Mutex<State>,
    /// Wakes the streams.
    news: Signal,
    /// Wakes the follower, also when the last stream has ended.
    work: Arc<Notify>,
}

impl Drop for Recent {
    fn drop(&mut self) {
        self.work.notify_one();
    }
}

struct State {
    changes: VecDeque<Arc<Change>>,
    bytes: usize,
    from: Position,
    to: Position,
    has_ended: bool,
}

/// What a stream finds here.
#[derive(Debug)]
pub(super) enum Taken {
    /// The stream is behind what is kept: the log has what it needs.
    Behind,
    /// The next changes; and the place behind them.
    Changes(VecDeque<Arc<Change>>, Position),
}

fn bytes(change: &Change) -> usize {
    let records = [change.record(), change.old()].into_iter().flatten();
    let records: usize = records.map(|record: &Record| record.json().len()).sum();
    records + change.key().as_bytes().len() + OVERHEAD
}

/// Reads the log for [`Recent`], which ends with it.
pub(crate) struct Follower {
    recent: Weak<Recent>,
    changes: Changes<Key>,
    work: Arc<Notify>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(recent) = self.recent.upgrade() {
            recent.end();
        }
    }
}

impl Recent {
    /// The changes of a dataset from now on, and what reads them.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn of(dataset: &Dataset<Key>) -> Result<(Arc<Recent>, Follower), Error> {
        Recent::keeping(dataset, KEPT)
    }

    /// As [`Recent::of`], keeps at most so many bytes.
    pub(super) fn keeping(
        dataset: &Dataset<Key>,
        most: usize,
    ) -> Result<(Arc<Recent>, Follower), Error> {
        let changes = changes_now(dataset)?;
        let work = Arc::new(Notify::new());
        let recent = Arc::new(Recent {
            dataset: dataset.clone(),
            name: dataset.name(),
            most,
            state: Mutex::new(State {
                changes: VecDeque::new(),
                bytes: 0,
                from: changes.position(),
                to: changes.position(),
                has_ended: false,
            }),
            news: Signal::default(),
            work: work.clone(),
        });
        let follower = Follower {
            recent: Arc::downgrade(&recent),
            changes,
            work,
        };
        Ok((recent, follower))
    }

    /// True if nothing is added any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Calls `wake` when there may be a new change, until what it returns is dropped.
    pub(super) fn listen(&self, wake: Arc<Wake>) -> Listening {
        self.news.listen(wake)
    }

    /// The changes behind a position.
    pub(super) fn after(&self, position: Position) -> Taken {
        let state = self.state.lock();
        if state.has_ended || position.seq < state.from.seq {
            return Taken::Behind;
        }
        let first = (state.changes).partition_point(|change| change.seq() <= position.seq);
        let (mut taken, mut size) = (VecDeque::new(), 0);
        for change in state.changes.iter().skip(first).take(TAKEN) {
            size += bytes(change);
            if size > TAKEN_BYTES && !taken.is_empty() {
                break;
            }
            taken.push_back(change.clone());
        }
        let is_all = first + taken.len() == state.changes.len();
        let place = match taken.back() {
            Some(last) if !is_all => last.position(),
            // The stream may be before the follower.
            _ if state.to.seq > position.seq => state.to,
            _ => position,
        };
        Taken::Changes(taken, place)
    }

    fn add(&self, found: Vec<Change>, to: Position) {
        let mut state = self.state.lock();
        let is_new = !found.is_empty();
        for change in found {
            state.bytes += bytes(&change);
            state.changes.push_back(Arc::new(change));
        }
        state.to = to;
        while state.bytes > self.most
            && let Some(evicted) = state.changes.pop_front()
        {
            state.bytes -= bytes(&evicted);
            state.from = evicted.position();
        }
        drop(state);
        if is_new {
            self.news.notify();
        }
    }

    /// Forgets what is kept: the log was cut before it was read.
    fn skip(&self, to: Position) {
        let mut state = self.state.lock();
        state.changes.clear();
        state.bytes = 0;
        (state.from, state.to) = (to, to);
        drop(state);
        self.news.notify();
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.changes.clear();
        drop(state);
        self.news.notify();
    }
}

/// With the records that were replaced, if the dataset has them.
fn changes_now(dataset: &Dataset<Key>) -> Result<Changes<Key>, Error> {
    match dataset.changes(ChangesFrom::Now)?.with_old() {
        Err(error) if error.kind() == ErrorKind::NoOldRecords => dataset.changes(ChangesFrom::Now),
        changes => changes,
    }
}

impl Follower {
    /// Notifies [`Follower::woken`] when there is something to read, until what it returns is
    /// dropped.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn listen(&self) -> Result<Listening, Error> {
        let work = self.work.clone();
        self.changes.listen(Arc::new(move || work.notify_one()))
    }

    /// Is notified when there is something to read, and when no stream is left.
    pub(crate) fn woken(&self) -> Arc<Notify> {
        self.work.clone()
    }

    /// Reads until a time; true if there is more. `None` if no stream is left, or after an error.
    pub(crate) fn read(&mut self, until: Instant) -> Option<bool> {
        let recent = self.recent.upgrade()?;
        // Streams end when their dataset has another name.
        if recent.dataset.name() != recent.name {
            recent.end();
            return None;
        }
        match self.add_to(&recent, until) {
            Ok(is_more) => Some(is_more),
            Err(error) => {
                let moved = (error.kind() == ErrorKind::PositionExpired)
                    .then(|| changes_now(&recent.dataset).ok())
                    .flatten();
                let Some(moved) = moved else {
                    recent.end();
                    return None;
                };
                recent.skip(moved.position());
                self.changes = moved;
                Some(true)
            }
        }
    }

    fn add_to(&mut self, recent: &Recent, until: Instant) -> Result<bool, Error> {
        loop {
            let (mut found, mut size) = (Vec::new(), 0);
            while size < TAKEN_BYTES
                && let Some(change) = self.changes.next_until(until)?
            {
                size += bytes(&change);
                found.push(change);
            }
            let is_more = size >= TAKEN_BYTES || self.changes.is_behind();
            recent.add(found, self.changes.position());
            if !is_more || Instant::now() >= until {
                return Ok(is_more);
            }
        }
    }
}
