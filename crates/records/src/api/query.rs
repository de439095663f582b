//! Queries and their answers, with typed keys. [`crate::query`] implements them.

use std::marker::PhantomData;
use std::ops::ControlFlow;

use esker_lsm::LookupOptions;
use esker_model::condition::Expr;
use esker_model::query::{Request, Validation};
use esker_model::{FromRecord, Key, PrimaryKey};

use crate::error::{Error, Result};
use crate::query::{self, BulkOrder, Explain, Order, PageToken};
use crate::record;
use esker_model::Record;

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
    pub(super) inner: query::Query,
    key: PhantomData<fn() -> (K, V)>,
}

impl<K: PrimaryKey, V: FromRecord<K>> Query<K, V> {
    pub(crate) fn new(inner: query::Query) -> Query<K, V> {
        let key = PhantomData;
        Query { inner, key }
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
    /// let text = serde_json::to_string(events.find(field("n").gt(3)).limit(10).request())?;
    /// assert_eq!(text, r#"{"condition":"n > int(3)","order":"newest","limit":10}"#);
    /// assert_eq!(events.request(serde_json::from_str(&text)?).count()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn request(&self) -> &Request {
        &self.inner.request
    }

    /// Adds a condition; all conditions must hold.
    pub fn filter(mut self, condition: Expr) -> Query<K, V> {
        self.inner.request.filter(condition);
        self
    }

    /// Returns at most this many records, the first in the order. Without a limit, all.
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

    /// Runs the query and returns only the keys of the matching records. Reads no record if the
    /// maintenance strategy and the conditions allow it.
    pub fn keys(self) -> Result<Keys<K>> {
        let (inner, key) = (self.inner.keys()?, PhantomData);
        Ok(Keys { inner, key })
    }

    /// Runs the query. The iterator finds the records a page at a time, in bounded memory.
    pub fn run(mut self) -> Result<Answer<K, V>> {
        self.inner.request.keys_only = false;
        let inner = Some(self.inner.run()?);
        Ok(Answer::new(inner, None))
    }

    /// Passes every matching record (at most the limit) to `visit` until that breaks, in `order`
    /// instead of newest first: faster for large answers. Memory stays within a share of the
    /// budget; if the keys of an answer need more than a query may borrow, they are sorted in a
    /// file in the store's folder. Returns the explanation.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the query continues after a page ([`Query::after`]); also any read
    /// error.
    pub fn visit(
        self,
        order: BulkOrder,
        visit: &mut dyn FnMut(V) -> ControlFlow<()>,
    ) -> Result<Explain> {
        let mut failed = None;
        let explain = self
            .inner
            .visit(order, &mut |record| match record::valued(record) {
                Ok(record) => visit(record),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            })?;
        failed.map_or(Ok(explain), Err)
    }

    /// The first record in the order of the query, if there is one.
    ///
    /// # Errors
    /// As [`Query::run`].
    pub fn first(self) -> Result<Option<V>> {
        self.at_most_one().run()?.next().transpose()
    }

    /// True if a record matches. Stops at the first match.
    ///
    /// # Errors
    /// As [`Query::run`].
    pub fn exists(self) -> Result<bool> {
        Ok(self.at_most_one().keys()?.next().transpose()?.is_some())
    }

    fn at_most_one(self) -> Self {
        let limit = self.inner.request.limit.map_or(1, |limit| limit.min(1));
        self.limit(limit)
    }

    /// The number of matching records (at most the limit).
    pub fn count(self) -> Result<u64> {
        Ok(self.count_explained()?.0)
    }

    /// The number of matching records (at most the limit), and how the query found it.
    pub fn count_explained(self) -> Result<(u64, Explain)> {
        self.inner.count()
    }

    /// How the query would be answered, without running it: all counts in the explanation are 0.
    pub fn explain(&self) -> Result<Explain> {
        Ok(self.inner.clone().run()?.explain())
    }
}

impl<K: PrimaryKey, V: FromRecord<K>> IntoIterator for Query<K, V> {
    type Item = Result<V>;
    type IntoIter = Answer<K, V>;

    /// Runs the query; an invalid query returns its error as the first item.
    fn into_iter(self) -> Answer<K, V> {
        self.run()
            .unwrap_or_else(|error| Answer::new(None, Some(error)))
    }
}

/// An iterator over matching records, in order.
pub struct Answer<K = Key, V = Record<K>> {
    /// `None` if the query cannot run.
    inner: Option<query::Answer>,
    failed: Option<Error>,
    key: PhantomData<fn() -> (K, V)>,
}

impl<K: PrimaryKey, V: FromRecord<K>> Answer<K, V> {
    fn new(inner: Option<query::Answer>, failed: Option<Error>) -> Answer<K, V> {
        let key = PhantomData;
        Answer { inner, failed, key }
    }

    /// The current position in the answer: pass it to [`Query::after`] to continue from here.
    pub fn token(&self) -> Option<PageToken> {
        self.inner.as_ref()?.token()
    }

    /// The plan of the query, its work so far, and the cost.
    pub fn explain(&self) -> Explain {
        let inner = self.inner.as_ref();
        inner.map_or_else(Explain::default, query::Answer::explain)
    }
}

impl<K: PrimaryKey, V: FromRecord<K>> Iterator for Answer<K, V> {
    type Item = Result<V>;

    fn next(&mut self) -> Option<Result<V>> {
        if self.failed.is_some() {
            return self.failed.take().map(Err);
        }
        let next = self.inner.as_mut()?.next()?;
        Some(next.and_then(record::valued))
    }
}

/// An iterator over the keys of matching records, in order ([`Query::keys`]).
pub struct Keys<K = Key> {
    inner: query::Keys,
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
        let next = self.inner.next()?;
        Some(next.and_then(|key| Ok(K::from_key(key)?)))
    }
}

/// An iterator over records in key order ([`super::Dataset::scan`]).
pub struct Scan<K = Key, V = Record<K>> {
    /// `None` if the scan could not start.
    inner: Option<query::Scan>,
    failed: Option<Error>,
    key: PhantomData<fn() -> (K, V)>,
}

impl<K: PrimaryKey, V: FromRecord<K>> Scan<K, V> {
    pub(crate) fn new(scan: Result<query::Scan>) -> Scan<K, V> {
        let (inner, failed) = match scan {
            Ok(scan) => (Some(scan), None),
            Err(error) => (None, Some(error)),
        };
        let key = PhantomData;
        Scan { inner, failed, key }
    }

    /// Reverses the order, from the greatest key down; call it before the iteration starts.
    pub fn rev(self) -> Scan<K, V> {
        let inner = self.inner.map(query::Scan::rev);
        Scan { inner, ..self }
    }

    /// The work of the scan so far, and its cost.
    pub fn explain(&self) -> Explain {
        let inner = self.inner.as_ref();
        inner.map_or_else(Explain::default, query::Scan::explain)
    }
}

impl<K: PrimaryKey, V: FromRecord<K>> Iterator for Scan<K, V> {
    type Item = Result<V>;

    fn next(&mut self) -> Option<Result<V>> {
        if self.failed.is_some() {
            return self.failed.take().map(Err);
        }
        let next = self.inner.as_mut()?.next()?;
        Some(next.and_then(record::valued))
    }
}
