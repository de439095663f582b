//! Stage 1 of a query without an index: a scan of the records, which decides the condition on each.

use esker_lsm::Cost;
use esker_model::query::Compiled;

use super::key_cursor::KeyCursor;
use super::scan_heads::HeadScan;
use super::stages::{Admission, AnswerContent, BulkOrder, Decision, Needs, TakeScanned};
use crate::error::Result;
use crate::store::View;

/// The largest limit for which an answer in any order is scanned by key. A scan by key ends when
/// the answer has enough records; a scan in any order first reads all heads.
const MAX_LIMIT_BY_KEY: usize = 1024;

/// A scan for the records that satisfy a condition.
pub(super) struct ScanMatching<'a> {
    pub(super) view: &'a View,
    pub(super) compiled: &'a Compiled,
    /// The order in which records are passed on.
    pub(super) order: BulkOrder,
    /// The number of records that the answer needs; `None` for all.
    pub(super) limit: Option<usize>,
    /// For [`AnswerContent::Keys`], a record may be passed on as its head, if heads decide the
    /// conditions.
    pub(super) content: AnswerContent,
    /// The cost of reading the data tree.
    pub(super) cost: &'a Cost,
    /// The cost of reading bodies that are stored separately.
    pub(super) body_cost: &'a Cost,
}

impl ScanMatching<'_> {
    /// Passes the records that answer the query to `receiver` until it breaks. Returns the number
    /// of records read.
    ///
    /// # Errors
    /// Any read error; damage if a record is malformed, or its body is missing; any error of
    /// `receiver`.
    pub(super) fn run(&self, receiver: &mut dyn TakeScanned) -> Result<u64> {
        let admission = Admission::of_all(self.view, self.compiled);
        let heads_decide = match Needs::of(admission, self.content) {
            Needs::None => return self.by_key(admission, receiver),
            Needs::Admitted(_) => true,
            Needs::All => false,
        };
        let scan = HeadScan {
            view: self.view,
            admission,
            heads_decide,
            cost: self.cost,
            body_cost: self.body_cost,
        };
        // If the heads decide, a scan by key reads at most one batch of bodies in vain.
        let ends_early = self.limit.is_some_and(|limit| limit <= MAX_LIMIT_BY_KEY);
        if self.order == BulkOrder::Key || ends_early && heads_decide {
            scan.by_key(receiver)
        } else {
            scan.in_any_order(receiver)
        }
    }

    /// Scans the tree of the records, whose entries are all that the query needs.
    fn by_key(&self, admission: Admission<'_>, receiver: &mut dyn TakeScanned) -> Result<u64> {
        let view = self.view;
        let mut cursor = KeyCursor::new(&self.compiled.keys, &view.snapshot, view.layout.data)?;
        let mut scanned = 0;
        while cursor.valid() {
            scanned += 1;
            if receiver.wants(cursor.seq())
                && admission.decide(cursor.value())? == Decision::Admitted
                && (receiver.take(cursor.key(), cursor.seq(), &mut || cursor.value_slice())?)
                    .is_break()
            {
                break;
            }
            cursor.next()?;
        }
        self.cost.absorb(&cursor.cost());
        Ok(scanned)
    }
}
