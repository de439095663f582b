//! What the sequencer knows of tails: how much of the log is retained for them, and who listens.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::entry::Seq;

/// What the sequencer knows of tails.
#[derive(Default)]
pub(super) struct Tails {
    /// The polling for those who listen, in a read-only group.
    pub(super) polling: Polling,
    /// The tails for which the log is retained.
    holds: Mutex<Vec<Weak<Held>>>,
}

/// The position of a tail, and how much of the log is retained for it.
pub(super) struct Held {
    pub(super) position: AtomicU64,
    bytes: u64,
}

impl Tails {
    /// Retains up to `bytes` of the log behind a position, as long as the returned value lives.
    pub(super) fn hold(&self, position: Seq, bytes: u64) -> Arc<Held> {
        let held = Arc::new(Held {
            position: AtomicU64::new(position),
            bytes,
        });
        self.holds.lock().push(Arc::downgrade(&held));
        held
    }

    pub(super) fn holds(&self) -> Vec<(Seq, u64)> {
        let mut holds = self.holds.lock();
        holds.retain(|held| held.strong_count() > 0);
        let live = holds.iter().filter_map(Weak::upgrade);
        live.map(|held| (held.position.load(Ordering::Acquire), held.bytes))
            .collect()
    }
}

/// The listeners of a group, and the thread that polls for them.
#[derive(Default)]
pub(super) struct Polling {
    pub(super) state: Mutex<Listeners>,
}

#[derive(Default)]
pub(super) struct Listeners {
    pub(super) count: usize,
    /// Set to end the thread.
    pub(super) stop: Option<Arc<AtomicBool>>,
}
