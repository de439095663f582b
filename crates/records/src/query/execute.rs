//! The entries to the executors.

use std::ops::ControlFlow;

use super::input::Query;
use super::rows::{Cut, Rows};
use super::{Explain, Order, bulk, count, scan};
use crate::error::Result;
use esker_model::Record;

impl Query {
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
    /// of the request. The orders any and key are the quicker way to large answers: memory stays
    /// within a share of the budget; an answer whose keys take more than a query may borrow of it
    /// is sorted in a file in the store's folder. Returns the explanation.
    pub(crate) fn visit(
        mut self,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<Explain> {
        let is_first = self.request.after.is_none();
        let by_key = match self.request.order {
            Order::Any if is_first => false,
            Order::Key if is_first => true,
            _ => {
                let mut rows = self.run()?;
                while let Some(record) = rows.next_record()? {
                    if visit(record).is_break() {
                        break;
                    }
                }
                return Ok(rows.explain());
            }
        };
        let mut cut = Cut::of(&mut self.request);
        let (mut failed, mut skipped) = (None, 0);
        let mut explain = bulk::visit(self, by_key, &mut |record| {
            if cut.skips() {
                skipped += 1;
                return ControlFlow::Continue(());
            }
            match cut.select(record) {
                Ok(record) => visit(record),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        explain.steps.answers -= skipped;
        failed.map_or(Ok(explain), Err)
    }

    /// The number of matching records behind the offset (at most the limit), and how it was found.
    pub(crate) fn count(mut self) -> Result<(u64, Explain)> {
        if self.request.after.is_some() && self.request.order.is_sorted() {
            let mut rows = self.keys()?;
            while rows.step()?.is_some() {}
            let explain = rows.explain();
            return Ok((explain.steps.answers, explain));
        }
        let offset = self.request.offset as u64;
        self.request.limit = self.request.most();
        self.request.offset = 0;
        let (count, mut explain) =
            if self.request.condition.is_none() && self.request.after.is_none() {
                let limit = self.request.limit.map_or(u64::MAX, |limit| limit as u64);
                scan::count_all(&self.view, limit)?
            } else {
                self.request.keys_only = true;
                count::count(self)?
            };
        let count = count.saturating_sub(offset);
        explain.steps.answers = explain.steps.answers.min(count);
        Ok((count, explain))
    }
}
