//! Online repair (DELI section IV-B): queries record the obsolete writes that they find. Later
//! queries of this process skip these at once. A flush or close of a handle that writes puts them
//! into the obsolete set; a handle that only reads forgets them.
//!
//! Nothing depends on these notes: queries find again what was forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use esker_lsm::{Cursor, Group, Kind, Seq};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::catalog::Layout;
use crate::error::Result;
use crate::store::Current;

/// The most numbers that are kept.
const MOST: usize = 64 << 10;

/// Read-ahead of the scan over the records.
const READAHEAD: usize = 256 << 10;

/// Obsolete writes that queries of a dataset found since the notes were last made durable.
#[derive(Default)]
pub(crate) struct Online {
    noted: RwLock<Noted>,
    /// The number of notes. Under most strategies it stays 0, and queries take no lock.
    count: AtomicUsize,
    /// Whether this handle has written.
    writes: AtomicBool,
    /// Held by the writer that makes a full buffer durable; other writers continue without waiting.
    keeping: Mutex<()>,
}

#[derive(Default)]
pub(crate) struct Noted {
    /// Each obsolete write, and a later write that proves it.
    obsolete: BTreeMap<Seq, Seq>,
    /// Numbers of index entries without a record of this number. DELI finds half-done writes by
    /// them. Here batches are atomic, so they come from damage or a defect, which may have hit the
    /// key instead of the number: all records are searched for such a number before it counts as
    /// obsolete.
    dangling: BTreeSet<Seq>,
}

impl Noted {
    /// True if the write `seq` is obsolete in a snapshot that sees writes up to `at`.
    pub(crate) fn is_over(&self, seq: Seq, at: Seq) -> bool {
        self.obsolete.get(&seq).is_some_and(|by| *by <= at)
    }

    fn len(&self) -> usize {
        self.obsolete.len() + self.dangling.len()
    }
}

impl Online {
    /// The notes so far, `None` if there are none. The lock must not be held across I/O.
    pub(crate) fn noted(&self) -> Option<RwLockReadGuard<'_, Noted>> {
        (self.count.load(Relaxed) > 0).then(|| self.noted.read())
    }

    fn change(&self, change: impl FnOnce(&mut Noted)) {
        let mut noted = self.noted.write();
        change(&mut noted);
        self.count.store(noted.len(), Relaxed);
    }

    /// Notes that the write `seq` is obsolete since the write `by`, which a snapshot has seen:
    /// `seq` is hidden from every snapshot that sees `by`, and compactions may drop it.
    pub(crate) fn note_over(&self, seq: Seq, by: Seq) {
        self.change(|noted| {
            if self.has_room(noted) {
                noted.obsolete.insert(seq, by);
            }
        });
    }

    /// Notes that an index has an entry of the write `seq`, and the data has none.
    pub(crate) fn note_dangling(&self, seq: Seq) {
        self.change(|noted| {
            if self.has_room(noted) {
                noted.dangling.insert(seq);
            }
        });
    }

    /// A full buffer waits for the next write. A handle that does not write empties it instead.
    fn has_room(&self, noted: &mut Noted) -> bool {
        if noted.len() < MOST {
            return true;
        }
        if !self.writes.load(Relaxed) {
            *noted = Noted::default();
            return true;
        }
        false
    }
}

impl Current {
    /// To be called after each write: makes the notes durable when the buffer is full.
    pub(crate) fn wrote(&self, group: &Group) {
        if !self.online.writes.load(Relaxed) {
            self.online.writes.store(true, Relaxed);
        }
        if self.online.count.load(Relaxed) >= MOST
            && let Some(_alone) = self.online.keeping.try_lock()
        {
            // The write has succeeded, even if this fails.
            self.try_keep_obsolete(group);
        }
    }

    /// As [`Current::keep_obsolete`], but a failure only shows in the statistics.
    pub(crate) fn try_keep_obsolete(&self, group: &Group) {
        if let Err(error) = self.keep_obsolete(group) {
            self.usage.maintenance().remembered.lock().not_kept = Some(error.to_string());
        }
    }

    /// Makes the notes durable, if this handle writes. Notes that cannot be written are forgotten:
    /// queries find them again, and a permanent failure must not slow every write.
    ///
    /// The log is synced first: a number must not be obsolete on disk while the write that replaced
    /// it can still be lost, because compactions drop obsolete writes.
    pub(crate) fn keep_obsolete(&self, group: &Group) -> Result<()> {
        if !self.online.writes.load(Relaxed) {
            return Ok(());
        }
        let Some(noted) = self.online.noted() else {
            return Ok(());
        };
        let mut numbers: BTreeSet<Seq> = noted.obsolete.keys().copied().collect();
        let mut dangling = noted.dangling.clone();
        drop(noted);
        let taken: Vec<Seq> = numbers.union(&dangling).copied().collect();
        let result = self.write_obsolete(group, &mut numbers, &mut dangling);
        self.online.change(|noted| {
            for seq in taken {
                noted.obsolete.remove(&seq);
                noted.dangling.remove(&seq);
            }
        });
        if result.is_ok() {
            self.usage.maintenance().remembered.lock().not_kept = None;
        }
        result
    }

    fn write_obsolete(
        &self,
        group: &Group,
        numbers: &mut BTreeSet<Seq>,
        dangling: &mut BTreeSet<Seq>,
    ) -> Result<()> {
        let snapshot = group.snapshot();
        let layout = self.layout_in(snapshot.version());
        let known = layout.superseded.and_then(|tree| snapshot.superseded(tree));
        if let (Some(tree), Some(known)) = (layout.superseded, known) {
            remove_written(group, &layout, dangling)?;
            numbers.append(dangling);
            numbers.retain(|seq| !known.contains(*seq));
            if !numbers.is_empty() {
                group.sync()?;
                group.supersede(tree, &mut numbers.iter().copied().map(Ok), None)?;
            }
        }
        Ok(())
    }
}

/// Removes the numbers that a record has.
fn remove_written(group: &Group, layout: &Layout, numbers: &mut BTreeSet<Seq>) -> Result<()> {
    if numbers.is_empty() {
        return Ok(());
    }
    let mut records = group.snapshot().entries(layout.data, READAHEAD);
    records.seek_first()?;
    while records.valid() {
        if records.kind() == Kind::Put {
            numbers.remove(&records.seq());
        }
        records.next()?;
    }
    Ok(())
}
