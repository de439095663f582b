//! The group's log: its segments, how far they are durable, and the queue of those that wait for a
//! sync (`sync.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::Thread;

use parking_lot::Mutex;

use crate::entry::Seq;
use crate::version::ClosedSegment;
use crate::wal::LogWriter;

/// A log segment of this handle. Where the log is the caller's it is the part of that which a
/// generation holds: it has no file, and is in none of the lists of segments.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(super) log: Option<LogWriter>,
    /// The last write before the segment's first.
    pub(super) after: Seq,
    /// The last write appended to this or an earlier segment.
    pub(super) last: AtomicU64,
    /// Whether the file's name is durable.
    pub(super) named: AtomicBool,
}

/// The segments, and how far they are durable.
pub(super) struct Log {
    /// Segments of generations that are not on disk yet, oldest first.
    pub(super) segments: Mutex<Vec<Arc<Segment>>>,
    /// Closed segments that still exist, oldest first, those of earlier handles and flushed ones
    /// included. Locked before `segments` where both are locked.
    pub(super) closed: Mutex<Vec<ClosedSegment>>,
    /// The last write that is known to be durable.
    synced: AtomicU64,
    /// The number of appends that were rolled back.
    pub(super) taken_back: AtomicU64,
    /// How many of them can no longer reappear after a power cut.
    pub(super) taken_back_durably: AtomicU64,
    pub(super) queue: Mutex<Queue>,
}

#[derive(Default)]
pub(super) struct Queue {
    /// A thread is the leader, or was signalled to lead.
    pub(super) led: bool,
    /// A write was reported as not durable: from then on no write is acknowledged.
    pub(super) refused: bool,
    /// The last write that may be acknowledged.
    pub(super) granted: Seq,
    pub(super) waiting: Vec<Arc<Waiter>>,
}

pub(super) struct Waiter {
    pub(super) upto: Seq,
    pub(super) thread: Thread,
    pub(super) signal: AtomicU8,
}

/// The signal to a waiter: none yet, check again, lead.
pub(super) const WAIT: u8 = 0;
pub(super) const CHECK: u8 = 1;
pub(super) const LEAD: u8 = 2;

impl Waiter {
    pub(super) fn wait(&self) -> u8 {
        loop {
            match self.signal.load(Ordering::Acquire) {
                WAIT => std::thread::park(),
                signal => return signal,
            }
        }
    }
}

impl Log {
    /// `synced` is the last write that is known to be durable.
    pub(super) fn new(synced: Seq, closed: Vec<ClosedSegment>) -> Log {
        Log {
            segments: Mutex::default(),
            closed: Mutex::new(closed),
            synced: AtomicU64::new(synced),
            taken_back: AtomicU64::new(0),
            taken_back_durably: AtomicU64::new(0),
            queue: Mutex::default(),
        }
    }

    /// The last write that is known to be durable.
    #[inline]
    pub(super) fn synced(&self) -> Seq {
        self.synced.load(Ordering::Acquire)
    }

    /// Records that everything up to `last` is durable.
    pub(super) fn note_synced(&self, last: Seq) {
        self.synced.fetch_max(last, Ordering::AcqRel);
    }

    /// Records that an append was rolled back.
    pub(super) fn note_taken_back(&self) {
        self.taken_back.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn covers(&self, upto: Seq) -> bool {
        self.synced() >= upto
            && self.taken_back_durably.load(Ordering::Acquire)
                == self.taken_back.load(Ordering::Acquire)
    }
}
