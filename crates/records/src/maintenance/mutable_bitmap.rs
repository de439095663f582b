//! A mutable bitmap (Luo & Carey section 5): a write looks its key up in the primary-key index and puts the write that it replaces
//! into the obsolete set. So the set alone tells queries what is current, and a range filter reads each table by itself.

use super::cost::{BIT, Workload};
use super::{AtCommit, FilterRule, Strategy};

pub(super) struct MutableBitmap;

impl Strategy for MutableBitmap {
    fn at_commit(&self) -> AtCommit {
        AtCommit::SetsBits
    }

    fn filter_rule(&self) -> FilterRule {
        FilterRule::ObsoleteSet
    }

    fn cost(&self, work: &Workload) -> f64 {
        work.lookup() + work.update_ratio * BIT + work.passed()
    }
}
