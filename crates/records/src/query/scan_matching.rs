//! Stage 1 of a query without an index: a scan of the records.

use esker_lsm::Cost;
use esker_model::query::Compiled;

use super::key_cursor::KeyCursor;
use super::scan_apart::ScanApart;
use super::stages::{Admission, Needs, TakeScanned, Verdict};
use crate::error::Result;
use crate::store::View;

/// An answer of at most so many records in any order ends where it has them, even if that takes
/// lookups.
const FEW: usize = 1024;

/// A scan for the records that satisfy a condition.
pub(super) struct ScanMatching<'a> {
    pub(super) view: &'a View,
    pub(super) compiled: &'a Compiled,
    /// True if the records must come by key.
    pub(super) by_key: bool,
    /// The number of records that the answer needs; `None` for all.
    pub(super) limit: Option<usize>,
    /// True if the records are part of the answer; false if heads will do.
    pub(super) gives_records: bool,
    pub(super) cost: &'a Cost,
    /// The cost of reading bodies that are stored apart.
    pub(super) body_cost: &'a Cost,
}

impl ScanMatching<'_> {
    /// Passes the records that answer the query to `to` until it breaks. Returns the number of
    /// records read.
    pub(super) fn run(&self, to: &mut dyn TakeScanned) -> Result<u64> {
        let admission = Admission::of_all(self.view, self.compiled);
        let needs = Needs::of(admission, self.gives_records);
        if !matches!(needs, Needs::None) {
            let scan = ScanApart {
                view: self.view,
                admission,
                needs,
                cost: self.cost,
                body_cost: self.body_cost,
            };
            // Where the heads decide, a scan by key reads a batch of bodies more than are wanted.
            // In any order it would look at all heads first.
            let is_few = self.limit.is_some_and(|limit| limit <= FEW);
            let ends_early = is_few && matches!(needs, Needs::Admitted(_));
            return if self.by_key || ends_early {
                scan.by_key(to)
            } else {
                scan.in_any_order(to)
            };
        }
        let view = self.view;
        let mut cursor = KeyCursor::new(&self.compiled.keys, &view.snapshot, view.layout.data)?;
        let mut scanned = 0;
        while cursor.valid() {
            scanned += 1;
            if to.wants(cursor.seq())
                && admission.decide(cursor.value())? == Verdict::Admitted
                && (to.take(cursor.key(), cursor.seq(), &mut || cursor.value_slice())?).is_break()
            {
                break;
            }
            cursor.next()?;
        }
        self.cost.absorb(&cursor.cost());
        Ok(scanned)
    }
}
