//! SUBSCRIBE (the paper's Table 1, Algorithms 1, 3 and 4): stores a subscription, and finds the
//! earlier publications that match it.

use esker::extension::{Batch, Kind, Snapshot};
use esker::{Error, Result, Seq};

use crate::anchor::{Anchor, anchors};
use crate::broker::{Broker, Inner, View, directory_entry, id_key};
use crate::cell::Cell;
use crate::config::Architecture;
use crate::element::{Element, StoredChange, StoredSubscription, Time};
use crate::keys;
use crate::message::{Notification, Subscribed, Subscription, Threshold, bad_input};
use crate::place::Place;
use crate::shape::Shape;
use crate::topic::TopicFilter;

/// A checked subscription with resolved times.
#[derive(Clone)]
pub(crate) struct Ready {
    pub(crate) topics: TopicFilter,
    pub(crate) place: Place,
    pub(crate) cells: Vec<Cell>,
    /// As in [`StoredSubscription`]; 0 if it has none yet.
    pub(crate) id: Seq,
    pub(crate) begins: Seq,
    pub(crate) ended: Seq,
    pub(crate) made: Time,
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) user: Vec<u8>,
    pub(crate) tag: Vec<u8>,
    pub(crate) condition: String,
    pub(crate) joins: bool,
    pub(crate) filed: bool,
    pub(crate) change: Option<StoredChange>,
}

impl Ready {
    pub(crate) fn stored(&self, id: Seq) -> StoredSubscription<'_> {
        StoredSubscription {
            form: id,
            id,
            begins: self.begins,
            ended: 0,
            made: self.made,
            from: self.from,
            to: self.to,
            joins: self.joins,
            filed: self.filed,
            user: &self.user,
            tag: &self.tag,
            place: self.place.clone(),
            condition: &self.condition,
            change: self.change.clone(),
        }
    }
}

impl Broker {
    /// Stores a subscription, unless it ends in the past, and returns the earlier publications that
    /// match it.
    ///
    /// Costs one write, and in each component (sorted part) of the tree a lookup in the lists that
    /// can contain matching publications.
    ///
    /// # Errors
    /// [`Error::BadInput`] if a place or a path is invalid, if a self-join has no user or looks
    /// back further than users are remembered, or if the broker's architecture is repeated queries;
    /// [`Error::Condition`] if the condition cannot be written as text; also any write error. A
    /// read error is returned in [`Subscribed::unread`], since the subscription is stored by then.
    pub fn subscribe(&self, subscription: &Subscription) -> Result<Subscribed> {
        let inner = &*self.inner;
        if inner.config.architecture == Architecture::RepQueries {
            return bad_input(
                "this broker stores no subscriptions (its architecture is RepQueries): use repeated queries instead",
            );
        }
        let mut ready = inner.ready(subscription)?;
        let (id, before) = inner.store_subscription(subscription, &mut ready)?;
        let past = inner.past(&before, &ready, id);
        let is_stored = inner.remembered(ready.to, &ready.user) >= ready.made;
        let (past, unread) = match past {
            Ok(past) => (past, None),
            // The caller needs the number of a stored subscription.
            Err(error) if is_stored => (Vec::new(), Some(error)),
            Err(error) => return Err(error),
        };
        let id = if is_stored { id } else { 0 };
        Ok(Subscribed { id, past, unread })
    }

    /// The publications so far that match a subscription, oldest first; the subscription is not
    /// stored.
    ///
    /// # Errors
    /// As [`Broker::subscribe`].
    pub fn query(&self, subscription: &Subscription) -> Result<Vec<Notification>> {
        let inner = &*self.inner;
        let ready = inner.ready(subscription)?;
        let view = inner.view(&inner.store.snapshot())?;
        inner.past(&view, &ready, Seq::MAX)
    }
}

impl Inner {
    pub(crate) fn ready(&self, subscription: &Subscription) -> Result<Ready> {
        let made = subscription.made.unwrap_or_else(|| self.now());
        let (from, to) = (
            self.start(subscription.from, made),
            self.end(subscription.end, made),
        );
        if subscription.joins {
            if subscription.user.is_empty() {
                return bad_input(
                    "a self-join excludes publications that its user received before: give the subscription a user",
                );
            }
            let least = self
                .config
                .remember
                .map(|remember| made.saturating_sub(self.units(remember)));
            if least.is_some_and(|least| from < least) {
                return bad_input(
                    "a self-join looks back no further than the broker remembers users: create the broker \
                     with a longer `Config::remember`",
                );
            }
        }
        let condition = match &subscription.condition {
            Some(expr) => {
                expr.check().map_err(Error::BadInput)?;
                let text = expr.to_string();
                self.compiled.filter(&text)?;
                text
            }
            None => String::new(),
        };
        let change = subscription.change.as_ref().map(|change| {
            let (is_relative, threshold) = match change.threshold {
                Threshold::Absolute(by) => (false, by),
                Threshold::Percent(by) => (true, by),
            };
            StoredChange {
                path: change.path.to_string().into(),
                is_relative,
                threshold,
            }
        });
        let extent = self.compiled.extent(&subscription.place)?;
        let anchors = self.anchors(&condition)?;
        let takes = |anchor: &Anchor| self.shapes.takes(&anchor.shape.path);
        Ok(Ready {
            filed: !anchors.is_empty() && anchors.iter().all(takes),
            topics: subscription.topics.clone(),
            place: subscription.place.clone(),
            cells: self.cells(&extent),
            id: 0,
            begins: 0,
            ended: 0,
            made,
            from,
            to,
            user: subscription.user.clone(),
            tag: subscription.tag.clone(),
            condition,
            joins: subscription.joins,
            change,
        })
    }

    /// From a stored form.
    pub(crate) fn ready_from(
        &self,
        topics: &TopicFilter,
        form: &StoredSubscription<'_>,
    ) -> Result<Ready> {
        Ok(Ready {
            topics: topics.clone(),
            place: form.place.clone(),
            cells: self.cells(&*self.compiled.extent(&form.place)?),
            id: form.id,
            begins: form.begins,
            ended: form.ended,
            made: form.made,
            from: form.from,
            to: form.to,
            user: form.user.to_vec(),
            tag: form.tag.to_vec(),
            condition: form.condition.to_owned(),
            joins: form.joins,
            filed: form.filed,
            change: form.change.clone(),
        })
    }

    /// The anchors of a condition.
    fn anchors(&self, condition: &str) -> Result<Vec<Anchor>> {
        match condition {
            "" => Ok(Vec::new()),
            condition => Ok(anchors(&*self.compiled.filter(condition)?)),
        }
    }

    /// The keys of a subscription's lists, and their shapes.
    pub(crate) fn lists(
        &self,
        topics: &TopicFilter,
        cells: &[Cell],
        form: &StoredSubscription<'_>,
    ) -> Result<(Vec<Vec<u8>>, Vec<Shape>)> {
        let anchors = if form.filed {
            self.anchors(form.condition)?
        } else {
            Vec::new()
        };
        let anchors: Vec<Option<&Anchor>> = if form.filed {
            anchors.iter().map(Some).collect()
        } else {
            vec![None]
        };
        let changes = form.change.is_some();
        let (reach, (levels, wild)) = (topics.reach(), topics.shape());
        let (mut lists, mut shapes) = (Vec::new(), Vec::new());
        for cell in cells {
            for anchor in &anchors {
                lists.push(keys::subscriptions(topics.pattern(), cell, reach, *anchor));
                shapes.push(Shape::Subscriptions {
                    reach,
                    levels,
                    wild,
                    cell: cell.level(),
                    anchor: anchor.map(|anchor| anchor.shape.clone()),
                    changes,
                });
            }
        }
        shapes.sort_unstable();
        shapes.dedup();
        Ok((lists, shapes))
    }

    /// Writes a subscription. Returns its number, and the state before its batch. Without a time of
    /// its own it is made at the time of the write, by which the store decides which publications
    /// are alive.
    fn store_subscription(
        &self,
        subscription: &Subscription,
        ready: &mut Ready,
    ) -> Result<(Seq, View)> {
        let (lists, shapes) = self.lists(&ready.topics, &ready.cells, &ready.stored(0))?;
        let complete = |batch: &mut Batch, first: Seq, before: &Snapshot| {
            let stored = (first, self.view_before(before));
            if subscription.made.is_none() {
                ready.made = self.now();
                ready.from = self.start(subscription.from, ready.made);
                ready.to = self.end(subscription.end, ready.made);
            }
            let until = self.remembered(ready.to, &ready.user);
            if until < ready.made {
                return Ok((stored, Vec::new()));
            }
            let useless = self.useless_at(until);
            let subscription = ready.stored(first);
            let entry = directory_entry(&ready.topics, &subscription, &[]);
            let mut operand = Vec::new();
            Element::Subscription(subscription).encode(first, useless, &mut operand);
            for key in &lists {
                let tree = self.trees.subscriptions;
                batch.also_until(Kind::Operand, tree, key, &operand, useless)?;
            }
            let directory = self.trees.directory;
            batch.also_until(Kind::Put, directory, &id_key(first), &entry, useless)?;
            Ok((stored, self.write_shapes(batch, &shapes, until)?))
        };
        let (_, (stored, written)) =
            (self.store).write_with(&mut Batch::new(), self.durability, complete)?;
        self.shapes.confirm(written);
        Ok(stored)
    }
}
