//! The incoming connections that are open, and what is sent on them.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::frame::Sender;
use super::queue::{Part, Queue};
use crate::budget::{Budget, Loan};

/// Names an incoming connection. Numbers are not used again within the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Why a reply cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The connection has ended, or is ending.
    Gone,
    /// The other side does not take what is sent: the queue of the connection is full.
    Full,
    /// The reply is longer than the limit of a frame.
    TooLong,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refused::Gone => "the connection has ended",
            Refused::Full => "too many replies wait for the other side",
            Refused::TooLong => "the reply is longer than a frame may be",
        })
    }
}

impl std::error::Error for Refused {}

/// Sends on incoming connections, and ends them.
#[derive(Clone)]
pub struct Replies(pub(super) Arc<Table>);

/// All incoming connections.
pub(super) struct Table {
    pub(super) most: usize,
    pub(super) queue: usize,
    /// How many that were admitted within a budget there are at most.
    pub(super) connections: usize,
    pub(super) open: Mutex<HashMap<ConnectionId, Arc<Open>>>,
    /// A connection has ended.
    pub(super) ended: Condvar,
}

/// An incoming connection, from before its handshake until its thread ends.
pub(super) struct Open {
    stream: TcpStream,
    admitted: AtomicBool,
    /// Bytes behind the last frame have arrived.
    pub(super) has_more: AtomicBool,
    /// Questions that are not answered.
    asked: AtomicU64,
    /// Questions that were.
    answered: AtomicU64,
    /// Where memory for frames comes from, once that is said.
    budget: OnceLock<Arc<Budget>>,
    out: Mutex<Out>,
    changed: Condvar,
}

/// What is to be sent.
struct Out {
    queue: Queue,
    /// Nothing more is queued; the connection ends when all is sent.
    closing: bool,
    /// The thread that receives has ended.
    over: bool,
}

impl Replies {
    /// Queues a frame on a connection, without waiting.
    pub fn send(&self, id: ConnectionId, frame: Vec<Part>) -> Result<(), Refused> {
        let length: usize = frame.iter().map(|part| part.as_ref().len()).sum();
        if length > self.0.most {
            return Err(Refused::TooLong);
        }
        let open = self.get(id).ok_or(Refused::Gone)?;
        let mut out = open.out.lock();
        if out.closing || out.over {
            return Err(Refused::Gone);
        }
        if let Err(frame) = out.queue.push(frame) {
            // What is lent for it is given back without the lock.
            drop(out);
            drop(frame);
            return Err(Refused::Full);
        }
        open.changed.notify_all();
        Ok(())
    }

    /// The connection may send frames of full length, and may be silent for the usual time: the
    /// user knows who is on the other side. It holds from the next frame on when it is called by an
    /// event of the connection; otherwise perhaps from the one after. False where it has ended.
    pub fn admit(&self, id: ConnectionId) -> bool {
        let open = self.get(id).filter(|open| {
            let out = open.out.lock();
            !out.closing && !out.over
        });
        if let Some(open) = &open {
            open.admitted.store(true, Ordering::Relaxed);
        }
        open.is_some()
    }

    /// As [`Replies::admit`]: memory for each frame is lent before it is received. Where there are
    /// too many such connections, this one is ended.
    pub fn admit_within(&self, id: ConnectionId, budget: &Arc<Budget>) -> bool {
        {
            let all = self.0.open.lock();
            let has_budget = |open: &&Arc<Open>| open.budget().is_some();
            let count = all.values().filter(has_budget).count();
            let Some(open) = all.get(&id) else {
                return false;
            };
            if count >= self.0.connections {
                open.abort();
                return false;
            }
            open.budget.get_or_init(|| Arc::clone(budget));
        }
        self.admit(id)
    }

    /// Waits for memory for a reply to a connection that was admitted within a budget; `None` where
    /// it was not, or has ended. For events of that connection.
    pub fn lend(&self, id: ConnectionId, bytes: usize) -> Option<Loan> {
        let open = self.get(id)?;
        open.budget()?.lend(bytes, || open.is_closing())
    }

    /// Notes that a frame of the connection was a question, to which the answer may take any time:
    /// until the returned value is dropped, the other side may be silent. `None` where the
    /// connection has ended.
    pub fn asked(&self, id: ConnectionId) -> Option<Asked> {
        let open = self.get(id)?;
        open.asked.fetch_add(1, Ordering::SeqCst);
        Some(Asked(open))
    }

    /// Ends a connection when the queued replies are sent. Frames that still come from it are
    /// ignored; `Event::Closed` follows.
    pub fn close(&self, id: ConnectionId) {
        if let Some(open) = self.get(id) {
            open.out.lock().closing = true;
            open.changed.notify_all();
            if let Some(budget) = open.budget() {
                budget.wake();
            }
        }
    }

    /// Ends a connection at once. `Event::Closed` follows.
    pub fn abort(&self, id: ConnectionId) {
        if let Some(open) = self.get(id) {
            open.abort();
        }
    }

    /// True where nothing had arrived behind the connection's last frame when that was handed over.
    /// For events of that connection.
    pub fn is_last(&self, id: ConnectionId) -> bool {
        let open = self.get(id);
        open.is_some_and(|open| !open.has_more.load(Ordering::Relaxed))
    }

    /// The number of connections.
    pub fn count(&self) -> usize {
        self.0.open.lock().len()
    }

    fn get(&self, id: ConnectionId) -> Option<Arc<Open>> {
        self.0.open.lock().get(&id).map(Arc::clone)
    }
}

/// A question of a connection that is not answered.
pub struct Asked(Arc<Open>);

impl Drop for Asked {
    fn drop(&mut self) {
        // In this order: `Open::may_be_silent` misses neither.
        self.0.answered.fetch_add(1, Ordering::SeqCst);
        self.0.asked.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Open {
    pub(super) fn new(stream: TcpStream, queue: usize) -> Open {
        Open {
            stream,
            admitted: AtomicBool::new(false),
            has_more: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            budget: OnceLock::new(),
            out: Mutex::new(Out {
                queue: Queue::new(queue),
                closing: false,
                over: false,
            }),
            changed: Condvar::new(),
        }
    }

    pub(super) fn is_admitted(&self) -> bool {
        self.admitted.load(Ordering::Relaxed)
    }

    /// True where the other side waited for an answer since `answered` was the number of those, and
    /// so had no reason to send anything. Sets that number.
    pub(super) fn may_be_silent(&self, answered: &mut u64) -> bool {
        let waits = self.asked.load(Ordering::SeqCst) > 0;
        let now = self.answered.load(Ordering::SeqCst);
        let waited = std::mem::replace(answered, now) != now;
        waits || waited
    }

    pub(super) fn budget(&self) -> Option<&Arc<Budget>> {
        self.budget.get()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.out.lock().closing
    }

    /// Ends both directions at once.
    pub(super) fn abort(&self) {
        self.out.lock().closing = true;
        // It fails where the connection has ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.changed.notify_all();
        if let Some(budget) = self.budget() {
            budget.wake();
        }
    }

    /// The thread that receives has ended.
    pub(super) fn over(&self) {
        self.out.lock().over = true;
        self.changed.notify_all();
    }

    /// The thread that sends: until the connection ends.
    pub(super) fn send(&self, mut to: Sender) {
        /// The bytes that are sent in one call.
        const TOGETHER: usize = 256 << 10;
        /// How long the other side has to close its direction.
        const LAST: Duration = Duration::from_secs(1);
        loop {
            let frames = {
                let mut out = self.out.lock();
                while out.queue.is_empty() && !out.closing && !out.over {
                    self.changed.wait(&mut out);
                }
                if out.over || out.queue.is_empty() {
                    break;
                }
                out.queue.take(TOGETHER)
            };
            if to.send_all(&frames).is_err() {
                break;
            }
        }
        // Ended at once, the last replies could be lost on the way.
        let closed = to.close();
        let mut out = self.out.lock();
        out.closing = true;
        if closed.is_ok() && !out.over {
            let waiting = |out: &mut Out| !out.over;
            self.changed.wait_while_for(&mut out, waiting, LAST);
        }
        drop(out);
        self.abort();
    }
}
