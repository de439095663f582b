//! The backfill: it transfers the records older than a change. An index build collects their index
//! entries; a migration of the maintenance strategy adds their keys to the primary-key index. Each
//! of them is a [`BackfillTarget`]; this file does the rest.
//!
//! A change begins with one edit of the engine, whose last write is *since*: later writes maintain
//! the old and the new structure. Then
//!
//! 1. the records are read in rounds ([`Backfill::run`]), each with its own snapshot, because
//!    snapshots keep files and memtables alive. Versions written up to *since* go to the target;
//!    later ones are in the new structure already;
//! 2. a run is written below everything that the new tree has by then, and one edit installs it
//!    together with the new definition ([`Backfill::install`]).
//!
//! **Invariant.** The backfill skips records that were replaced or deleted since the change began.
//! A power cut must not restore such a record, because the new tree lacks it: the log is synced
//! before anything that was read is installed. A target that installs data between rounds does so,
//! too.
//!
//! A backfill can be cancelled by its progress callback, and resumed from a [`BackfillPosition`] if
//! the target stores it.

use std::cell::Cell;
use std::ops::ControlFlow;

use esker_lsm::coding::Misplaced;
use esker_lsm::{Cursor, EntryCursor, Kind, RunSink, Seq, TreeChange, TreeId};

use crate::bodies::ReadAhead;
use crate::catalog::Layout;
use crate::error::Error;
use crate::store::Handle;

/// Read-ahead of the scans over records and index entries.
pub(super) const READAHEAD: usize = 256 << 10;

/// The most records that are read with one snapshot.
const ROUND: usize = 4096;

/// A round reads one record for each of these bytes of the store's memory budget.
const BUDGET_PER_RECORD: usize = 16 << 10;

/// A round ends earlier after so many times as many entries, of which some are deleted records and
/// replaced versions.
const ENTRIES_PER_RECORD: u64 = 4;

/// Why a backfill ended before it was complete.
pub(super) enum Aborted {
    /// The progress callback cancelled it.
    Cancelled,
    /// The existing records do not fit the attribute.
    Refused(Error),
    /// A read or a write failed.
    Failed(Error),
}

impl From<Error> for Aborted {
    fn from(error: Error) -> Aborted {
        Aborted::Failed(error)
    }
}

impl From<Misplaced> for Aborted {
    fn from(defect: Misplaced) -> Aborted {
        Aborted::Failed(defect.into())
    }
}

impl From<esker_lsm::Error> for Aborted {
    fn from(error: esker_lsm::Error) -> Aborted {
        Aborted::Failed(error.into())
    }
}

/// The result of a step of a backfill.
pub(super) type Result<T> = std::result::Result<T, Aborted>;

/// The phase of a backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Reading the existing records.
    Reading,
    /// Writing the new structure.
    Writing,
}

/// Called with the phase, the amount done, and the approximate total; returns whether to continue.
pub(super) type OnPhase<'p> = dyn FnMut(Phase, u64, u64) -> ControlFlow<()> + 'p;

/// The position of a backfill in the records.
#[derive(Debug, Default)]
pub(super) struct BackfillPosition {
    /// The number of records read.
    pub(super) records: u64,
    /// The key of the last record read; `None` at the beginning and at the end.
    pub(super) last: Option<Vec<u8>>,
    /// All records were read.
    pub(super) complete: bool,
}

/// A version of a record older than the change.
pub(super) struct RecordVersion<'v> {
    /// The encoded primary key.
    pub(super) key: &'v [u8],
    /// The number of its write.
    pub(super) seq: Seq,
    /// The stored record; its head alone if the target does not need bodies.
    pub(super) stored: &'v [u8],
    /// False if another version has replaced it.
    pub(super) is_newest: bool,
}

/// Moves the cursor to the first version behind all versions of the key `last`.
fn seek_behind(cursor: &mut EntryCursor, last: Option<Vec<u8>>) -> esker_lsm::Result<()> {
    match last {
        Some(mut key) => {
            key.push(0);
            cursor.seek(&key, esker_lsm::MAX_SEQ)
        }
        None => cursor.seek_first(),
    }
}

/// Passes the buffered records to the target, with their bodies.
fn pass_buffered(
    ahead: &mut ReadAhead,
    layout: &Layout,
    snapshot: &esker_lsm::Snapshot,
    target: &mut dyn BackfillTarget,
) -> Result<()> {
    ahead.fill(layout, snapshot, &esker_lsm::Cost::default())?;
    while let Some(item) = ahead.pop() {
        target.take(&RecordVersion {
            key: &item.key,
            seq: item.seq,
            stored: &item.stored,
            is_newest: true,
        })?;
    }
    Ok(())
}

/// The receiver of the records. A closure is a target without work between rounds.
pub(super) trait BackfillTarget {
    /// Receives the next version, ordered by key, then newest first.
    fn take(&mut self, version: &RecordVersion<'_>) -> Result<()>;

    /// Called after each round, with the position that it has reached.
    fn end_round(&mut self, _position: &BackfillPosition) -> Result<()> {
        Ok(())
    }
}

impl<F: FnMut(&RecordVersion<'_>) -> Result<()>> BackfillTarget for F {
    fn take(&mut self, version: &RecordVersion<'_>) -> Result<()> {
        self(version)
    }
}

/// What a target needs of the records.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Needs {
    /// Replaced versions, too.
    pub(super) older_versions: bool,
    /// Bodies that are stored separately from the heads.
    pub(super) bodies: bool,
}

/// A backfill in progress.
pub(super) struct Backfill<'b, 'p> {
    pub(super) dataset: &'b Handle,
    /// The data tree.
    data: TreeId,
    /// The last write before the change.
    since: Seq,
    needs: Needs,
    progress: &'b mut OnPhase<'p>,
    /// The approximate number of records.
    total: u64,
    /// The last write that a round has seen.
    seen: Seq,
}

impl<'b, 'p> Backfill<'b, 'p> {
    /// A backfill of the tree `data`, for a change whose first edit came after the write `since`.
    pub(super) fn new(
        dataset: &'b Handle,
        data: TreeId,
        since: Seq,
        needs: Needs,
        progress: &'b mut OnPhase<'p>,
    ) -> Backfill<'b, 'p> {
        Backfill {
            dataset,
            data,
            since,
            needs,
            progress,
            total: dataset.now().record_count(),
            seen: 0,
        }
    }

    /// Reports the progress.
    ///
    /// # Errors
    /// [`Aborted::Cancelled`] if the callback cancels the backfill.
    pub(super) fn report(&mut self, phase: Phase, done: u64, total: u64) -> Result<()> {
        match (self.progress)(phase, done, total.max(done)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Aborted::Cancelled),
        }
    }

    /// As [`Backfill::report`], for work with one unit per record.
    pub(super) fn report_records(&mut self, phase: Phase, done: u64) -> Result<()> {
        self.report(phase, done, self.total)
    }

    /// Passes the records behind `position` to the target. Returns the position at the end.
    pub(super) fn run(
        &mut self,
        mut position: BackfillPosition,
        target: &mut dyn BackfillTarget,
    ) -> Result<BackfillPosition> {
        while !position.complete {
            self.round(&mut position, target)?;
            target.end_round(&position)?;
            self.report_records(Phase::Reading, position.records)?;
        }
        Ok(position)
    }

    /// Reads the next records, with one snapshot, and advances `position`.
    fn round(
        &mut self,
        position: &mut BackfillPosition,
        target: &mut dyn BackfillTarget,
    ) -> Result<()> {
        let group = &self.dataset.store.group;
        let limit = (group.options().memory_budget / BUDGET_PER_RECORD).clamp(1, ROUND) as u64;
        let snapshot = group.snapshot();
        self.seen = self.seen.max(snapshot.seq());
        let mut cursor = snapshot.entries(self.data, READAHEAD);
        seek_behind(&mut cursor, position.last.take())?;
        // Not the key that was sought: that may be the next record's.
        let mut last: Option<Vec<u8>> = None;
        // Entries and, of them, records.
        let (mut read, mut records) = (0, 0);
        let layout_with_bodies = if self.needs.bodies {
            Some(self.dataset.state.layout_in(snapshot.version()))
        } else {
            None
        };
        let mut ahead = ReadAhead::new();
        while cursor.valid() {
            let (key, seq) = (cursor.key(), cursor.seq());
            let is_newest = last.as_deref() != Some(key);
            if is_newest {
                if records >= limit || read >= limit * ENTRIES_PER_RECORD {
                    break;
                }
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
                records += u64::from(cursor.kind() == Kind::Put);
            }
            read += 1;
            let is_wanted = is_newest || self.needs.older_versions;
            if is_wanted && cursor.kind() == Kind::Put && seq <= self.since {
                match &layout_with_bodies {
                    // Such datasets keep one version of each record.
                    Some(layout) => {
                        debug_assert!(is_newest, "a version of a record without its body");
                        ahead.push(key, seq, cursor.value_slice());
                        if ahead.is_full() {
                            pass_buffered(&mut ahead, layout, &snapshot, target)?;
                        }
                    }
                    None => target.take(&RecordVersion {
                        key,
                        seq,
                        stored: cursor.value(),
                        is_newest,
                    })?,
                }
            }
            cursor.next()?;
        }
        if let Some(layout) = &layout_with_bodies {
            pass_buffered(&mut ahead, layout, &snapshot, target)?;
        }
        group.count(&cursor.cost());
        position.records += records;
        position.complete = !cursor.valid();
        position.last = last.filter(|_| !position.complete);
        Ok(())
    }

    /// Installs a run, written by `write`, below everything that a tree has, together with the
    /// change of trees that `change` returns for the last write that a round has seen.
    pub(super) fn install(
        &mut self,
        tree: TreeId,
        write: &mut dyn FnMut(&mut Self, &mut RunSink<'_>) -> Result<()>,
        change: &mut dyn FnMut(Seq) -> TreeChange,
    ) -> Result<()> {
        let group = &self.dataset.store.group;
        let seen = Cell::new(self.seen);
        let mut aborted = None;
        let mut write = |sink: &mut RunSink<'_>| {
            if let Err(why) = write(self, sink) {
                aborted = Some(why);
                // The engine discards the run, and returns this error.
                return Err(esker_lsm::Error::Cancelled { deadline: false });
            }
            seen.set(self.seen);
            group.sync()
        };
        let result = group.ingest_oldest(tree, &mut write, &mut || Ok(change(seen.get())));
        match (result, aborted) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some(aborted)) => Err(aborted),
            (Err(error), None) => Err(error.into()),
        }
    }
}
