//! The input of an executor.

use esker_lsm::LookupOptions;
use esker_model::condition::Expr;
use esker_model::query::Request;

use crate::error::{Error, Result};
use crate::store::View;

/// A request, and the view that it is answered from. See [`crate::Query`].
#[derive(Clone)]
pub(crate) struct Query {
    pub(super) view: View,
    pub(crate) request: Request,
    /// How the records of candidates are looked up.
    pub(crate) lookup: LookupOptions,
}

impl Query {
    pub(crate) fn new(view: View, request: Request) -> Query {
        Query {
            view,
            request,
            lookup: LookupOptions::default(),
        }
    }

    /// Refuses to continue after a page, where the answer has none.
    pub(super) fn refuse_page(&self) -> Result<()> {
        match self.request.after {
            Some(_) => Err(Error::bad_input(
                "only the orders newest and oldest have pages",
            )),
            None => Ok(()),
        }
    }

    /// Adds a condition, which must hold as well as those before.
    pub(super) fn filter(mut self, condition: Expr) -> Query {
        self.request.filter(condition);
        self
    }
}
