//! What a query asks, as data.

use serde::{Deserialize, Serialize};

use super::{Order, PageToken, Validation};
use crate::condition::Expr;
use crate::schema::Path;

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
    /// Without this many records, the first in the order. Not after a page ([`Request::after`]):
    /// the first page has left them out.
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: usize,
    /// At most this many records, the first in the order behind the offset; without a limit, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Continues behind the page that returned this token, for the same request on the same
    /// snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<PageToken>,
    /// The fields that are wanted of each record, with the objects around them
    /// ([`Projection`](crate::schema::Projection)); none for the whole records.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub select: Vec<Path>,
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

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Request {
    /// A request for the records that satisfy a condition, newest first.
    pub fn of(condition: Expr) -> Request {
        Request {
            condition: Some(condition),
            ..Request::default()
        }
    }

    /// The request for the same records, all of them and whole, in any order.
    pub fn all(&self) -> Request {
        Request {
            condition: self.condition.clone(),
            order: Order::Any,
            validation: self.validation,
            ..Request::default()
        }
    }

    /// The number of records that the answer leaves out: the offset, unless a page before has left
    /// them out.
    pub fn skip(&self) -> usize {
        match self.after {
            Some(_) => 0,
            None => self.offset,
        }
    }

    /// The number of records, from the first in the order on, that the answer and what the offset
    /// leaves out need; `None` for all.
    pub fn most(&self) -> Option<usize> {
        self.limit.map(|limit| match limit {
            0 => 0,
            _ => limit.saturating_add(self.skip()),
        })
    }

    /// Adds a condition, which must hold as well as the one before.
    pub fn filter(&mut self, condition: Expr) {
        self.condition = Some(match self.condition.take() {
            Some(before) => before & condition,
            None => condition,
        });
    }
}
