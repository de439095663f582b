//! The trait of maintenance strategies: the trees of a strategy, its work at a commit, the rule of
//! range filters, the reports of its compactions, and its cost.

use esker_lsm::TreeId;

use super::cost::{FETCH, PROBE, REPAIR, SCAN, WorkPerWrite};
use crate::catalog::Layout;
use crate::index::{Attribute, FilterRule};
use crate::telemetry::Measured;

/// A maintenance strategy. The defaults are those of most strategies.
///
/// Whether a strategy [looks up what a write replaces](Maintenance::looks_at_writes), and whether
/// it [has the primary-key index](Maintenance::uses_keys), is part of its definition.
pub(crate) trait Strategy: Sync {
    /// Each stand-alone index has a tree of the keys written since its creation.
    fn keeps_written_keys(&self) -> bool {
        false
    }

    /// A range filter has a tree of the replaced values.
    fn keeps_replaced_values(&self) -> bool {
        false
    }

    /// How a commit treats the records that it replaces.
    fn at_commit(&self) -> AtCommit {
        AtCommit::Nothing
    }

    /// The key tree that is probed for newer entries than the candidates of an index.
    fn key_tree(&self, layout: &Layout, _attribute: &Attribute) -> Option<TreeId> {
        let uses_keys = layout.stored.settings.maintenance.uses_keys();
        layout.keys.filter(|_| uses_keys)
    }

    /// The meaning of a missing entry in that tree ([`Strategy::key_tree`]), if its compactions do
    /// not report drops.
    fn missing_entry(&self) -> MissingEntry {
        MissingEntry::Obsolete
    }

    /// Queries note the obsolete writes that they find (`store/read_repair.rs`).
    fn notes_what_queries_find(&self) -> bool {
        false
    }

    /// How a range filter determines the current versions.
    fn filter_rule(&self) -> FilterRule {
        FilterRule::NewerComponents
    }

    /// Compactions of the data report their drops, because no smaller tree does. So a repair can
    /// read the records.
    fn data_reports(&self) -> bool {
        false
    }

    /// The cost in microseconds per write.
    fn cost(&self, work: &WorkPerWrite) -> f64 {
        let wasted = work.fetched * work.wasted * (FETCH + WorkPerWrite::miss(work.data_cached));
        REPAIR + work.skipped() + work.entries * PROBE + wasted + work.scanned * SCAN
    }

    /// The share of fetched records that would be obsolete under validation.
    fn wasted(&self, _measured: &Measured, update_ratio: f64) -> f64 {
        // On average half of the obsolete entries that a repair removes exist, and repairs run
        // after a part of the writes.
        update_ratio / 4.0
    }
}

/// How a commit treats the records that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtCommit {
    /// It does not look them up.
    Nothing,
    /// It puts their writes into the obsolete set.
    SetsBits,
    /// It reads them, cancels their index entries, and puts their writes into the obsolete set.
    CancelsEntries,
}

/// The meaning of a write's missing entry in a key tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingEntry {
    /// The write is in the obsolete set: compactions report the entries that they drop.
    InObsoleteSet,
    /// The write is obsolete. Every record has an entry here, so this one was overwritten or
    /// deleted, and a compaction dropped the entry without a report, possibly with the tombstone.
    Obsolete,
    /// Unknown: records older than the tree have no entry.
    Unknown,
}
