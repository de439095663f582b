//! The query path: candidates from one index, then for all kinds and all executors the same stages (`stages.rs`): is the
//! candidate current, fetch its record, confirm the other conditions. The executors are pages in order of recency
//! (`answer.rs`), answers in bulk (`bulk.rs`), counts (`count.rs`) and versions (`candidates.rs`).

mod answer;
mod bulk;
mod by_place;
mod candidates;
mod count;
mod explain;
mod fetch;
mod key_spans;
mod levels;
mod place_time;
mod plan;
#[cfg(test)]
mod plan_tests;
mod predicate;
mod scan;
pub(crate) mod space;
mod stages;
#[cfg(test)]
mod stages_tests;
mod statistics;
mod token;
mod versions;

pub(crate) use answer::{Answer, Keys};
pub use bulk::BulkOrder;
pub use explain::{
    Compared, Explain, ExplainedCost, ExplainedIndex, ExplainedPlan, ReadCost, Steps,
};
pub use levels::TableBox;
pub(crate) use scan::{Scan, count_all, count_unindexed};
pub use space::CellCount;
pub use token::{PageToken, ValueToken};
pub(crate) use versions::Page;
pub use versions::ValuePage;

use std::ops::ControlFlow;

pub use crate::index::Order;
use esker_lsm::LookupOptions;

use crate::error::{Error, Result};
use crate::maintenance::Validation;
use crate::record::Record;
use crate::store::View;
use esker_model::condition::Expr;
use esker_model::schema::Path;

/// A query: a condition, an order, a limit. See [`crate::Query`].
#[derive(Clone)]
pub(crate) struct Query {
    snapshot: View,
    condition: Option<Expr>,
    limit: Option<usize>,
    order: Order,
    after: Option<PageToken>,
    validation: Validation,
    keys_only: bool,
    lookup: LookupOptions,
}

impl Query {
    pub(crate) fn new(snapshot: View) -> Query {
        Query {
            snapshot,
            condition: None,
            limit: None,
            order: Order::Newest,
            after: None,
            validation: Validation::default(),
            keys_only: false,
            lookup: LookupOptions::default(),
        }
    }

    /// Adds a condition: it must hold as well as those before.
    pub(crate) fn filter(mut self, condition: Expr) -> Query {
        self.condition = Some(match self.condition {
            Some(before) => before & condition,
            None => condition,
        });
        self
    }

    /// At most this many records: the first of the order. Without a limit, all.
    pub(crate) fn limit(mut self, limit: Option<usize>) -> Query {
        self.limit = limit;
        self
    }

    /// Takes the limit away.
    pub(crate) fn take_limit(&mut self) -> Option<usize> {
        self.limit.take()
    }

    /// The order of the answer; newest first unless set.
    pub(crate) fn order(mut self, order: Order) -> Query {
        self.order = order;
        self
    }

    /// Goes on behind the page that gave this token, of the same query on the same snapshot.
    pub(crate) fn after(mut self, token: PageToken) -> Query {
        self.after = Some(token);
        self
    }

    /// How candidates of an index are validated.
    pub(crate) fn validation(mut self, validation: Validation) -> Query {
        self.validation = validation;
        self
    }

    /// Runs the query for the keys of the matching records alone. Where the maintenance strategy and the
    /// conditions allow it no record is read.
    pub(crate) fn keys(mut self) -> Result<Keys> {
        self.keys_only = true;
        Ok(Keys(Answer::new(self)?))
    }

    /// How the records of candidates are looked up: for experiments, or to give the lookups of an answer
    /// without a limit more memory at a time, or less. The answer is the same.
    pub(crate) fn lookup(mut self, options: LookupOptions) -> Query {
        self.lookup = options;
        self
    }

    /// Runs the query. Records are found as the answer is iterated, a page at a time, in bounded
    /// memory.
    pub(crate) fn run(self) -> Result<Answer> {
        Answer::new(self)
    }

    /// Gives every matching record (at most the limit) to `visit` until that breaks, not by recency: the
    /// quicker way to large answers. Memory stays within a share of the budget; an answer whose keys take more than a
    /// query may borrow of it is sorted in a file in the store's folder. Returns the explanation.
    ///
    /// # Errors
    /// [`Error::BadInput`] for a query that continues after a page; also any read error.
    pub(crate) fn visit(
        self,
        order: BulkOrder,
        visit: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<Explain> {
        bulk::visit(self, order, visit)
    }

    /// The number of matching records (at most the limit), and how it was found.
    pub(crate) fn count(self) -> Result<(u64, Explain)> {
        if self.condition.is_none() && self.after.is_none() {
            let limit = self.limit.map_or(u64::MAX, |limit| limit as u64);
            return scan::count_all(&self.snapshot, limit);
        }
        let mut answer = Answer::new(Query {
            keys_only: true,
            ..self
        })?;
        let count = answer.count_rest()?;
        Ok((count, answer.explain()))
    }
}

/// The error for a range that is upside down.
fn upside_down(path: &Path, lo: &str, hi: &str) -> Error {
    Error::bad_input(format!(
        "{path}: the bounds of the range are reversed: {lo} is above {hi}"
    ))
}
