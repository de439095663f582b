//! The backfill: it transfers the records older than a change. An index build collects their index
//! entries; a migration of the maintenance strategy adds their keys to the primary-key index. Each
//! of them is a [`Target`]; this file does the rest.
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
//! A backfill can be stopped by its progress callback, and resumed from a [`Place`] if the target
//! stores it.

use std::cell::Cell;
use std::ops::ControlFlow;

use esker_lsm::{Cursor, Kind, RunSink, Seq, TreeChange, TreeId};

use crate::bodies::Ahead;
use crate::catalog::Layout;
use crate::error::Error;
use crate::store::Handle;

/// Read-ahead of the scans over records and index entries.
pub(super) const READAHEAD: usize = 256 << 10;

/// The most records that are read with one snapshot.
const ROUND: usize = 4096;

/// Why a backfill stopped before its end.
pub(super) enum Stop {
    /// The progress callback stopped it.
    Broke,
    /// The existing records do not fit the attribute.
    Refused(Error),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl From<esker_lsm::Error> for Stop {
    fn from(error: esker_lsm::Error) -> Stop {
        Stop::Failed(error.into())
    }
}

pub(super) type Result<T> = std::result::Result<T, Stop>;

/// The phase of a backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// Reading the existing records.
    Reading,
    /// Writing the new structure.
    Writing,
}

/// Called with the phase, the amount done, and the approximate total.
pub(super) type OnPass<'p> = dyn FnMut(Pass, u64, u64) -> ControlFlow<()> + 'p;

/// The position of a backfill in the records.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) records: u64,
    /// The key of the last record read; `None` at the beginning and at the end.
    pub(super) last: Option<Vec<u8>>,
    pub(super) complete: bool,
}

/// A version of a record older than the change.
pub(super) struct Version<'v> {
    pub(super) key: &'v [u8],
    pub(super) seq: Seq,
    pub(super) stored: &'v [u8],
    /// False if another version has replaced it.
    pub(super) is_newest: bool,
}

/// Passes buffered records to the target, with their bodies.
fn give(
    ahead: &mut Ahead,
    layout: &Layout,
    snapshot: &esker_lsm::Snapshot,
    target: &mut dyn Target,
) -> Result<()> {
    ahead.fill(layout, snapshot, &esker_lsm::Cost::default())?;
    while let Some(item) = ahead.pop() {
        target.take(&Version {
            key: &item.key,
            seq: item.seq,
            stored: &item.stored,
            is_newest: true,
        })?;
    }
    Ok(())
}

/// The receiver of the records. A closure is a target without work between rounds.
pub(super) trait Target {
    /// Receives the next version, ordered by key, then newest first.
    fn take(&mut self, version: &Version<'_>) -> Result<()>;

    /// Called after each round, with its position.
    fn end_round(&mut self, _place: &Place) -> Result<()> {
        Ok(())
    }
}

impl<F: FnMut(&Version<'_>) -> Result<()>> Target for F {
    fn take(&mut self, version: &Version<'_>) -> Result<()> {
        self(version)
    }
}

pub(super) struct Backfill<'b, 'p> {
    pub(super) dataset: &'b Handle,
    /// The data tree.
    data: TreeId,
    /// The last write before the change.
    since: Seq,
    /// Whether the target needs older versions, too.
    versions: bool,
    /// Whether the target needs bodies that are stored apart.
    pub(super) needs_bodies: bool,
    progress: &'b mut OnPass<'p>,
    /// The approximate number of records.
    total: u64,
    /// The last write that a round has seen.
    seen: Seq,
}

impl<'b, 'p> Backfill<'b, 'p> {
    pub(super) fn new(
        dataset: &'b Handle,
        data: TreeId,
        since: Seq,
        versions: bool,
        progress: &'b mut OnPass<'p>,
    ) -> Backfill<'b, 'p> {
        Backfill {
            dataset,
            data,
            since,
            versions,
            needs_bodies: false,
            progress,
            total: dataset.now().record_count(),
            seen: 0,
        }
    }

    /// Reports the progress; an error if the callback stops the backfill.
    pub(super) fn tell(&mut self, pass: Pass, done: u64, total: u64) -> Result<()> {
        match (self.progress)(pass, done, total.max(done)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::Broke),
        }
    }

    /// As [`Backfill::tell`], for work with one unit per record.
    pub(super) fn tell_records(&mut self, pass: Pass, done: u64) -> Result<()> {
        self.tell(pass, done, self.total)
    }

    /// Passes the records behind `place` to the target. Returns the position at the end.
    pub(super) fn run(&mut self, mut place: Place, target: &mut dyn Target) -> Result<Place> {
        while !place.complete {
            self.round(&mut place, target)?;
            target.end_round(&place)?;
            self.tell_records(Pass::Reading, place.records)?;
        }
        Ok(place)
    }

    /// Reads the next records, with one snapshot.
    fn round(&mut self, place: &mut Place, target: &mut dyn Target) -> Result<()> {
        let group = &self.dataset.shared.group;
        let limit = (group.options().memory_budget >> 14).clamp(1, ROUND) as u64;
        let snapshot = group.snapshot();
        self.seen = self.seen.max(snapshot.seq());
        let mut cursor = snapshot.entries(self.data, READAHEAD);
        match place.last.take() {
            Some(mut key) => {
                key.push(0);
                cursor.seek(&key, esker_lsm::MAX_SEQ)?;
            }
            None => cursor.seek_first()?,
        }
        // Not the key that was sought: that may be the next record's.
        let mut last: Option<Vec<u8>> = None;
        let mut read = 0;
        let layout = if self.needs_bodies {
            Some(self.dataset.current.layout_in(snapshot.version()))
        } else {
            None
        };
        let mut ahead = Ahead::new();
        while cursor.valid() {
            let (key, seq) = (cursor.key(), cursor.seq());
            let is_newest = last.as_deref() != Some(key);
            if is_newest {
                if read >= limit {
                    break;
                }
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
                read += u64::from(cursor.kind() == Kind::Put);
            }
            let is_wanted = is_newest || self.versions;
            let is_given = is_wanted && cursor.kind() == Kind::Put && seq <= self.since;
            if let Some(layout) = &layout
                && is_given
            {
                // Such datasets keep one version of each record.
                ahead.push(key, seq, cursor.value_slice());
                if ahead.is_full() {
                    give(&mut ahead, layout, &snapshot, target)?;
                }
            } else if is_given {
                target.take(&Version {
                    key,
                    seq,
                    stored: cursor.value(),
                    is_newest,
                })?;
            }
            cursor.next()?;
        }
        if let Some(layout) = &layout {
            give(&mut ahead, layout, &snapshot, target)?;
        }
        group.count(&cursor.cost());
        place.records += read;
        place.complete = !cursor.valid();
        place.last = last.filter(|_| !place.complete);
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
        let group = &self.dataset.shared.group;
        let seen = Cell::new(self.seen);
        let mut stop = None;
        let mut write = |sink: &mut RunSink<'_>| {
            if let Err(why) = write(self, sink) {
                stop = Some(why);
                return Err(esker_lsm::Error::Invalid(
                    "the backfill has stopped".to_string(),
                ));
            }
            seen.set(self.seen);
            group.sync()
        };
        let result = group.ingest_oldest(tree, &mut write, &mut || Ok(change(seen.get())));
        match (result, stop) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some(stop)) => Err(stop),
            (Err(error), None) => Err(error.into()),
        }
    }
}
