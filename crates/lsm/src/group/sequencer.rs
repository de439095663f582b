//! The log and commit sequencer: who writes what under which numbers, how far that is in the log, durable, and visible.
//!
//! Its parts are the log's segments and the queue of those who wait for a sync (`log.rs`), the numbers that are
//! reserved and the segments that are kept (`order.rs`), and who follows (`tail.rs`). A batch goes through it in
//! `commit.rs`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::core::Core;
use super::log::{Log, Segment};
use super::tail::Tails;
use crate::entry::{Position, Seq};

/// Behind the `writer` lock.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) next_seq: Seq,
    /// The last one that was given out and is not lost.
    pub(super) last: Seq,
    /// The last write that asked to be durable before it is acknowledged.
    pub(super) demanded: Seq,
    /// The segment of the active generation; `None` until the first write.
    pub(super) segment: Option<Arc<Segment>>,
    /// The last segment that was replayed: its number and the length that was good.
    pub(super) replayed: Option<(u64, u64)>,
    /// The manifest and the segments that were found, where they may be in the system's cache only.
    pub(super) unsynced: Vec<PathBuf>,
    /// Segments that are no part of the log: they hold nothing that was acknowledged as durable.
    pub(super) forsaken: Vec<PathBuf>,
    /// Microseconds of delay that pressure has put on writers and nobody has slept yet.
    pub(super) delay: u64,
}

pub(super) struct Sequencer {
    pub(super) core: Arc<Core>,
    pub(super) writer: Mutex<Writer>,
    /// The last sequence number that readers see.
    pub(super) visible: AtomicU64,
    /// Names the order of commits.
    pub(super) history: AtomicU64,
    /// The next sequence number, and how far they are reserved.
    pub(super) given: AtomicU64,
    pub(super) reserved: AtomicU64,
    pub(super) log: Log,
    pub(super) tails: Tails,
}

impl Sequencer {
    /// Goes on with what `writer` says, after what is in `log`, of which everything is visible.
    pub(super) fn new(core: Arc<Core>, writer: Writer, log: Log, history: u64) -> Sequencer {
        Sequencer {
            core,
            visible: AtomicU64::new(writer.last),
            history: AtomicU64::new(history),
            given: AtomicU64::new(writer.next_seq),
            writer: Mutex::new(writer),
            // Nothing is, before the first change of this handle says so.
            reserved: AtomicU64::new(0),
            log,
            tails: Tails::default(),
        }
    }

    /// Lets readers see everything up to `last`.
    #[inline]
    pub(super) fn publish(&self, last: Seq) {
        self.visible.fetch_max(last, Ordering::SeqCst);
        self.tails.wake();
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
