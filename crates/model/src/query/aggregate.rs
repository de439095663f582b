//! What a query asks of groups of records, as data.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::FieldOrder;
use super::bucket::Period;
use super::list::{escape, split_list};
use crate::condition::Expr;
use crate::error::{Error, Result};
use crate::schema::{IntoPath, Path};

/// A number or value of a group of records. As text `count`, `distinct(PATH)`,
/// `approx_distinct(PATH)`, `min(PATH)`, `max(PATH)`, `sum(PATH)`, `avg(PATH)` or `p95(PATH)`.
///
/// Values are those in the [order of values](super::Order#the-order-of-values): null, objects and
/// empty arrays are none. Each element of an array is a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Aggregate {
    /// The number of records.
    Count,
    /// The number of different values.
    Distinct(Path),
    /// An estimate of the number of different values, with a standard error of 1.6 %, in 4 KiB of
    /// memory.
    ApproxDistinct(Path),
    /// The least value; null without one.
    Min(Path),
    /// The greatest value; null without one.
    Max(Path),
    /// The sum of the numbers; null without one. Whole numbers are summed exactly, up to 128 bits.
    /// If one of the numbers has a fraction or an exponent, the sum is the float nearest to the
    /// exact sum of the floats.
    Sum(Path),
    /// The mean of the numbers, a float; null without one.
    Avg(Path),
    /// The least value that at least so many percent of the values (1 to 100) do not exceed; null
    /// without a value.
    Percentile(u8, Path),
}

impl Aggregate {
    /// The path of the values; `None` for the number of records.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Aggregate::Count => None,
            Aggregate::Distinct(path)
            | Aggregate::ApproxDistinct(path)
            | Aggregate::Min(path)
            | Aggregate::Max(path)
            | Aggregate::Sum(path)
            | Aggregate::Avg(path)
            | Aggregate::Percentile(_, path) => Some(path),
        }
    }

    /// Reads a list, as in `count,sum(n)`.
    ///
    /// # Errors
    /// [`Error::BadInput`] if a part is not an aggregate.
    pub fn parse_list(text: &str) -> Result<Vec<Aggregate>> {
        split_list(text).map(str::parse).collect()
    }

    /// The name of its column: without the backslashes that the text of a list needs.
    pub(super) fn column(&self) -> String {
        match self.path() {
            Some(path) => format!("{}({path})", self.name()),
            None => self.name().into_owned(),
        }
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Aggregate::Count => "count",
            Aggregate::Distinct(_) => "distinct",
            Aggregate::ApproxDistinct(_) => "approx_distinct",
            Aggregate::Min(_) => "min",
            Aggregate::Max(_) => "max",
            Aggregate::Sum(_) => "sum",
            Aggregate::Avg(_) => "avg",
            Aggregate::Percentile(percent, _) => return Cow::Owned(format!("p{percent}")),
        })
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        match self.path() {
            Some(path) => write!(f, "({})", escape(path)),
            None => Ok(()),
        }
    }
}

impl FromStr for Aggregate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Aggregate> {
        if text == "count" {
            return Ok(Aggregate::Count);
        }
        let unknown = || {
            Error::bad_input(format!(
                "`{text}` is not an aggregate: use count, distinct(FIELD), approx_distinct(FIELD), \
                 min(FIELD), max(FIELD), sum(FIELD), avg(FIELD), p50(FIELD), p95(FIELD), p99(FIELD)"
            ))
        };
        let (name, rest) = text.split_once('(').ok_or_else(unknown)?;
        let path = rest.strip_suffix(')').ok_or_else(unknown)?;
        let path: Path = path.trim().parse()?;
        Ok(match name {
            "distinct" => Aggregate::Distinct(path),
            "approx_distinct" => Aggregate::ApproxDistinct(path),
            "min" => Aggregate::Min(path),
            "max" => Aggregate::Max(path),
            "sum" => Aggregate::Sum(path),
            "avg" => Aggregate::Avg(path),
            _ => {
                let percent = name.strip_prefix('p').and_then(|p| p.parse::<u8>().ok());
                let percent = percent.filter(|percent| (1..=100).contains(percent));
                Aggregate::Percentile(percent.ok_or_else(unknown)?, path)
            }
        })
    }
}

/// A field that forms groups: by its values, or by buckets of them. As text `PATH`,
/// `PATH/PERIOD` or `PATH/PERIOD@START`.
///
/// A period is a number in the field's unit (for text that is a time: seconds), a length of time
/// (`1d`, `12h30m`; units: w, d, h, m, s, ms), `month` or `year`, both in UTC. With a length of
/// time, `month` or `year`, numbers are times in the unit of the field's declared type, otherwise
/// seconds since 1970. A bucket begins at the start, or a whole number of periods before or after
/// it; without a start, at 0 or 1970. It is given by its begin: a number if the group has a number
/// there, otherwise text.
///
/// A record is in the groups of each different value of an array, once. Records without a value,
/// and with a value that no bucket can have, are in the group null.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupBy {
    /// The path of the field.
    pub path: Path,
    /// The period of its buckets.
    pub(super) period: Option<Period>,
    /// The begin of a bucket.
    pub(super) start: Option<String>,
}

impl GroupBy {
    /// By the values of a field.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the text is not a path.
    pub fn field(path: impl IntoPath) -> Result<GroupBy> {
        let path = path.into_path()?;
        let (period, start) = (None, None);
        Ok(GroupBy {
            path,
            period,
            start,
        })
    }

    /// By buckets of this period.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the text is not a period.
    pub fn every(self, period: &str) -> Result<GroupBy> {
        let period = Some(period.parse()?);
        Ok(GroupBy { period, ..self })
    }

    /// One of the buckets begins here: a number in the field's unit, or a time.
    pub fn starting(self, at: impl Into<String>) -> GroupBy {
        let start = Some(at.into());
        GroupBy { start, ..self }
    }

    /// Reads a list, as in `origin,time/1d`.
    ///
    /// # Errors
    /// [`Error::BadInput`] if a part is not a field with an optional period.
    pub fn parse_list(text: &str) -> Result<Vec<GroupBy>> {
        split_list(text).map(str::parse).collect()
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.path))?;
        if let Some(period) = &self.period {
            write!(f, "/{period}")?;
        }
        match &self.start {
            Some(start) => write!(f, "@{start}"),
            None => Ok(()),
        }
    }
}

impl FromStr for GroupBy {
    type Err = Error;

    fn from_str(text: &str) -> Result<GroupBy> {
        let mut is_escaped = false;
        let slash = text.find(|c: char| {
            let is_literal = is_escaped;
            is_escaped = c == '\\' && !is_literal;
            c == '/' && !is_literal
        });
        let Some((path, period)) = slash.and_then(|at| text.split_at_checked(at)) else {
            return GroupBy::field(text.trim());
        };
        let period = period.strip_prefix('/').unwrap_or(period);
        let (period, start) = match period.split_once('@') {
            Some((period, start)) => (period, Some(start.to_string())),
            None => (period, None),
        };
        let by = GroupBy::field(path.trim())?.every(period)?;
        Ok(GroupBy { start, ..by })
    }
}

/// A question about groups of records: which records, how they are grouped, what is computed of
/// each group.
///
/// ```
/// use esker_model::query::Aggregation;
///
/// let text = r#"{"condition":"n > 3","aggregates":["count","sum(n)"],"by":["user","at/1d"],
///                "order":["count:desc"],"limit":10}"#;
/// let aggregation: Aggregation = serde_json::from_str(text)?;
/// assert_eq!(aggregation.by[1].to_string(), "at/1d");
/// let written = serde_json::to_string(&aggregation)?;
/// assert_eq!(serde_json::from_str::<Aggregation>(&written)?, aggregation);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Aggregation {
    /// The condition that each record satisfies; without one, all records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<Expr>,
    /// What is computed of each group.
    pub aggregates: Vec<Aggregate>,
    /// The fields that form groups; none for one group of all records, also if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<GroupBy>,
    /// The order of the groups, by columns: fields of groups and aggregates, as in `count:desc`.
    /// Equal ones, and all without an order, are in the order of the values that form them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<FieldOrder>,
    /// At most this many groups, the first in the order; without a limit, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl Aggregation {
    /// Of all records.
    pub fn new(aggregates: impl IntoIterator<Item = Aggregate>) -> Aggregation {
        Aggregation {
            aggregates: aggregates.into_iter().collect(),
            ..Aggregation::default()
        }
    }

    /// True if the number of records answers it.
    pub fn is_count(&self) -> bool {
        let is_count = |aggregate: &Aggregate| *aggregate == Aggregate::Count;
        self.by.is_empty() && self.aggregates.iter().all(is_count)
    }
}
