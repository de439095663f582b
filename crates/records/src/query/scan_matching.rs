//! Stage 1 of a query without an index: a scan of the records, which decides the condition on each.

use esker_lsm::Cost;
use esker_model::query::Compiled;

use super::key_cursor::KeyCursor;
use super::scan_apart::ScanApart;
use super::stages::{Admission, AnswerContent, BulkOrder, Decision, Needs, TakeScanned};
use crate::error::Result;
use crate::store::View;

/// The largest limit of an answer in any order that is scanned by key, and ends at the limit: a
/// scan in any order would first read all heads.
const MAX_FEW: usize = 1024;

/// A scan for the records that satisfy a condition.
pub(super) struct ScanMatching<'a> {
    pub(super) view: &'a View,
    pub(super) compiled: &'a Compiled,
    /// The order in which records are passed on.
    pub(super) order: BulkOrder,
    /// The number of records that the answer needs; `None` for all.
    pub(super) limit: Option<usize>,
    /// If it is keys, heads are passed on where they decide the conditions.
    pub(super) content: AnswerContent,
    /// The cost of reading the data tree.
    pub(super) cost: &'a Cost,
    /// The cost of reading bodies that are stored apart.
    pub(super) body_cost: &'a Cost,
}

impl ScanMatching<'_> {
    /// Passes the records that answer the query to `to` until it breaks. Returns the number of
    /// records read.
    ///
    /// # Errors
    /// Any read error; damage if a record is malformed, or its body is missing; any error of `to`.
    pub(super) fn run(&self, to: &mut dyn TakeScanned) -> Result<u64> {
        let admission = Admission::of_all(self.view, self.compiled);
        let heads_decide = match Needs::of(admission, self.content) {
            Needs::None => return self.by_key(admission, to),
            Needs::Admitted(_) => true,
            Needs::All => false,
        };
        let scan = ScanApart {
            view: self.view,
            admission,
            heads_decide,
            cost: self.cost,
            body_cost: self.body_cost,
        };
        // If the heads decide, a scan by key reads at most one batch of bodies in vain.
        let is_few = self.limit.is_some_and(|limit| limit <= MAX_FEW);
        if self.order == BulkOrder::Key || is_few && heads_decide {
            scan.by_key(to)
        } else {
            scan.in_any_order(to)
        }
    }

    /// Scans the tree of the records, whose entries are all that the query needs.
    fn by_key(&self, admission: Admission<'_>, to: &mut dyn TakeScanned) -> Result<u64> {
        let view = self.view;
        let mut cursor = KeyCursor::new(&self.compiled.keys, &view.snapshot, view.layout.data)?;
        let mut scanned = 0;
        while cursor.valid() {
            scanned += 1;
            if to.wants(cursor.seq())
                && admission.decide(cursor.value())? == Decision::Admitted
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
