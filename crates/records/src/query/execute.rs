//! The entries to the executors.

use std::ops::ControlFlow;

use super::input::Query;
use super::{Answer, BulkOrder, Explain, Keys, bulk, count, run, scan};
use crate::error::Result;
use esker_model::Record;

impl Query {
    /// Runs the query for the keys of the matching records alone. Reads no record if the
    /// maintenance strategy and the conditions allow it.
    pub(crate) fn keys(mut self) -> Result<Keys> {
        self.request.keys_only = true;
        Ok(Keys(self.run()?))
    }

    /// Runs the query. Records are found as the answer is iterated, a page at a time, in bounded
    /// memory.
    pub(crate) fn run(self) -> Result<Answer> {
        Ok(Answer::new(run::Run::new(self)?))
    }

    /// Passes every matching record (at most the limit) to `visit` until that breaks, not by
    /// recency: the quicker way to large answers. Memory stays within a share of the budget; an
    /// answer whose keys take more than a query may borrow of it is sorted in a file in the store's
    /// folder. Returns the explanation.
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) for a query that continues after a page; also
    /// any read error.
    pub(crate) fn visit(
        self,
        order: BulkOrder,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<Explain> {
        bulk::visit(self, order, visit)
    }

    /// The number of matching records (at most the limit), and how it was found.
    pub(crate) fn count(mut self) -> Result<(u64, Explain)> {
        if self.request.condition.is_none() && self.request.after.is_none() {
            let limit = self.request.limit.map_or(u64::MAX, |limit| limit as u64);
            return scan::count_all(&self.view, limit);
        }
        self.request.keys_only = true;
        count::count(self)
    }
}
