//! A mutable bitmap (Luo & Carey section 5): a write looks up its key in the primary-key index and
//! puts the replaced write into the obsolete set. So the set alone shows queries which entries are
//! current, and a range filter reads each table by itself.

use super::cost::{SET_BIT, WorkPerWrite};
use super::strategy::{AtCommit, Strategy};
use crate::index::FilterRule;

/// The mutable-bitmap strategy.
pub(super) struct MutableBitmap;

impl Strategy for MutableBitmap {
    fn at_commit(&self) -> AtCommit {
        AtCommit::SetsBits
    }

    fn filter_rule(&self) -> FilterRule {
        FilterRule::ObsoleteSet
    }

    fn cost(&self, work: &WorkPerWrite) -> f64 {
        work.lookup() + work.update_ratio * SET_BIT + work.skipped()
    }
}
