//! The state of a connection after the handshake: requests in flight, replies that wait to be
//! written, and deadlines.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::direct;
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
    /// Where any thread may send replies: of a connection that is not encrypted.
    direct: OnceLock<Arc<TcpStream>>,
}

struct State {
    phase: Phase,
    requests: usize,
    bytes: usize,
    replies: VecDeque<(Reply, Slot)>,
    sending: Sending,
}

/// Which thread sends replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    None,
    /// The one whose task that is.
    Writer,
    /// Another one, which has some.
    Other,
}

/// A request in flight: it counts until this is dropped, after its reply was written.
pub(super) struct Slot {
    of: Arc<Connection>,
    bytes: usize,
    _loan: Loan,
}

impl direct::Sender for Connection {
    fn send_queued(&self) {
        self.send_waiting();
    }
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
                sending: Sending::None,
            }),
            ended: Condvar::new(),
            replied: Condvar::new(),
            deadlines: Deadlines::new(),
            direct: OnceLock::new(),
        })
    }

    /// Lets any thread send replies on this socket.
    pub(super) fn send_directly(&self, socket: Arc<TcpStream>) {
        let _ = self.direct.set(socket);
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

    /// Queues a reply, and sends it where that need not wait. After the end it goes nowhere.
    pub(super) fn reply(self: &Arc<Self>, reply: Reply, slot: Slot) {
        let mut state = self.state.lock();
        if state.phase < Phase::Over {
            state.replies.push_back((reply, slot));
            if self.direct.get().is_none() {
                self.replied.notify_one();
                return;
            }
            drop(state);
            direct::queued(self);
        } else {
            // A slot that is dropped takes the lock.
            drop(state);
            drop((reply, slot));
        }
    }

    /// Sends replies that wait, as far as the socket takes them, where no other thread sends some.
    fn send_waiting(&self) {
        let Some(socket) = self.direct.get() else {
            return;
        };
        loop {
            let taken = {
                let mut state = self.state.lock();
                if state.sending != Sending::None || state.replies.is_empty() {
                    return;
                }
                state.sending = Sending::Other;
                let count = state.replies.len().min(direct::TOGETHER);
                state.replies.drain(..count).collect()
            };
            let (rest, sent) = direct::send(socket, taken);
            let is_rest = !rest.is_empty();
            let late = {
                let mut state = self.state.lock();
                state.sending = Sending::None;
                let is_over = state.phase == Phase::Over;
                let late = if is_over { rest } else { state.put_back(rest) };
                if is_rest || is_over {
                    self.replied.notify_one();
                }
                late
            };
            // Slots take the lock when they are dropped.
            drop((sent, late));
            if is_rest {
                return;
            }
        }
    }

    /// The next reply for the thread that writes them, if there is one already.
    pub(super) fn try_next(&self) -> Option<(Reply, Slot)> {
        self.state.lock().next()
    }

    /// Waits for the next reply. The thread that writes them has written those before. `None` when
    /// there will be none any more.
    pub(super) fn next(&self) -> Option<(Reply, Slot)> {
        let mut state = self.state.lock();
        if state.sending == Sending::Writer {
            state.sending = Sending::None;
        }
        loop {
            if let Some(next) = state.next() {
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

    /// True while one request is in flight.
    pub(super) fn is_alone(&self) -> bool {
        self.state.lock().requests == 1
    }

    /// True while no request is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        self.state.lock().requests == 0
    }
}

impl State {
    /// The next reply, for the thread that writes them.
    fn next(&mut self) -> Option<(Reply, Slot)> {
        if self.sending == Sending::Other {
            return None;
        }
        let next = self.replies.pop_front()?;
        self.sending = Sending::Writer;
        Some(next)
    }

    /// Puts replies before those that wait; returns none of them.
    fn put_back(&mut self, replies: Vec<(Reply, Slot)>) -> Vec<(Reply, Slot)> {
        for reply in replies.into_iter().rev() {
            self.replies.push_front(reply);
        }
        Vec::new()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        state.requests -= 1;
        state.bytes -= self.bytes;
        self.of.ended.notify_all();
        // Else the writer has no use for waking up.
        if state.requests == 0 && state.phase == Phase::Draining {
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
