//! The maintenance strategies: they differ in when index entries are found to be obsolete. Each has
//! a file with its trees, its work at a write, the rule of range filters, the reports of its
//! compactions, and its cost (`cost.rs`). `validity.rs` validates candidates for all of them.

pub(crate) mod cost;
mod deferred;
mod deleted_key;
mod eager;
mod mutable_bitmap;
#[cfg(test)]
mod tests;
mod validation;
mod validity;

use esker_lsm::TreeId;

pub(crate) use validity::{APART, CURRENT, Candidate, Dropped, Validity};

use crate::catalog::{Attribute, Layout};
use crate::telemetry::Measured;
use cost::{ASK, FETCH, REPAIR, SCAN, Workload};
use esker_model::definition::Maintenance;

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

    /// The meaning of a missing entry in that tree, if its compactions do not report drops.
    fn dropped_silently(&self) -> Dropped {
        Dropped::Obsolete
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
    fn cost(&self, work: &Workload) -> f64 {
        let wasted = work.fetched * work.wasted * (FETCH + Workload::miss(work.data_cached));
        REPAIR + work.passed() + work.entries * ASK + wasted + work.scanned * SCAN
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

/// How a range filter determines which of the versions that it finds are current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterRule {
    /// Those that are not in the obsolete set, which is complete: each table is read by itself.
    ObsoleteSet,
    /// Those whose key no newer component has; only newer components that replaced a value of the
    /// range are read.
    ReplacedValues,
    /// Those whose key no newer component has; all newer components are read.
    NewerComponents,
}

/// The implementation of a strategy.
pub(crate) fn of(strategy: Maintenance) -> &'static dyn Strategy {
    match strategy {
        Maintenance::Eager => &eager::Eager,
        Maintenance::Validation => &validation::Validation,
        Maintenance::MutableBitmap => &mutable_bitmap::MutableBitmap,
        Maintenance::Deferred => &deferred::Deferred,
        Maintenance::DeletedKey => &deleted_key::DeletedKey,
    }
}
