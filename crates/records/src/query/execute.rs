//! The entry points of the executors: each takes a query by value, and returns its answer with the
//! explanation.

use std::ops::ControlFlow;

use super::bulk::VisitRecord;
use super::input::ViewQuery;
use super::rows::{RowSelection, Rows};
use super::stages::BulkOrder;
use super::{Explain, Order, bulk, count, scan};
use crate::error::Result;

impl ViewQuery {
    /// Runs the query for the keys of the matching records alone. Reads no record if the
    /// maintenance strategy and the conditions allow it.
    pub(crate) fn keys(mut self) -> Result<Rows> {
        self.request.keys_only = true;
        Rows::new(self)
    }

    /// Runs the query. In an order of writes records are found as the answer is iterated, a page
    /// at a time; in an order of fields or keys all are found before the first is returned. Memory
    /// is bounded: larger answers are sorted in a file in the store's folder.
    pub(crate) fn run(mut self) -> Result<Rows> {
        self.request.keys_only = false;
        Rows::new(self)
    }

    /// Passes every matching record (at most the limit) to `visit` until that breaks, in the order
    /// of the request. Large answers are found the quickest in [`Order::Any`] or [`Order::Key`]:
    /// memory stays within a share of the budget; an answer whose keys take more than a query may
    /// borrow is sorted in a file in the store's folder. Returns the explanation.
    ///
    /// # Errors
    /// As [`ViewQuery::run`]; any error of `visit`, which ends the query.
    pub(crate) fn visit(mut self, visit: &mut VisitRecord<'_>) -> Result<Explain> {
        let is_first = self.request.after.is_none();
        let order = match self.request.order {
            Order::Any if is_first => BulkOrder::Any,
            Order::Key if is_first => BulkOrder::Key,
            _ => {
                let mut rows = self.run()?;
                while let Some(record) = rows.next_record()? {
                    if visit(record)?.is_break() {
                        break;
                    }
                }
                return Ok(rows.explain());
            }
        };
        let mut selection = RowSelection::take_from(&mut self.request);
        let mut skipped = 0;
        let mut explain = bulk::visit(self, order, &mut |record| {
            if selection.skips() {
                skipped += 1;
                return Ok(ControlFlow::Continue(()));
            }
            visit(selection.select(record)?)
        })?;
        explain.steps.answers -= skipped;
        Ok(explain)
    }

    /// The number of matching records after the offset (at most the limit), and the explanation.
    pub(crate) fn count(mut self) -> Result<(u64, Explain)> {
        if self.request.after.is_some() && self.request.order.is_sorted() {
            let mut rows = self.keys()?;
            while rows.step()?.is_some() {}
            let explain = rows.explain();
            return Ok((explain.steps.answers, explain));
        }
        let skip = self.request.skip() as u64;
        self.request.limit = self.request.most();
        self.request.offset = 0;
        let (count, mut explain) =
            if self.request.condition.is_none() && self.request.after.is_none() {
                let limit = self.request.limit.map(|limit| limit as u64);
                scan::count_all(&self.view, limit)?
            } else {
                self.request.keys_only = true;
                count::count(self)?
            };
        // Fewer records than the offset match.
        let count = count.saturating_sub(skip);
        explain.steps.answers = explain.steps.answers.min(count);
        Ok((count, explain))
    }
}
