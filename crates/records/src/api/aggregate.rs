//! Aggregates of groups of records.

use std::ops::ControlFlow;

use esker_model::query::{Aggregate, Aggregation, Group, GroupBy};
use esker_model::{FromRecord, PrimaryKey};

use super::Query;
use crate::error::{Error, Result};
use crate::query::{self, Explain, Order};

/// A query that aggregates groups of records ([`Query::aggregate`]).
#[derive(Clone)]
#[must_use = "nothing is read before `run` or `visit`"]
pub struct AggregateQuery {
    /// Without a condition: that is the aggregation's.
    query: query::ViewQuery,
    aggregation: Aggregation,
    /// The error of the first invalid argument.
    invalid_argument: Option<Error>,
}

impl<K: PrimaryKey, V: FromRecord<K>> Query<K, V> {
    /// Computes these aggregates of the matching records: of all of them, or of groups
    /// ([`AggregateQuery::by`]). Running it is [`Error::BadInput`] if the query has an order (other
    /// than newest first or any), an offset, a limit, a page token or selected fields.
    /// [`AggregateQuery::visit`] stays within a share of the memory budget, beside up to two bytes
    /// for each record that an index counts: further groups are sorted in a file in the store's
    /// folder. [`AggregateQuery::run`] also holds all groups that it returns.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::{Database, DatasetDef, Options, field};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let events = db.create_dataset::<u64>("events", DatasetDef::key("id"))?;
    /// for id in 0..100 {
    ///     events.put(&serde_json::json!({"id": id, "user": format!("u{}", id % 7), "n": id}))?;
    /// }
    /// let most = events
    ///     .find(field("n").lt(50))
    ///     .aggregate(["count".parse()?, "sum(n)".parse()?])
    ///     .by("user".parse()?)
    ///     .order("count:desc,user".parse()?)
    ///     .limit(2)
    ///     .run()?;
    /// assert_eq!(most[0].to_json(), r#"{"user":"u0","count":8,"sum(n)":196}"#);
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Row {
    ///     user: String,
    ///     count: u64,
    /// }
    /// let row: Row = most[1].parse()?;
    /// assert_eq!((row.user.as_str(), row.count), ("u1", 7));
    /// # Ok(())
    /// # }
    /// ```
    pub fn aggregate(self, aggregates: impl IntoIterator<Item = Aggregate>) -> AggregateQuery {
        let Query {
            inner: mut query,
            invalid_argument,
            ..
        } = self;
        let ignored = query.request.check_settings("aggregate", &[]).err();
        let mut aggregation = Aggregation::new(aggregates);
        aggregation.condition = query.request.condition.take();
        AggregateQuery {
            query,
            aggregation,
            invalid_argument: invalid_argument.or(ignored.map(Error::from)),
        }
    }
}

impl AggregateQuery {
    pub(crate) fn new(query: query::ViewQuery, aggregation: Aggregation) -> AggregateQuery {
        AggregateQuery {
            query,
            aggregation,
            invalid_argument: None,
        }
    }

    /// Groups the records by this field, too.
    pub fn by(mut self, by: GroupBy) -> AggregateQuery {
        self.aggregation.by.push(by);
        self
    }

    /// Sets the order of the groups, by columns: the names of fields and aggregates. Default: by
    /// the values of the grouping fields.
    pub fn order(mut self, order: Order) -> AggregateQuery {
        match order {
            Order::Fields(fields) => self.aggregation.order = fields,
            other => {
                let error = Error::bad_input(format!(
                    "`{other}` is an order of records, not of groups: name columns, as in \
                     count:desc (a column of that name is `{other}:asc`)"
                ));
                self.invalid_argument.get_or_insert(error);
            }
        }
        self
    }

    /// Returns at most this many groups, the first in the order. Without a limit, all.
    pub fn limit(mut self, limit: impl Into<Option<usize>>) -> AggregateQuery {
        self.aggregation.limit = limit.into();
        self
    }

    /// The aggregation as data ([`Dataset::aggregation`](crate::Dataset::aggregation)); it includes
    /// the condition of the query.
    ///
    /// # Errors
    /// [`Error::BadInput`] if an argument was invalid.
    pub fn aggregation(&self) -> Result<&Aggregation> {
        match &self.invalid_argument {
            Some(error) => Err(error.clone()),
            None => Ok(&self.aggregation),
        }
    }

    /// The groups, in their order.
    ///
    /// # Errors
    /// [`Error::BadInput`] for an aggregation that does not fit the dataset; [`Error::Overflow`] if
    /// a sum cannot be represented; any read error.
    pub fn run(self) -> Result<Vec<Group>> {
        let mut groups = Vec::new();
        self.visit(&mut |group| {
            groups.push(group);
            ControlFlow::Continue(())
        })?;
        Ok(groups)
    }

    /// Passes the groups to `visit`, in their order, until it returns `Break`. Returns the
    /// explanation.
    ///
    /// # Errors
    /// As [`AggregateQuery::run`].
    pub fn visit(self, visit: &mut dyn FnMut(Group) -> ControlFlow<()>) -> Result<Explain> {
        match self.invalid_argument {
            Some(error) => Err(error),
            None => self.query.aggregate(&self.aggregation, visit),
        }
    }
}
