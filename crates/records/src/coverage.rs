//! The coverage of a dataset's obsolete set.
//!
//! Every write in the set is obsolete. The converse holds only as far as the set is complete. How
//! far that is depends on the maintenance strategy, earlier strategies, the repair watermark, and
//! the source of the candidates:
//!
//! - [`Source::IndexEntries`], the entries that an index tree still has: complete up to the repair
//!   watermark; and always, once the dataset has converged, under a strategy that looks at what a
//!   write replaces.
//! - [`Source::DataVersions`], every version that the data tables still have (embedded,
//!   fingerprint, filter): complete if such a strategy has been in force since the first write;
//!   otherwise not at all, because a repair reads index entries.
//! - [`Source::Mixed`], candidates from the indexes of several attributes, not all of them
//!   stand-alone: not guaranteed. Each record shows whether it is current.
//! - [`Source::Records`], the newest version of each record: none is obsolete.
//!
//! A *complete* set has each obsolete write of which a tree still has an entry. Numbers without
//! entries are removed from it, and no reader meets them (`lsm/obsolete/mod.rs`).
//!
//! A dataset has *converged* when the set has all obsolete writes of earlier strategies. A coverage
//! belongs to one snapshot: its definition and its set are that snapshot's, and the set hides no
//! write that the snapshot sees.

use esker_lsm::{Seq, Superseded};
use esker_model::definition::{IndexKind, MaintenanceSettings, Repair};

/// The source of candidates, in the order of the file head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The entries of stand-alone indexes.
    IndexEntries,
    /// All versions of records in data tables, found by their synopses.
    DataVersions,
    /// Indexes of several attributes, not all of them stand-alone.
    Mixed,
    /// A scan of the newest versions.
    Records,
}

impl Source {
    /// The source of the candidates from indexes of these kinds; without an index, a scan. The set
    /// covers the entries of all stand-alone indexes alike.
    pub(crate) fn of_kinds(kinds: &[IndexKind]) -> Source {
        match kinds {
            [kind] if kind.is_standalone() => Source::IndexEntries,
            [_] => Source::DataVersions,
            [] => Source::Records,
            kinds if kinds.iter().all(|kind| kind.is_standalone()) => Source::IndexEntries,
            _ => Source::Mixed,
        }
    }
}

/// How far the obsolete set is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Complete {
    /// It has every write that was overwritten by a write up to this sequence number.
    UpTo(Seq),
    /// It has every overwritten write, as the snapshot sees it: a write that is not in it is
    /// current.
    Always,
}

impl Complete {
    /// It guarantees nothing: sequence numbers begin at 1.
    pub(crate) const NOTHING: Complete = Complete::UpTo(0);

    /// True if the set has every overwritten write.
    pub(crate) fn is_always(self) -> bool {
        self == Complete::Always
    }

    /// True if a write that was overwritten by the write `by` must be in the set.
    pub(crate) fn includes(self, by: Seq) -> bool {
        match self {
            Complete::UpTo(watermark) => by <= watermark,
            Complete::Always => true,
        }
    }
}

/// The coverage of the obsolete set in one snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Coverage {
    /// The repair watermark; 0 without a set.
    watermark: Seq,
    /// The set has all obsolete writes of earlier strategies.
    converged: bool,
    /// Each write since the last migration adds the write that it replaces to the set.
    by_writes: bool,
    /// The strategy has never been changed.
    from_the_first: bool,
    /// Older versions of records are kept intentionally, with their index entries.
    keeps_versions: bool,
    /// Compactions report their drops to the set, or keep writes that are not in it. Not while the
    /// primary-key index is being built: compactions of the data leave the report to compactions of
    /// that index, which lacks the older records.
    reports: bool,
}

impl Coverage {
    /// The coverage of a snapshot with these settings and this set; `None` for stores created
    /// before there were sets.
    pub(crate) fn new(settings: &MaintenanceSettings, set: Option<&Superseded>) -> Coverage {
        // A partly readable set guarantees nothing.
        let set = set.filter(|set| set.is_whole());
        Coverage::at(settings, set.map(Superseded::repair_watermark))
    }

    /// As [`Coverage::new`], from the repair watermark alone; `None` if there is no set, or it is
    /// not fully readable.
    pub(crate) fn at(settings: &MaintenanceSettings, watermark: Option<Seq>) -> Coverage {
        let has_set = watermark.is_some();
        let watermark = watermark.unwrap_or(0);
        Coverage {
            watermark,
            converged: has_set && watermark >= settings.since,
            by_writes: has_set && settings.maintenance.looks_at_writes(),
            from_the_first: settings.since == 0,
            keeps_versions: settings.versions > 1,
            reports: settings.repair != Repair::None && settings.keys_after.is_none(),
        }
    }

    /// True if the set has all obsolete index entries of earlier strategies.
    pub(crate) fn has_converged(&self) -> bool {
        self.converged
    }

    /// True if every obsolete write is in the set, or still in the data or the key tree, where a
    /// repair finds it.
    pub(crate) fn loses_nothing(&self) -> bool {
        self.reports && self.converged
    }

    /// How far the set is complete for these candidates.
    pub(crate) fn complete_for(&self, source: Source) -> Complete {
        let always = self.by_writes && self.converged;
        match source {
            Source::Records => Complete::Always,
            Source::IndexEntries if always => Complete::Always,
            Source::IndexEntries if self.keeps_versions => Complete::NOTHING,
            Source::IndexEntries => Complete::UpTo(self.watermark),
            Source::DataVersions if always && self.from_the_first => Complete::Always,
            Source::DataVersions | Source::Mixed => Complete::NOTHING,
        }
    }
}

#[cfg(test)]
#[path = "coverage_tests.rs"]
mod tests;
