//! SUBSCRIBE (the paper's Table 1, Algorithms 1, 3 and 4): stores a subscription, and finds the
//! earlier publications that match it.

use esker::extension::{Batch, Kind, Snapshot};
use esker::{Result, Seq};

use crate::broker::{Broker, Inner, View};
use crate::forms::config::Architecture;
use crate::forms::element::Element;
use crate::forms::message::{Notification, Subscribed, Subscription, bad_input};
use crate::lists::directory::{encode_subscription, subscription_key};
use crate::search::prepared::PreparedSubscription;
use crate::search::publications::Page;

impl Broker {
    /// Stores a subscription, unless it ends in the past, and returns the earlier publications that
    /// match it.
    ///
    /// Costs one write, and in each component (sorted part) of the tree a lookup in the lists that
    /// can contain matching publications.
    ///
    /// # Errors
    /// [`esker::Error::BadInput`] if a place or a path is invalid, if a self-join has no user or
    /// looks back further than users are remembered, or if the broker's architecture is repeated
    /// queries; [`esker::Error::Condition`] if the condition cannot be written as text; also any
    /// write error. A read error is returned in [`Subscribed::unread`], since the subscription is
    /// stored by then.
    pub fn subscribe(&self, subscription: &Subscription) -> Result<Subscribed> {
        let inner = &*self.inner;
        if inner.config.architecture == Architecture::RepQueries {
            return bad_input(
                "this broker stores no subscriptions (its architecture is RepQueries): use repeated queries instead",
            );
        }
        let mut prepared = inner.prepare(subscription)?;
        let WrittenSubscription { id, before } =
            inner.store_subscription(subscription, &mut prepared)?;
        match (inner.past_publications(&before, &prepared), id) {
            (Ok(past), id) => Ok(Subscribed {
                id: id.unwrap_or(Subscribed::NOT_STORED),
                past,
                unread: None,
            }),
            // The caller needs the number of a stored subscription.
            (Err(error), Some(id)) => Ok(Subscribed {
                id,
                past: Vec::new(),
                unread: Some(error),
            }),
            (Err(error), None) => Err(error),
        }
    }

    /// The publications so far that match a subscription, oldest first; the subscription is not
    /// stored.
    ///
    /// # Errors
    /// As [`Broker::subscribe`].
    pub fn query(&self, subscription: &Subscription) -> Result<Vec<Notification>> {
        let inner = &*self.inner;
        let prepared = inner.prepare(subscription)?;
        let view = inner.view(&inner.store.snapshot())?;
        inner.past_publications(&view, &prepared)
    }

    /// As [`Broker::query`], but only publications with numbers greater than `after`, and at most
    /// `most`, the oldest. A reader that continues after the last number of each page receives
    /// each publication once. Every page reads the lists from their newest publication on, so
    /// pages should be large.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use esker_pubsub::{Broker, Config, PubSub, Publication, Subscription, Time};
    ///
    /// let db = PubSub::create_or_open(dir.path(), esker::Options::default())?;
    /// let broker = Broker::create_or_open(&db, Config::new())?;
    /// for lanes in ["1", "2", "3"] {
    ///     broker.publish(&Publication::new("a7".parse()?, lanes))?;
    /// }
    /// let all = Subscription::to("a7".parse()?).from(Time::MIN);
    /// let first = broker.query_after(&all, 0, 2)?;
    /// let second = broker.query_after(&all, first[1].seq, 2)?;
    /// assert_eq!((first.len(), second[0].body.as_slice()), (2, &b"3"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Broker::query`].
    pub fn query_after(
        &self,
        subscription: &Subscription,
        after: Seq,
        most: usize,
    ) -> Result<Vec<Notification>> {
        let inner = &*self.inner;
        let prepared = inner.prepare(subscription)?;
        let view = inner.view(&inner.store.snapshot())?;
        let page = Page {
            after,
            max_len: most,
            ..Page::ALL
        };
        inner.page(&view, &prepared, page)
    }
}

/// A subscription that is in the log, unless it had ended before it was made.
struct WrittenSubscription {
    /// Its number; `None` if it had ended, so that nothing was written.
    id: Option<Seq>,
    /// The state before its batch.
    before: View,
}

impl Inner {
    /// Writes a subscription. Without a time of its own it is made at the time of the write, by
    /// which the store decides which publications are alive; `prepared` gets this time.
    fn store_subscription(
        &self,
        subscription: &Subscription,
        prepared: &mut PreparedSubscription,
    ) -> Result<WrittenSubscription> {
        let lists = self.lists(prepared)?;
        let complete = |batch: &mut Batch, first: Seq, before: &Snapshot| {
            let mut written = WrittenSubscription {
                id: None,
                before: self.view_before(before),
            };
            if subscription.made_at.is_none() {
                prepared.made_at = self.now();
                prepared.from = self.resolve_start(subscription.from, prepared.made_at);
                prepared.to = self.resolve_end(subscription.end, prepared.made_at);
            }
            let until = self.remembered_until(prepared.to, &prepared.user);
            if until < prepared.made_at {
                return Ok((written, Vec::new()));
            }
            written.id = Some(first);
            let drop_time = self.drop_time(until);
            let form = prepared.first_form(first);
            let entry = encode_subscription(&prepared.topics, &form, &[]);
            let mut operand = Vec::new();
            Element::Subscription(form).encode(first, drop_time, &mut operand);
            for key in &lists.keys {
                let tree = self.trees.subscriptions;
                batch.also_until(Kind::Operand, tree, key, &operand, drop_time)?;
            }
            let directory = self.trees.directory;
            batch.also_until(
                Kind::Put,
                directory,
                &subscription_key(first),
                &entry,
                drop_time,
            )?;
            Ok((written, self.write_shapes(batch, &lists.shapes, until)?))
        };
        let (_, (written, shapes)) =
            (self.store).write_with(&mut Batch::new(), self.durability, complete)?;
        self.shapes.confirm(shapes);
        Ok(written)
    }
}
