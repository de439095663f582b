//! The log and commit sequencer: allocates sequence numbers and tracks how far the log is written,
//! durable, and visible.
//!
//! Its parts are the log's segments and the sync queue (`log.rs`), reserved numbers and retained
//! segments (`order.rs`), and followers (`tail.rs`). `commit.rs` passes batches through it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::core::Core;
use super::log::{Log, Segment};
use super::tails::Tails;
use super::taken::TakenConsumers;
use crate::entry::{Position, Seq};

/// The state behind the `writer` lock.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) next_seq: Seq,
    /// The last allocated number that is not lost.
    pub(super) last: Seq,
    /// The last write that must be durable before it is acknowledged.
    pub(super) demanded: Seq,
    /// The segment of the active generation; `None` until the first write.
    pub(super) segment: Option<Arc<Segment>>,
    /// The last replayed segment: its number and its valid length.
    pub(super) replayed: Option<(u64, u64)>,
    /// The manifest and segments found at opening that may only be in the system's cache.
    pub(super) unsynced: Vec<PathBuf>,
    /// Segments that are not part of the log: they hold no write that was acknowledged as durable.
    pub(super) discarded: Vec<PathBuf>,
    /// What the log says of the time.
    pub(super) stamped: Stamped,
    /// Microseconds of delay that are due and that no writer has slept yet.
    pub(super) delay: u64,
}

/// The records of the time in the log.
#[derive(Default)]
pub(super) struct Stamped {
    /// The second, and the segment, that one was last considered for.
    pub(super) considered: (u64, u64),
    /// The last segment that says a time.
    pub(super) says: Option<u64>,
}

pub(super) struct Sequencer {
    pub(super) core: Arc<Core>,
    pub(super) writer: Mutex<Writer>,
    /// The last visible sequence number.
    pub(super) visible: AtomicU64,
    /// The identifier of the order of commits.
    pub(super) history: AtomicU64,
    /// The next sequence number, and the end of the reserved ones.
    pub(super) given: AtomicU64,
    pub(super) reserved: AtomicU64,
    pub(super) log: Log,
    pub(super) tails: Tails,
    /// There are consumers, as far as is known: the log says the time.
    pub(super) consumed: AtomicBool,
    /// There are durably no consumers, as far as is known.
    pub(super) unconsumed: AtomicBool,
    pub(super) consumers: TakenConsumers,
}

impl Sequencer {
    /// Continues from the state in `writer` after the writes in `log`, all of which are visible.
    pub(super) fn new(core: Arc<Core>, writer: Writer, log: Log, history: u64) -> Sequencer {
        Sequencer {
            core,
            visible: AtomicU64::new(writer.last),
            history: AtomicU64::new(history),
            given: AtomicU64::new(writer.next_seq),
            writer: Mutex::new(writer),
            // None are reserved before the first change of this handle.
            reserved: AtomicU64::new(0),
            log,
            tails: Tails::default(),
            consumed: AtomicBool::new(false),
            unconsumed: AtomicBool::new(false),
            consumers: TakenConsumers::default(),
        }
    }

    /// Makes everything up to `last` visible.
    #[inline]
    pub(super) fn publish(&self, last: Seq) {
        self.visible.fetch_max(last, Ordering::SeqCst);
        self.core.commits.notify();
    }

    pub(super) fn visible(&self) -> Seq {
        self.visible.load(Ordering::Acquire)
    }

    pub(super) fn position_of(&self, seq: Seq) -> Position {
        Position {
            history: self.history.load(Ordering::Acquire),
            seq,
        }
    }
}
