//! The state of a connection after the handshake: requests in flight, replies that wait to be
//! written, and deadlines.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::replies::Reply;
use crate::budget::{Budget, Loan};

/// How far a connection is. It only moves down this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Requests are read.
    Open,
    /// No request is read any more; those in flight end, and their replies are written.
    Draining,
    /// Nothing is read nor written any more.
    Over,
}

/// What a reader and a writer of a connection share.
pub(super) struct Connection {
    most_requests: usize,
    most_bytes: usize,
    budget: Arc<Budget>,
    state: Mutex<State>,
    /// The reader waits for fewer requests in flight.
    ended: Condvar,
    /// The writer waits for replies.
    replied: Condvar,
    /// When the connection has to end by itself.
    pub(super) deadlines: Deadlines,
}

struct State {
    phase: Phase,
    requests: usize,
    bytes: usize,
    replies: VecDeque<(Reply, Slot)>,
}

/// A request in flight: it counts until this is dropped, after its reply was written.
pub(super) struct Slot {
    of: Arc<Connection>,
    bytes: usize,
    _loan: Loan,
}

impl Connection {
    /// A connection with at most `most_requests` in flight, and bytes from `budget`, of which it
    /// uses at most `most_bytes`.
    pub(super) fn new(
        most_requests: usize,
        most_bytes: usize,
        budget: Arc<Budget>,
    ) -> Arc<Connection> {
        Arc::new(Connection {
            most_requests,
            most_bytes,
            budget,
            state: Mutex::new(State {
                phase: Phase::Open,
                requests: 0,
                bytes: 0,
                replies: VecDeque::new(),
            }),
            ended: Condvar::new(),
            replied: Condvar::new(),
            deadlines: Deadlines::new(),
        })
    }

    pub(super) fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Waits until a request that holds `bytes` of data may begin. `None` when no request may any
    /// more.
    pub(super) fn begin(self: &Arc<Self>, bytes: usize) -> Option<Slot> {
        {
            let mut state = self.state.lock();
            while state.phase == Phase::Open && !self.has_room(&state, bytes) {
                self.ended.wait(&mut state);
            }
            if state.phase != Phase::Open {
                return None;
            }
        }
        let is_over = || self.phase() != Phase::Open;
        let loan = self.budget.lend(bytes, is_over)?;
        Some(self.count(bytes, loan))
    }

    /// As [`Connection::begin`], where that need not wait.
    pub(super) fn try_begin(self: &Arc<Self>, bytes: usize) -> Option<Slot> {
        {
            let state = self.state.lock();
            if state.phase != Phase::Open || !self.has_room(&state, bytes) {
                return None;
            }
        }
        let loan = self.budget.try_lend(bytes)?;
        Some(self.count(bytes, loan))
    }

    /// Only the reader adds requests, so there is still room.
    fn count(self: &Arc<Self>, bytes: usize, loan: Loan) -> Slot {
        let mut state = self.state.lock();
        state.requests += 1;
        state.bytes += bytes;
        Slot {
            of: Arc::clone(self),
            bytes,
            _loan: loan,
        }
    }

    /// True where one more request with `bytes` of data may begin. The only one may be of any size.
    fn has_room(&self, state: &State, bytes: usize) -> bool {
        let fits = state.requests == 0 || state.bytes + bytes <= self.most_bytes;
        state.requests < self.most_requests && fits
    }

    /// Queues a reply. After the end it goes nowhere.
    pub(super) fn reply(&self, reply: Reply, slot: Slot) {
        let mut state = self.state.lock();
        if state.phase < Phase::Over {
            state.replies.push_back((reply, slot));
            self.replied.notify_one();
        } else {
            // A slot that is dropped takes the lock.
            drop(state);
            drop((reply, slot));
        }
    }

    /// The next reply, if there is one already.
    pub(super) fn try_next(&self) -> Option<(Reply, Slot)> {
        self.state.lock().replies.pop_front()
    }

    /// Waits for the next reply. `None` when there will be none any more.
    pub(super) fn next(&self) -> Option<(Reply, Slot)> {
        let mut state = self.state.lock();
        loop {
            if let Some(next) = state.replies.pop_front() {
                return Some(next);
            }
            match state.phase {
                Phase::Draining if state.requests == 0 => return None,
                Phase::Over => return None,
                _ => self.replied.wait(&mut state),
            }
        }
    }

    /// Moves to a later phase; an earlier one changes nothing.
    pub(super) fn enter(&self, phase: Phase) {
        let dropped = {
            let mut state = self.state.lock();
            state.phase = state.phase.max(phase);
            self.ended.notify_all();
            self.replied.notify_all();
            match state.phase {
                Phase::Over => std::mem::take(&mut state.replies),
                _ => VecDeque::new(),
            }
        };
        // Slots take the lock when they are dropped.
        drop(dropped);
        self.budget.wake();
    }

    /// True while no request is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        self.state.lock().requests == 0
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        state.requests -= 1;
        state.bytes -= self.bytes;
        self.of.ended.notify_all();
        if state.requests == 0 {
            self.of.replied.notify_all();
        }
    }
}

/// When a connection has to end by itself: what is under way takes too long, or nothing has
/// happened for long.
pub(super) struct Deadlines {
    from: Instant,
    /// Milliseconds after `from`; the largest number is never.
    reading: AtomicU64,
    writing: AtomicU64,
    last_read: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Deadlines {
    pub(super) fn new() -> Deadlines {
        Deadlines {
            from: Instant::now(),
            reading: AtomicU64::new(NEVER),
            writing: AtomicU64::new(NEVER),
            last_read: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        millis(self.from.elapsed())
    }

    /// What is read now has to be complete after this time.
    pub(super) fn read_within(&self, time: Duration) {
        let end = self.now().saturating_add(millis(time));
        self.reading.store(end, Ordering::Relaxed);
    }

    /// What was read is complete.
    pub(super) fn has_read(&self) {
        self.reading.store(NEVER, Ordering::Relaxed);
        self.last_read.store(self.now(), Ordering::Relaxed);
    }

    /// What is written now has to be complete after this time.
    pub(super) fn write_within(&self, time: Duration) {
        let end = self.now().saturating_add(millis(time));
        self.writing.store(end, Ordering::Relaxed);
    }

    /// What was written is complete.
    pub(super) fn has_written(&self) {
        self.writing.store(NEVER, Ordering::Relaxed);
    }

    /// True where something under way takes too long.
    pub(super) fn is_stalled(&self) -> bool {
        let now = self.now();
        let ends = [&self.reading, &self.writing].map(|end| end.load(Ordering::Relaxed));
        ends.into_iter().any(|end| end < now)
    }

    /// True where nothing was read for that long.
    pub(super) fn is_idle_for(&self, time: Duration) -> bool {
        let last = self.last_read.load(Ordering::Relaxed);
        self.now().saturating_sub(last) > millis(time)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_its_share_and_no_more() {
        let budget = Budget::new(1000);
        let connection = Connection::new(3, 100, Arc::clone(&budget));
        let has_room = |bytes| connection.has_room(&connection.state.lock(), bytes);
        assert!(has_room(1000), "a request alone");
        let first = connection.begin(60).unwrap();
        assert!(has_room(40) && !has_room(41));
        let second = connection.begin(40).unwrap();
        assert!(has_room(0) && !has_room(1));
        let third = connection.begin(0).unwrap();
        assert!(!has_room(0), "too many");
        assert_eq!(budget.lent(), 100);
        connection.reply(Reply::success(1), first);
        drop((second, third));
        assert!(
            has_room(40) && !has_room(41),
            "a reply counts until it is written"
        );
        connection.enter(Phase::Draining);
        assert!(connection.begin(0).is_none());
        drop(connection.next().unwrap());
        assert!(connection.next().is_none());
        assert!(connection.is_quiet());
        assert_eq!(budget.lent(), 0);
    }

    #[test]
    fn the_end_drops_replies_and_those_that_come_later() {
        let budget = Budget::new(1000);
        let connection = Connection::new(3, 100, Arc::clone(&budget));
        let slots = [5, 6].map(|bytes| connection.begin(bytes).unwrap());
        let [early, late] = slots;
        connection.reply(Reply::success(1), early);
        connection.enter(Phase::Over);
        assert_eq!(budget.lent(), 6);
        connection.reply(Reply::success(2), late);
        assert_eq!(budget.lent(), 0);
        assert!(connection.next().is_none());
        connection.enter(Phase::Draining);
        assert_eq!(connection.phase(), Phase::Over);
    }

    #[test]
    fn deadlines_pass() {
        let deadlines = Deadlines::new();
        assert!(!deadlines.is_stalled());
        let pass = || std::thread::sleep(Duration::from_millis(5));
        deadlines.read_within(Duration::ZERO);
        pass();
        assert!(deadlines.is_stalled() && deadlines.is_idle_for(Duration::ZERO));
        deadlines.has_read();
        assert!(!deadlines.is_stalled());
        deadlines.write_within(Duration::ZERO);
        pass();
        assert!(deadlines.is_stalled());
        deadlines.write_within(Duration::MAX);
        assert!(!deadlines.is_stalled());
        deadlines.has_written();
        assert!(!deadlines.is_stalled() && !deadlines.is_idle_for(Duration::from_secs(3600)));
    }
}
