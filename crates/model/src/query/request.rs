//! What a query asks, as data.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Order, PageToken, Validation};
use crate::condition::Expr;
use crate::error::{Error, Result};
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
    /// The number of records that are skipped, the first in the order. Not after a page
    /// ([`Request::after`]): the first page has skipped them.
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: usize,
    /// At most this many records, the first in the order after the offset; without a limit, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Continues after the page that returned this token, for the same request on the same
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

/// A setting of a request, beside its condition and the way in which candidates are validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// [`Request::order`].
    Order,
    /// [`Request::offset`].
    Offset,
    /// [`Request::limit`].
    Limit,
    /// [`Request::after`].
    After,
    /// [`Request::select`].
    Select,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Setting::Order => "order",
            Setting::Offset => "offset",
            Setting::Limit => "limit",
            Setting::After => "after",
            Setting::Select => "select",
        })
    }
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

    /// The number of records that the answer skips: the offset, unless a page before has skipped
    /// them.
    pub fn skip(&self) -> usize {
        match self.after {
            Some(_) => 0,
            None => self.offset,
        }
    }

    /// The number of records, from the first in the order on, that the answer and what it skips
    /// need; `None` for all.
    pub fn most(&self) -> Option<usize> {
        self.limit.map(|limit| match limit {
            0 => 0,
            _ => limit.saturating_add(self.skip()),
        })
    }

    /// Refuses settings that `method`, which applies those of `applied`, would ignore. The default
    /// order and [`Order::Any`] fit every method.
    ///
    /// # Errors
    /// [`Error::BadInput`], which names the method and the setting.
    pub fn check_settings(&self, method: &str, applied: &[Setting]) -> Result<()> {
        let has_order = ![Order::default(), Order::Any].contains(&self.order);
        let settings = [
            (Setting::Order, has_order),
            (Setting::Offset, self.offset > 0),
            (Setting::Limit, self.limit.is_some()),
            (Setting::After, self.after.is_some()),
            (Setting::Select, !self.select.is_empty()),
        ];
        let mut ignored = settings
            .into_iter()
            .filter(|(setting, is_set)| *is_set && !applied.contains(setting));
        match ignored.next() {
            Some((setting, _)) => Err(Error::bad_input(format!(
                "`{method}` does not use the setting `{setting}` of a query; leave it out"
            ))),
            None => Ok(()),
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
