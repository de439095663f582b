//! What the obsolete set of a dataset is known to hold.
//!
//! That a write is in the set is always true of it. That a write is *not* in the set means something only as far as the
//! set is complete, and how far that is depends on the maintenance strategy, on those before it, on the repair
//! watermark, and on what is asked about:
//!
//! | candidates | hold | complete |
//! | --- | --- | --- |
//! | [`Source::IndexEntries`] | what a tree of index entries still has | up to the repair watermark; always, once the dataset has converged, under a strategy that looks at what a write replaces |
//! | [`Source::DataVersions`] | every version that the data tables still have (embedded, fingerprint, filter) | always, where such a strategy has been in force since the first write; else not at all: a repair goes by index entries |
//! | [`Source::Mixed`] | what the indexes of several attributes give | nothing is promised: each record shows whether it is current |
//! | [`Source::Records`] | the newest version of each record | nothing is obsolete |
//!
//! *Complete* means: it has each obsolete write that a tree still has anything of. Others are forgotten, and nothing reads them (`lsm/obsolete/mod.rs`).
//!
//! A dataset has *converged* when the set has all that strategies before the present one left behind. A coverage belongs to
//! one snapshot: the definition and the set are that snapshot's, and the set hides nothing that it sees.

use esker_lsm::{Seq, Superseded};
use esker_model::definition::Repair;

use super::{Attribute, Layout};

/// Where candidates come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The entries of a stand-alone index.
    IndexEntries,
    /// All versions of records that data tables hold, found by their synopses.
    DataVersions,
    /// Indexes of several attributes.
    Mixed,
    /// A scan of the newest versions.
    Records,
}

impl Source {
    /// The source of the candidates of the indexes of these attributes; without an index it is a scan.
    pub(crate) fn of(attributes: &[&Attribute]) -> Source {
        match attributes {
            [attribute] if attribute.kind.is_standalone() => Source::IndexEntries,
            [_] => Source::DataVersions,
            [] => Source::Records,
            _ => Source::Mixed,
        }
    }
}

/// How far the obsolete set is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Complete {
    /// It has what was overwritten by a write up to this sequence number; 0 promises nothing.
    UpTo(Seq),
    /// It has whatever was overwritten, as the snapshot sees it: a write that it lacks is current.
    Always,
}

impl Complete {
    pub(crate) fn is_always(self) -> bool {
        self == Complete::Always
    }

    /// True when a write that was overwritten by the write `by` must be in the set.
    pub(crate) fn includes(self, by: Seq) -> bool {
        match self {
            Complete::UpTo(watermark) => by <= watermark,
            Complete::Always => true,
        }
    }
}

/// What the obsolete set is known to hold, in one snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Coverage {
    /// The repair watermark.
    watermark: Seq,
    converged: bool,
    /// Each write since the last change of strategy puts what it replaces into the set.
    by_writes: bool,
    /// The strategy has never been changed.
    from_the_first: bool,
    /// Older versions of a record are kept on purpose, and so are their index entries.
    keeps_versions: bool,
    /// Compactions report what they drop to the set, or keep what is not in it. While the primary-key index is being built they do not:
    /// the data's leave that to its compactions, and it lacks what was there before.
    reports: bool,
}

impl Coverage {
    /// The coverage of a snapshot with this layout and this set (`None`: the store was created before there was a set).
    pub(crate) fn new(layout: &Layout, set: Option<&Superseded>) -> Coverage {
        // Of a set that could not be read whole nothing is known.
        let set = set.filter(|set| set.is_whole());
        Coverage::at(layout, set.map(Superseded::repair_watermark))
    }

    /// The same, for who knows the watermark and not the set; `None` where there is no set, or not all of it can be read.
    pub(crate) fn at(layout: &Layout, watermark: Option<Seq>) -> Coverage {
        let settings = &layout.stored.settings;
        let has_set = layout.superseded.is_some() && watermark.is_some();
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

    /// True when the set has all that earlier strategies left behind in indexes.
    pub(crate) fn has_converged(&self) -> bool {
        self.converged
    }

    /// True when every obsolete write is in the set or still in the data or in the tree of keys, where a repair finds it.
    pub(crate) fn loses_nothing(&self) -> bool {
        self.reports && self.converged
    }

    /// How far the set is complete for these candidates.
    pub(crate) fn of(&self, source: Source) -> Complete {
        let always = self.by_writes && self.converged;
        match source {
            Source::Records => Complete::Always,
            Source::IndexEntries if always => Complete::Always,
            Source::IndexEntries if self.keeps_versions => Complete::UpTo(0),
            Source::IndexEntries => Complete::UpTo(self.watermark),
            Source::DataVersions if always && self.from_the_first => Complete::Always,
            Source::DataVersions | Source::Mixed => Complete::UpTo(0),
        }
    }
}

#[cfg(test)]
#[path = "coverage_tests.rs"]
mod tests;
