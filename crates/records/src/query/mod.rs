//! The query path: candidates from one index, then for all kinds and all executors the same stages
//! (`stages.rs`): is the candidate current, fetch its record, confirm the other conditions. A query in execution
//! is a [`run::Run`]; the executors are pages in order of recency (`answer.rs`), answers in bulk (`bulk.rs`),
//! counts (`count.rs`) and versions (`candidates.rs`). Conditions and plans are compiled by
//! [`esker_model::query`].

mod answer;
mod bulk;
mod bulk_by_place;
mod candidates;
mod count;
mod estimates;
mod explain;
mod fetch;
mod key_cursor;
mod levels;
mod order;
#[cfg(test)]
mod plan_tests;
mod run;
mod scan;
mod scan_by_place;
mod scan_matching;
pub(crate) mod space;
mod stages;
#[cfg(test)]
mod stages_tests;
mod statistics;
mod versions;

pub(crate) use answer::{Answer, Keys};
pub use esker_model::query::{Order, PageToken, Request, ValueToken};
pub use explain::{
    Compared, Explain, ExplainedCost, ExplainedIndex, ExplainedPlan, ReadCost, Steps,
};
pub use levels::TableBox;
pub use order::BulkOrder;
pub(crate) use scan::{Scan, count_all, count_unindexed};
pub use space::CellCount;
pub(crate) use versions::Page;
pub use versions::ValuePage;

use std::ops::ControlFlow;

use esker_lsm::LookupOptions;
use esker_model::condition::Expr;

use crate::error::Result;
use crate::maintenance::Validation;
use crate::record::Record;
use crate::store::View;

/// A request, and the view that it is answered from. See [`crate::Query`].
#[derive(Clone)]
pub(crate) struct Query {
    view: View,
    pub(crate) request: Request,
    /// How candidates of an index are validated.
    pub(crate) validation: Validation,
    /// How the records of candidates are looked up.
    pub(crate) lookup: LookupOptions,
}

impl Query {
    pub(crate) fn new(view: View, request: Request) -> Query {
        Query {
            view,
            request,
            validation: Validation::default(),
            lookup: LookupOptions::default(),
        }
    }

    /// Adds a condition, which must hold as well as those before.
    fn filter(mut self, condition: Expr) -> Query {
        self.request.filter(condition);
        self
    }

    /// Runs the query for the keys of the matching records alone. Reads no record if the maintenance strategy
    /// and the conditions allow it.
    pub(crate) fn keys(mut self) -> Result<Keys> {
        self.request.keys_only = true;
        Ok(Keys(self.run()?))
    }

    /// Runs the query. Records are found as the answer is iterated, a page at a time, in bounded
    /// memory.
    pub(crate) fn run(self) -> Result<Answer> {
        Ok(Answer::new(run::Run::new(self)?))
    }

    /// Passes every matching record (at most the limit) to `visit` until that breaks, not by recency: the
    /// quicker way to large answers. Memory stays within a share of the budget; an answer whose keys take more
    /// than a query may borrow of it is sorted in a file in the store's folder. Returns the explanation.
    ///
    /// # Errors
    /// [`Error::BadInput`](crate::Error::BadInput) for a query that continues after a page; also any read error.
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
