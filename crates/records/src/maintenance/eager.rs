//! Eager maintenance (Luo & Carey section 3.1): a write reads the record that it replaces, cancels
//! its index entries, and puts its write into the obsolete set. So indexes are always exact, and a
//! range filter knows the replaced values.

use super::cost::{CANCEL, FETCH_CACHED, SCAN, WorkPerWrite};
use super::strategy::{AtCommit, Strategy};
use crate::index::FilterRule;

/// Eager maintenance.
pub(super) struct Eager;

impl Strategy for Eager {
    fn keeps_replaced_values(&self) -> bool {
        true
    }

    fn at_commit(&self) -> AtCommit {
        AtCommit::CancelsEntries
    }

    fn filter_rule(&self) -> FilterRule {
        FilterRule::ReplacedValues
    }

    fn cost(&self, work: &WorkPerWrite) -> f64 {
        let old = FETCH_CACHED + WorkPerWrite::miss(work.data_cached) + CANCEL * work.indexes;
        let updates = work.update_ratio;
        work.lookup() + updates * old + work.scanned * SCAN * updates
    }
}
