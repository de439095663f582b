//! Queries and their answers, with typed keys. [`crate::query`] implements them.

use std::marker::PhantomData;
use std::ops::ControlFlow;

use esker_lsm::LookupOptions;
use esker_model::condition::Expr;
use esker_model::query::{Direction, Request, Validation};
use esker_model::schema::IntoPath;
use esker_model::{FromRecord, Key, PrimaryKey, Record};

use crate::error::{Error, Result};
use crate::query::{self, Combining, Explain, Order, PageToken};
use crate::record;

/// A query: a condition, an order, a limit. Iterating it runs it.
///
/// Bounds (`>=`, `<=`, `>`, `<`) on the same path joined by `and` form one range: a record with an
/// array there matches if one element lies in the range. Each `=` and each prefix is tested
/// separately, so `tag=a and tag=b` finds arrays that contain both.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// use esker::{Database, DatasetDef, Index, Options, field};
///
/// let db = Database::create_or_open(dir.path(), Options::default())?;
/// let def = DatasetDef::key("id").index("n", Index::recent().int());
/// let events = db.create_dataset::<u64>("events", def)?;
/// for id in 0..100 {
///     events.put(&serde_json::json!({"id": id, "n": id % 7}))?;
/// }
/// let mut keys = Vec::new();
/// for hit in events.find(field("n").eq(3)).limit(2) {
///     keys.push(*hit?.key());
/// }
/// assert_eq!(keys, [94, 87]);
/// assert_eq!(events.find(field("n").range(3..5)).count()?, 28);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Query<K = Key, V = Record<K>> {
    pub(super) inner: query::ViewQuery,
    /// The error of the first invalid argument, which every call that runs the query returns.
    pub(super) invalid_argument: Option<Error>,
    key: PhantomData<fn() -> (K, V)>,
}

impl<K: PrimaryKey, V: FromRecord<K>> Query<K, V> {
    pub(crate) fn new(inner: query::ViewQuery) -> Query<K, V> {
        Query {
            inner,
            invalid_argument: None,
            key: PhantomData,
        }
    }

    /// Keeps the error of an invalid argument, unless an earlier one was invalid, too.
    fn note_invalid_argument(&mut self, error: Error) {
        self.invalid_argument.get_or_insert(error);
    }

    /// The query.
    ///
    /// # Errors
    /// [`Error::BadInput`] if an argument was invalid.
    pub(super) fn with_valid_arguments(self) -> Result<query::ViewQuery> {
        self.invalid_argument.map_or(Ok(self.inner), Err)
    }

    /// The query as data: it can be serialised, and run on another store
    /// ([`Dataset::request`](crate::Dataset::request)).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # use esker::{Database, DatasetDef, Options, field};
    /// # let db = Database::create_or_open(dir.path(), Options::default())?;
    /// # let events = db.create_dataset::<u64>("events", DatasetDef::key("id"))?;
    /// # events.put_json(br#"{"id": 1, "n": 5}"#)?;
    /// let text = serde_json::to_string(events.find(field("n").gt(3)).limit(10).request()?)?;
    /// assert_eq!(text, r#"{"condition":"n > int(3)","order":"newest","limit":10}"#);
    /// assert_eq!(events.request(serde_json::from_str(&text)?).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadInput`] if an argument was invalid.
    pub fn request(&self) -> Result<&Request> {
        match &self.invalid_argument {
            Some(error) => Err(error.clone()),
            None => Ok(&self.inner.request),
        }
    }

    /// Adds a condition; all conditions must hold.
    pub fn filter(mut self, condition: Expr) -> Query<K, V> {
        self.inner.request.filter(condition);
        self
    }

    /// Returns at most this many records, the first in the order after the offset. Without a limit,
    /// all.
    pub fn limit(mut self, limit: impl Into<Option<usize>>) -> Query<K, V> {
        self.inner.request.limit = limit.into();
        self
    }

    /// Sets the order of the answer. Default: newest first.
    pub fn order(mut self, order: Order) -> Query<K, V> {
        self.inner.request.order = order;
        self
    }

    /// The newest records first (the default).
    pub fn newest(self) -> Query<K, V> {
        self.order(Order::Newest)
    }

    /// The oldest records first.
    pub fn oldest(self) -> Query<K, V> {
        self.order(Order::Oldest)
    }

    /// Sorts the answer by the values of a field ([order of values](Order#the-order-of-values)).
    /// Called again, equal records are sorted by the next field; records that are equal in all
    /// fields are in the order of their keys. All matching records are read before the first is
    /// returned: with a limit the first ones are kept in memory, without one they are sorted within
    /// a share of the memory budget, in a file in the store's folder if necessary.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::request::Direction::{Ascending, Descending};
    /// use esker::{Database, DatasetDef, Options};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let events = db.create_dataset::<u64>("events", DatasetDef::key("id"))?;
    /// for id in 0..9 {
    ///     events.put(&serde_json::json!({"id": id, "n": id % 3, "user": {"name": "ann"}}))?;
    /// }
    /// let query = events
    ///     .query()
    ///     .order_by("n", Descending)
    ///     .order_by("id", Ascending)
    ///     .select(["user.name"])
    ///     .offset(1)
    ///     .limit(2);
    /// let found = query.run()?.collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(found.iter().map(|record| *record.key()).collect::<Vec<_>>(), [5, 8]);
    /// assert_eq!(found[0].json(), br#"{"user":{"name":"ann"}}"#);
    /// # Ok(())
    /// # }
    /// ```
    pub fn order_by(mut self, path: impl IntoPath, direction: Direction) -> Query<K, V> {
        let order = std::mem::take(&mut self.inner.request.order);
        match order.then(path, direction) {
            Ok(order) => self.inner.request.order = order,
            Err(error) => self.note_invalid_argument(error.into()),
        }
        self
    }

    /// Returns only these fields of each record, with the objects around them. A field that a
    /// record does not have is absent ([`Projection`](crate::request::Projection)).
    pub fn select<P: IntoPath>(mut self, paths: impl IntoIterator<Item = P>) -> Query<K, V> {
        let paths = paths.into_iter().map(IntoPath::into_path);
        match paths.collect::<esker_model::Result<_>>() {
            Ok(paths) => self.inner.request.select = paths,
            Err(error) => self.note_invalid_argument(error.into()),
        }
        self
    }

    /// Skips this many records, the first in the order. Not after a page ([`Query::after`]): the
    /// first page has skipped them.
    pub fn offset(mut self, offset: usize) -> Query<K, V> {
        self.inner.request.offset = offset;
        self
    }

    /// Continues after the page that returned this token, for the same query on the same snapshot.
    pub fn after(mut self, token: PageToken) -> Query<K, V> {
        self.inner.request.after = Some(token);
        self
    }

    /// Sets how index entries are validated.
    #[doc(hidden)]
    pub fn validation(mut self, validation: Validation) -> Query<K, V> {
        self.inner.request.validation = validation;
        self
    }

    /// Sets how the records of index entries are looked up: for experiments. The answer is the
    /// same.
    #[doc(hidden)]
    pub fn lookup(mut self, options: LookupOptions) -> Query<K, V> {
        self.inner.lookup = options;
        self
    }

    /// Sets when the entries of several indexes are combined before records are read: for
    /// experiments. The answer is the same.
    #[doc(hidden)]
    pub fn combining(mut self, combining: Combining) -> Query<K, V> {
        self.inner.combining = combining;
        self
    }

    /// Runs the query and returns only the keys of the matching records. Reads no record if the
    /// maintenance strategy and the conditions allow it.
    ///
    /// # Errors
    /// As [`Query::run`].
    pub fn keys(self) -> Result<Keys<K>> {
        let (inner, key) = (self.with_valid_arguments()?.keys()?, PhantomData);
        Ok(Keys { inner, key })
    }

    /// Runs the query. The iterator finds the records a page at a time, in bounded memory.
    ///
    /// # Errors
    /// [`Error::BadInput`] if a path, a condition, the order or the page token is invalid; also any
    /// read error. The items of the iterator are read errors, too.
    pub fn run(self) -> Result<Answer<K, V>> {
        Ok(Answer::new(Ok(self.with_valid_arguments()?.run()?)))
    }

    /// Passes every matching record (at most the limit) to `visit` until that breaks, in the order
    /// of the query. [`Order::Any`] and [`Order::Key`] are faster for large answers: memory stays
    /// within a share of the budget; if the keys of an answer need more than a query may borrow,
    /// they are sorted in a file in the store's folder. Returns the explanation.
    ///
    /// # Errors
    /// As [`Query::run`]; [`Error::BadInput`] if a record is not a `V`.
    pub fn visit(self, visit: &mut dyn FnMut(V) -> ControlFlow<()>) -> Result<Explain> {
        (self.with_valid_arguments()?).visit(&mut |record| Ok(visit(record::valued(record)?)))
    }

    /// The first record in the order of the query, if there is one.
    ///
    /// # Errors
    /// As [`Query::run`].
    pub fn first(self) -> Result<Option<V>> {
        self.at_most_one().run()?.next().transpose()
    }

    /// True if a record matches; with an offset, if more records match than it skips. Stops at the
    /// first such record, whatever the order of the query.
    ///
    /// # Errors
    /// As [`Query::run`], but for the order, which only a page depends on.
    pub fn exists(mut self) -> Result<bool> {
        // Only a page depends on the order.
        if self.inner.request.after.is_none() {
            self.inner.request.order = Order::Any;
        }
        Ok(self.at_most_one().keys()?.next().transpose()?.is_some())
    }

    /// The query with a limit of one record, or none if its limit is 0.
    fn at_most_one(self) -> Self {
        let limit = self.inner.request.limit.map_or(1, |limit| limit.min(1));
        self.limit(limit)
    }

    /// The number of matching records after the offset (at most the limit).
    ///
    /// # Errors
    /// As [`Query::run`].
    pub fn count(self) -> Result<u64> {
        Ok(self.count_explained()?.0)
    }

    /// The number of matching records after the offset (at most the limit), and how the query
    /// found it.
    ///
    /// # Errors
    /// As [`Query::run`].
    pub fn count_explained(self) -> Result<(u64, Explain)> {
        self.with_valid_arguments()?.count()
    }

    /// How the query would be answered, without running it: all counts in the explanation are 0.
    /// Whether an index gives the first rows of an order is known only after the query was run.
    ///
    /// # Errors
    /// As [`Query::run`].
    pub fn explain(&self) -> Result<Explain> {
        self.request()?;
        Ok(self.inner.clone().run()?.explain())
    }
}

impl<K: PrimaryKey, V: FromRecord<K>> IntoIterator for Query<K, V> {
    type Item = Result<V>;
    type IntoIter = Answer<K, V>;

    /// Runs the query; an invalid query returns its error as the first item.
    fn into_iter(self) -> Answer<K, V> {
        Answer::new(self.with_valid_arguments().and_then(query::ViewQuery::run))
    }
}

/// The source of an iterator's items, or the error that kept it from starting.
enum Started<T> {
    Running(T),
    /// The error is the first item, and the only one.
    Failed(Option<Error>),
}

impl<T> Started<T> {
    fn new(started: Result<T>) -> Started<T> {
        match started {
            Ok(source) => Started::Running(source),
            Err(error) => Started::Failed(Some(error)),
        }
    }

    fn running(&self) -> Option<&T> {
        match self {
            Started::Running(source) => Some(source),
            Started::Failed(_) => None,
        }
    }

    /// The next item: that of the source, or the error.
    fn next<R>(&mut self, next: impl FnOnce(&mut T) -> Option<Result<R>>) -> Option<Result<R>> {
        match self {
            Started::Running(source) => next(source),
            Started::Failed(error) => error.take().map(Err),
        }
    }
}

/// An iterator over matching records, in order.
pub struct Answer<K = Key, V = Record<K>> {
    rows: Started<query::Rows>,
    key: PhantomData<fn() -> (K, V)>,
}

impl<K: PrimaryKey, V: FromRecord<K>> Answer<K, V> {
    fn new(rows: Result<query::Rows>) -> Answer<K, V> {
        Answer {
            rows: Started::new(rows),
            key: PhantomData,
        }
    }

    /// The current position in the answer: pass it to [`Query::after`] to continue from here.
    /// `None` if no page can continue from here, or the query could not start.
    pub fn token(&self) -> Option<PageToken> {
        self.rows.running()?.token()
    }

    /// The plan of the query, its work so far, and the cost. Empty if the query could not start:
    /// the first item is then the error.
    pub fn explain(&self) -> Explain {
        let rows = self.rows.running();
        rows.map_or_else(Explain::default, query::Rows::explain)
    }
}

impl<K: PrimaryKey, V: FromRecord<K>> Iterator for Answer<K, V> {
    type Item = Result<V>;

    fn next(&mut self) -> Option<Result<V>> {
        let record = self.rows.next(|rows| rows.next_record().transpose())?;
        Some(record.and_then(record::valued))
    }
}

/// An iterator over the keys of matching records, in order ([`Query::keys`]).
pub struct Keys<K = Key> {
    inner: query::Rows,
    key: PhantomData<fn() -> K>,
}

impl<K: PrimaryKey> Keys<K> {
    /// The plan of the query, its work so far, and the cost.
    pub fn explain(&self) -> Explain {
        self.inner.explain()
    }

    /// The current position in the answer: pass it to [`Query::after`] to continue from here.
    pub fn token(&self) -> Option<PageToken> {
        self.inner.token()
    }
}

impl<K: PrimaryKey> Iterator for Keys<K> {
    type Item = Result<K>;

    fn next(&mut self) -> Option<Result<K>> {
        let key = self.inner.next_key().transpose()?;
        Some(key.and_then(|key| Ok(K::from_key(key)?)))
    }
}

/// An iterator over records in key order ([`super::Dataset::scan`]).
pub struct Scan<K = Key, V = Record<K>> {
    scan: Started<query::Scan>,
    key: PhantomData<fn() -> (K, V)>,
}

impl<K: PrimaryKey, V: FromRecord<K>> Scan<K, V> {
    pub(crate) fn new(scan: Result<query::Scan>) -> Scan<K, V> {
        Scan {
            scan: Started::new(scan),
            key: PhantomData,
        }
    }

    /// Reverses the order, from the greatest key down. Only before the first record is taken: later
    /// the next item is [`Error::BadInput`], and the last one.
    pub fn rev(self) -> Scan<K, V> {
        let scan = match self.scan {
            Started::Running(scan) => Started::new(scan.rev()),
            failed @ Started::Failed(_) => failed,
        };
        Scan { scan, ..self }
    }

    /// The work of the scan so far, and its cost. Empty if the scan could not start: the first item
    /// is then the error.
    pub fn explain(&self) -> Explain {
        let scan = self.scan.running();
        scan.map_or_else(Explain::default, query::Scan::explain)
    }
}

impl<K: PrimaryKey, V: FromRecord<K>> Iterator for Scan<K, V> {
    type Item = Result<V>;

    fn next(&mut self) -> Option<Result<V>> {
        let record = self.scan.next(query::Scan::next)?;
        Some(record.and_then(record::valued))
    }
}
