//! The obsolete writes that queries of a dataset found, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use esker_lsm::Seq;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

/// The most numbers that are kept.
const MOST: usize = 64 << 10;

/// Obsolete writes that queries of a dataset found since the notes were last made durable.
#[derive(Default)]
pub(crate) struct Findings {
    found: RwLock<Found>,
    /// The number of notes. Under most strategies it stays 0, and queries take no lock.
    count: AtomicUsize,
    /// Whether this handle has written.
    writes: AtomicBool,
    /// Held by the writer that makes a full buffer durable; other writers continue without waiting.
    keeping: Mutex<()>,
}

#[derive(Default)]
pub(crate) struct Found {
    /// Each obsolete write, and a later write that proves it.
    obsolete: BTreeMap<Seq, Seq>,
    /// Numbers of index entries without a record of this number. DELI finds half-done writes by
    /// them. Here batches are atomic, so they come from damage or a defect, which may have hit the
    /// key instead of the number: all records are searched for such a number before it counts as
    /// obsolete.
    dangling: BTreeSet<Seq>,
}

impl Found {
    /// True if the write `seq` is obsolete in a snapshot that sees writes up to `at`.
    pub(crate) fn is_obsolete(&self, seq: Seq, at: Seq) -> bool {
        self.obsolete.get(&seq).is_some_and(|by| *by <= at)
    }

    fn len(&self) -> usize {
        self.obsolete.len() + self.dangling.len()
    }
}

impl Findings {
    /// The notes so far, `None` if there are none. The lock must not be held across I/O.
    pub(crate) fn found(&self) -> Option<RwLockReadGuard<'_, Found>> {
        (self.count.load(Relaxed) > 0).then(|| self.found.read())
    }

    fn change(&self, change: impl FnOnce(&mut Found)) {
        let mut found = self.found.write();
        change(&mut found);
        self.count.store(found.len(), Relaxed);
    }

    /// Notes that the write `seq` is obsolete since the write `by`, which a snapshot has seen:
    /// `seq` is hidden from every snapshot that sees `by`, and compactions may drop it.
    pub(crate) fn note_obsolete(&self, seq: Seq, by: Seq) {
        self.change(|found| {
            if self.has_room(found) {
                found.obsolete.insert(seq, by);
            }
        });
    }

    /// Notes that an index has an entry of the write `seq`, and the data has none.
    pub(crate) fn note_dangling(&self, seq: Seq) {
        self.change(|found| {
            if self.has_room(found) {
                found.dangling.insert(seq);
            }
        });
    }

    /// To be called after each write. True if the buffer is full, and must be made durable.
    pub(super) fn wrote(&self) -> bool {
        if !self.writes.load(Relaxed) {
            self.writes.store(true, Relaxed);
        }
        self.count.load(Relaxed) >= MOST
    }

    /// True if this handle has written.
    pub(super) fn writes(&self) -> bool {
        self.writes.load(Relaxed)
    }

    /// Taken by the writer that makes a full buffer durable; `None` if another one does.
    pub(super) fn keep(&self) -> Option<MutexGuard<'_, ()>> {
        self.keeping.try_lock()
    }

    /// The obsolete writes and the dangling ones so far; `None` if there are none.
    pub(super) fn numbers(&self) -> Option<(BTreeSet<Seq>, BTreeSet<Seq>)> {
        let found = self.found()?;
        let obsolete = found.obsolete.keys().copied().collect();
        Some((obsolete, found.dangling.clone()))
    }

    /// Forgets these numbers.
    pub(super) fn forget(&self, numbers: &[Seq]) {
        self.change(|found| {
            for seq in numbers {
                found.obsolete.remove(seq);
                found.dangling.remove(seq);
            }
        });
    }

    /// A full buffer waits for the next write. A handle that does not write empties it instead.
    fn has_room(&self, found: &mut Found) -> bool {
        if found.len() < MOST {
            return true;
        }
        if !self.writes.load(Relaxed) {
            *found = Found::default();
            return true;
        }
        false
    }
}
