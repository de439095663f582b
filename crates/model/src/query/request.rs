//! What a query asks, as data.

use serde::{Deserialize, Serialize};

use super::{Order, PageToken, Validation};
use crate::condition::Expr;

/// What a query asks: which records, in which order, how many, and how much of each.
///
/// ```
/// use esker_model::condition::field;
/// use esker_model::query::Request;
///
/// let mut request = Request::default();
/// request.filter(field("user").eq("ann"));
/// request.limit = Some(10);
/// let json = serde_json::to_string(&request)?;
/// assert_eq!(json, r#"{"condition":"user = \"ann\"","order":"newest","limit":10}"#);
/// assert_eq!(serde_json::from_str::<Request>(&json)?, request);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Request {
    /// The condition that each record satisfies; without one, all records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<Expr>,
    /// The order of the answer.
    pub order: Order,
    /// At most this many records, the first in the order; without a limit, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Continues behind the page that returned this token, for the same request on the same
    /// snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<PageToken>,
    /// True for the keys of the records alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keys_only: bool,
    /// How the store validates the candidates of its indexes.
    #[serde(skip_serializing_if = "is_default")]
    pub validation: Validation,
}

fn is_default(validation: &Validation) -> bool {
    *validation == Validation::default()
}

impl Request {
    /// A request for the records that satisfy a condition, newest first.
    pub fn of(condition: Expr) -> Request {
        Request {
            condition: Some(condition),
            ..Request::default()
        }
    }

    /// Adds a condition, which must hold as well as the one before.
    pub fn filter(&mut self, condition: Expr) {
        self.condition = Some(match self.condition.take() {
            Some(before) => before & condition,
            None => condition,
        });
    }
}
