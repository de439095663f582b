//! The input of an executor: a request, and the snapshot that answers it.

use esker_lsm::LookupOptions;
use esker_model::condition::Expr;
use esker_model::query::Request;

use crate::store::View;

/// When the entries of several indexes are combined before records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Combining {
    /// If that is expected to be less work.
    #[default]
    Auto,
    /// Whenever that is possible.
    Always,
    /// Never: one index drives an `and`.
    Never,
}

/// A request, and the view that answers it. See [`crate::Query`].
#[derive(Clone)]
pub(crate) struct ViewQuery {
    pub(super) view: View,
    pub(crate) request: Request,
    /// How the records of candidates are looked up.
    pub(crate) lookup: LookupOptions,
    pub(crate) combining: Combining,
}

impl ViewQuery {
    /// A query with the default ways to look up records and to combine indexes.
    pub(crate) fn new(view: View, request: Request) -> ViewQuery {
        ViewQuery {
            view,
            request,
            lookup: LookupOptions::default(),
            combining: Combining::default(),
        }
    }

    /// The same query for all its records, whole and in any order.
    pub(super) fn all(&self) -> ViewQuery {
        ViewQuery {
            request: self.request.all(),
            ..self.clone()
        }
    }

    /// Adds a condition, which must hold as well as those before.
    pub(super) fn filter(mut self, condition: Expr) -> ViewQuery {
        self.request.filter(condition);
        self
    }
}
