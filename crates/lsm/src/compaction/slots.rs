//! The threads of compactions: how many there may be, and how many are at work.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The thread limit of compactions and the threads in use: those that run a job, and helpers of a
/// large one. Only helpers are limited: a job never waits for a slot, or a large compaction would
/// block all other trees until it ends. So while helpers finish their pieces there may be twice as
/// many threads at work.
#[derive(Default)]
pub(crate) struct Slots {
    all: usize,
    taken: AtomicUsize,
}

/// Threads that are occupied until this is dropped.
pub(crate) struct Taken<'a> {
    slots: &'a Slots,
    pub(super) count: usize,
}

impl Slots {
    pub(crate) fn new(all: usize) -> Slots {
        Slots {
            all,
            taken: AtomicUsize::new(0),
        }
    }

    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// Occupies as many free threads as there are for helpers, up to `most`.
    pub(super) fn take(&self, most: usize) -> Taken<'_> {
        let mut count = 0;
        let _ = self
            .taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| {
                count = self.all.saturating_sub(taken).min(most);
                Some(taken + count)
            });
        Taken { slots: self, count }
    }

    /// Occupies one thread, free or not: for the thread that runs a job.
    pub(crate) fn occupy(&self) -> Taken<'_> {
        self.taken.fetch_add(1, Ordering::SeqCst);
        Taken {
            slots: self,
            count: 1,
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.slots.taken.fetch_sub(self.count, Ordering::SeqCst);
    }
}
