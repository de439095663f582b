//! The maintenance strategies: when it is found out that an index entry is obsolete. One file a strategy, which says everything
//! about it: its trees, what it does at a write, what it knows of candidates (`validity.rs`), how a range filter reads under it,
//! what its compactions report, and what it costs (`cost.rs`).

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

pub use validity::Validation;
pub(crate) use validity::{APART, CURRENT, Candidate, Dropped, Validity};

use crate::catalog::{Attribute, Layout};
use crate::telemetry::Measured;
use cost::{ASK, FETCH, REPAIR, SCAN, Workload};
use esker_model::definition::Maintenance;

/// A maintenance strategy. What a method says by default is what most of them do.
///
/// Whether a strategy [knows of each write what it replaces](Maintenance::looks_at_writes), and whether it [has the primary-key
/// index](Maintenance::uses_keys), is part of its definition.
pub(crate) trait Strategy: Sync {
    /// Each stand-alone index has a tree of the keys that were written since it began.
    fn keeps_written_keys(&self) -> bool {
        false
    }

    /// A range filter has a tree of the values that writes replaced.
    fn keeps_replaced_values(&self) -> bool {
        false
    }

    /// What a batch does about the records that it replaces, when it is committed.
    fn at_commit(&self) -> AtCommit {
        AtCommit::Nothing
    }

    /// The tree of keys that is probed for newer entries than the candidates of an index.
    fn key_tree(&self, layout: &Layout, _attribute: &Attribute) -> Option<TreeId> {
        let uses_keys = layout.stored.settings.maintenance.uses_keys();
        layout.keys.filter(|_| uses_keys)
    }

    /// What is known of a write whose entry that tree has no more, where its compactions do not report what they drop.
    fn dropped_silently(&self) -> Dropped {
        Dropped::Obsolete
    }

    /// Queries note what they find to be obsolete (`store/read_repair.rs`).
    fn notes_what_queries_find(&self) -> bool {
        false
    }

    /// How a range filter knows which versions of records are current.
    fn filter_rule(&self) -> FilterRule {
        FilterRule::NewerComponents
    }

    /// Compactions of the data report what they drop, having no smaller tree that does. So a repair can go by the records.
    fn data_reports(&self) -> bool {
        false
    }

    /// What it costs, in microseconds per write.
    fn cost(&self, work: &Workload) -> f64 {
        let wasted = work.fetched * work.wasted * (FETCH + Workload::miss(work.data_cached));
        REPAIR + work.passed() + work.entries * ASK + wasted + work.scanned * SCAN
    }

    /// The share of fetched records that would be obsolete under validation.
    fn wasted(&self, _measured: &Measured, update_ratio: f64) -> f64 {
        // Half of what a repair finds is there on average, and repairs come at a part of the writes.
        update_ratio / 4.0
    }
}

/// What a batch does about the records that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtCommit {
    /// It does not look.
    Nothing,
    /// Their writes are put into the obsolete set.
    SetsBits,
    /// They are read, and their index entries taken back; their writes are put into the obsolete set.
    CancelsEntries,
}

/// How a range filter knows which of the versions that it finds are current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterRule {
    /// Those that are not in the obsolete set, once that is complete: each table is read by itself.
    ObsoleteSet,
    /// Those of which no newer component has the key; of these only those are read that replaced a value of the range.
    ReplacedValues,
    /// Those of which no newer component has the key: all of these are read along.
    NewerComponents,
}

/// The strategy of a name.
pub(crate) fn of(strategy: Maintenance) -> &'static dyn Strategy {
    match strategy {
        Maintenance::Eager => &eager::Eager,
        Maintenance::Validation => &validation::Validation,
        Maintenance::MutableBitmap => &mutable_bitmap::MutableBitmap,
        Maintenance::Deferred => &deferred::Deferred,
        Maintenance::DeletedKey => &deleted_key::DeletedKey,
    }
}
