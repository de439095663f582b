//! The input of an executor.

use esker_lsm::LookupOptions;
use esker_model::condition::Expr;
use esker_model::query::Request;

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

    /// The same query for all its records, whole and in any order.
    pub(super) fn all(&self) -> Query {
        Query {
            request: self.request.all(),
            ..self.clone()
        }
    }

    /// Adds a condition, which must hold as well as those before.
    pub(super) fn filter(mut self, condition: Expr) -> Query {
        self.request.filter(condition);
        self
    }
}
