//! The obsolete writes that queries of a dataset found, in memory: they are noted here, skipped by
//! later queries, and made durable by `read_repair.rs`. The buffer holds a bounded number of notes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use esker_lsm::Seq;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

/// The most notes that are held.
const MAX_NOTES: usize = 64 << 10;

/// The notes of a dataset since they were last made durable.
#[derive(Default)]
pub(crate) struct Findings {
    notes: RwLock<ObsoleteNotes>,
    /// The number of notes. Under most strategies it stays 0, and queries take no lock.
    count: AtomicUsize,
    /// True once this process has written to the dataset.
    has_written: AtomicBool,
    /// Held by the writer that makes a full buffer durable; other writers continue without waiting.
    flushing: Mutex<()>,
}

/// The obsolete writes and the dangling ones that queries noted.
#[derive(Clone, Default)]
pub(crate) struct ObsoleteNotes {
    /// Each obsolete write, and a later write of its key.
    pub(super) obsolete: BTreeMap<Seq, Seq>,
    /// Numbers of index entries without a record of this number. DELI finds half-done writes by
    /// them. Here batches are atomic, so they come from damage or a defect, which may have hit the
    /// key instead of the number: all records are searched for such a number before it counts as
    /// obsolete.
    pub(super) dangling: BTreeSet<Seq>,
}

impl ObsoleteNotes {
    /// True if the write `seq` is obsolete in a snapshot that sees writes up to `at`.
    pub(crate) fn is_obsolete(&self, seq: Seq, at: Seq) -> bool {
        self.obsolete.get(&seq).is_some_and(|by| *by <= at)
    }

    fn len(&self) -> usize {
        self.obsolete.len() + self.dangling.len()
    }
}

impl Findings {
    /// The notes so far; `None` if there are none. The lock must not be held across I/O.
    pub(crate) fn notes(&self) -> Option<RwLockReadGuard<'_, ObsoleteNotes>> {
        (self.count.load(Relaxed) > 0).then(|| self.notes.read())
    }

    fn change(&self, change: impl FnOnce(&mut ObsoleteNotes)) {
        let mut notes = self.notes.write();
        change(&mut notes);
        debug_assert!(notes.len() <= MAX_NOTES, "the buffer is bounded");
        self.count.store(notes.len(), Relaxed);
    }

    /// Notes that the write `seq` is obsolete since the write `by`, which a snapshot has seen:
    /// `seq` is hidden from every snapshot that sees `by`, and compactions may drop it.
    pub(crate) fn note_obsolete(&self, seq: Seq, by: Seq) {
        debug_assert!(seq < by, "a write replaces earlier ones");
        self.change(|notes| {
            if self.make_room(notes) {
                notes.obsolete.insert(seq, by);
            }
        });
    }

    /// Notes that an index has an entry of the write `seq`, and the data has none.
    pub(crate) fn note_dangling(&self, seq: Seq) {
        self.change(|notes| {
            if self.make_room(notes) {
                notes.dangling.insert(seq);
            }
        });
    }

    /// To be called after each write. True if the buffer is full, and must be made durable.
    pub(super) fn note_write(&self) -> bool {
        if !self.has_written() {
            self.has_written.store(true, Relaxed);
        }
        self.count.load(Relaxed) >= MAX_NOTES
    }

    /// True if this process has written to the dataset.
    pub(super) fn has_written(&self) -> bool {
        self.has_written.load(Relaxed)
    }

    /// Claims the task of making a full buffer durable; `None` if another writer has claimed it.
    pub(super) fn try_claim_flush(&self) -> Option<MutexGuard<'_, ()>> {
        self.flushing.try_lock()
    }

    /// A copy of the notes so far; `None` if there are none.
    pub(super) fn copy(&self) -> Option<ObsoleteNotes> {
        self.notes().map(|notes| notes.clone())
    }

    /// Removes the notes of these writes.
    pub(super) fn forget(&self, numbers: &[Seq]) {
        self.change(|notes| {
            for seq in numbers {
                notes.obsolete.remove(seq);
                notes.dangling.remove(seq);
            }
        });
    }

    /// Makes room for a note. Returns false if there is none: in a process that writes, a full
    /// buffer takes no further notes until the next write makes it durable. In one that only reads,
    /// it is emptied.
    fn make_room(&self, notes: &mut ObsoleteNotes) -> bool {
        if notes.len() < MAX_NOTES {
            return true;
        }
        if self.has_written() {
            return false;
        }
        *notes = ObsoleteNotes::default();
        true
    }
}
