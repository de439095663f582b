//! Online repair (DELI section IV-B): what queries find to be obsolete is remembered, passed over by later
//! queries of this process at once, and put into the obsolete set at the next flush or close
//! of a handle that writes. A handle that only reads changes nothing on disk, and forgets it.
//!
//! Nothing depends on it: what is forgotten is found again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use esker_lsm::{Cursor, Group, Kind, Seq};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::catalog::Layout;
use crate::error::Result;
use crate::store::Current;

/// Numbers that are remembered, at most.
const MOST: usize = 64 << 10;

/// Bytes that the pass over the records reads ahead.
const READAHEAD: usize = 256 << 10;

/// What queries of a dataset found, since it was last made durable.
#[derive(Default)]
pub(crate) struct Online {
    noted: RwLock<Noted>,
    /// How many numbers are in it: under most strategies none ever is, and queries need no lock to see that.
    count: AtomicUsize,
    /// Something was written through this handle.
    writes: AtomicBool,
    /// Held by the writer that makes a full buffer durable: others continue.
    keeping: Mutex<()>,
}

#[derive(Default)]
pub(crate) struct Noted {
    /// Obsolete writes, and a write as of which they are.
    over: BTreeMap<Seq, Seq>,
    /// Numbers that index entries have and the record of their key has not: half-done writes, in DELI. Here a
    /// batch is whole, so they stem from damage or a mistake, which may have hit the key rather than
    /// the number: before a write is taken to be obsolete it is looked for in all records.
    dangling: BTreeSet<Seq>,
}

impl Noted {
    /// True when the write `seq` is obsolete for a snapshot that sees writes up to `at`.
    pub(crate) fn is_over(&self, seq: Seq, at: Seq) -> bool {
        self.over.get(&seq).is_some_and(|by| *by <= at)
    }

    fn len(&self) -> usize {
        self.over.len() + self.dangling.len()
    }
}

impl Online {
    /// What was noted so far, `None` if nothing. To be held for some questions, not for I/O.
    pub(crate) fn noted(&self) -> Option<RwLockReadGuard<'_, Noted>> {
        (self.count.load(Relaxed) > 0).then(|| self.noted.read())
    }

    fn change(&self, change: impl FnOnce(&mut Noted)) {
        let mut noted = self.noted.write();
        change(&mut noted);
        self.count.store(noted.len(), Relaxed);
    }

    /// Notes that the write `seq` is obsolete, as of the write `by`, which a snapshot has seen: no snapshot that sees
    /// `by` shows anything of `seq`, and compactions may drop it.
    pub(crate) fn note_over(&self, seq: Seq, by: Seq) {
        self.change(|noted| {
            if self.has_room(noted) {
                noted.over.insert(seq, by);
            }
        });
    }

    /// Notes that an index has an entry of the write `seq`, of which the data has nothing.
    pub(crate) fn note_dangling(&self, seq: Seq) {
        self.change(|noted| {
            if self.has_room(noted) {
                noted.dangling.insert(seq);
            }
        });
    }

    /// A full buffer waits for the next write; where none comes, it starts over.
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
    /// To be called after each write: what was noted is made durable when the buffer is full.
    pub(crate) fn wrote(&self, group: &Group) {
        if !self.online.writes.load(Relaxed) {
            self.online.writes.store(true, Relaxed);
        }
        if self.online.count.load(Relaxed) >= MOST
            && let Some(_alone) = self.online.keeping.try_lock()
        {
            // The write is done, whatever becomes of this.
            self.try_keep_obsolete(group);
        }
    }

    /// As [`Current::keep_obsolete`]; what goes wrong is for `stat` to tell, and costs nobody else anything.
    pub(crate) fn try_keep_obsolete(&self, group: &Group) {
        if let Err(error) = self.keep_obsolete(group) {
            self.usage.maintenance().remembered.lock().not_kept = Some(error.to_string());
        }
    }

    /// Makes durable what queries noted to be obsolete, where this handle writes. What could not be written is forgotten:
    /// queries find it again, and a failure that stays must not be met again by each write.
    ///
    /// The log is synced first: a number must not be obsolete on disk while the write that made it so can still be
    /// lost, since compactions drop what is obsolete.
    pub(crate) fn keep_obsolete(&self, group: &Group) -> Result<()> {
        if !self.online.writes.load(Relaxed) {
            return Ok(());
        }
        let Some(noted) = self.online.noted() else {
            return Ok(());
        };
        let mut numbers: BTreeSet<Seq> = noted.over.keys().copied().collect();
        let mut dangling = noted.dangling.clone();
        drop(noted);
        let taken: Vec<Seq> = numbers.union(&dangling).copied().collect();
        let result = self.write_over(group, &mut numbers, &mut dangling);
        self.online.change(|noted| {
            for seq in taken {
                noted.over.remove(&seq);
                noted.dangling.remove(&seq);
            }
        });
        if result.is_ok() {
            self.usage.maintenance().remembered.lock().not_kept = None;
        }
        result
    }

    fn write_over(
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

/// Takes those numbers out that a record has.
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
