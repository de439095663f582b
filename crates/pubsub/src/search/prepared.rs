//! Subscriptions that are checked and ready to be searched for or stored: times are resolved, cells
//! and anchors are computed.

use esker::{Error, Result, Seq};

use crate::broker::Inner;
use crate::forms::anchor::{Anchor, anchors};
use crate::forms::cell::Cell;
use crate::forms::element::{StoredChange, StoredSubscription, Time};
use crate::forms::keys;
use crate::forms::message::{OnChange, Subscription, Threshold, bad_input};
use crate::forms::place::Place;
use crate::forms::topic::TopicFilter;
use crate::lists::shape::{Shape, SubscriptionShape};

/// A checked subscription with resolved times. The fields mean the same as those of
/// [`StoredSubscription`].
#[derive(Clone)]
pub(crate) struct PreparedSubscription {
    pub(crate) topics: TopicFilter,
    pub(crate) place: Place,
    /// The cells that hold its place.
    pub(crate) cells: Vec<Cell>,
    /// 0 if it is not stored yet.
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

/// The lists of a subscription.
pub(crate) struct SubscriptionLists {
    /// Their keys: one for each cell and anchor.
    pub(crate) keys: Vec<Vec<u8>>,
    /// Their shapes, sorted, each once.
    pub(crate) shapes: Vec<Shape>,
}

impl PreparedSubscription {
    /// The subscription as its first form stores it, with this number.
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

impl Inner {
    /// Checks a subscription, and resolves its times by the clock.
    ///
    /// # Errors
    /// [`Error::BadInput`] if a place or a path is invalid, or if a self-join has no user or looks
    /// back further than users are remembered; [`Error::Condition`] if the condition cannot be
    /// written as text.
    pub(crate) fn prepare(&self, subscription: &Subscription) -> Result<PreparedSubscription> {
        let made = subscription.made.unwrap_or_else(|| self.now());
        let from = self.resolve_start(subscription.from, made);
        let to = self.resolve_end(subscription.end, made);
        if subscription.joins {
            self.check_self_join(subscription, made, from)?;
        }
        let condition = match &subscription.condition {
            Some(expr) => {
                expr.check().map_err(Error::BadInput)?;
                let text = expr.to_string();
                self.match_cache.filter(&text)?;
                text
            }
            None => String::new(),
        };
        let extent = self.match_cache.extent(&subscription.place)?;
        let anchors = self.anchors(&condition)?;
        let may_file = |anchor: &Anchor| self.shapes.may_file_under(&anchor.shape.path);
        Ok(PreparedSubscription {
            filed: !anchors.is_empty() && anchors.iter().all(may_file),
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
            change: subscription.change.as_ref().map(stored_change),
        })
    }

    /// Checks that a self-join has a user, and looks back no further than users are remembered.
    fn check_self_join(&self, subscription: &Subscription, made: Time, from: Time) -> Result<()> {
        if subscription.user.is_empty() {
            return bad_input(
                "a self-join excludes publications that its user received before: give the subscription a user",
            );
        }
        let earliest = self
            .config
            .remember
            .map(|remember| made.saturating_sub(self.to_units(remember)));
        if earliest.is_some_and(|earliest| from < earliest) {
            return bad_input(
                "a self-join looks back no further than the broker remembers users: create the broker \
                 with a longer `Config::remember`",
            );
        }
        Ok(())
    }

    /// Prepares a stored form.
    ///
    /// # Errors
    /// [`Error::BadInput`] if its place is malformed.
    pub(crate) fn prepare_form(
        &self,
        topics: &TopicFilter,
        form: &StoredSubscription<'_>,
    ) -> Result<PreparedSubscription> {
        Ok(PreparedSubscription {
            topics: topics.clone(),
            place: form.place.clone(),
            cells: self.cells(&*self.match_cache.extent(&form.place)?),
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

    /// The anchors of a condition, given as text; none if it is empty.
    fn anchors(&self, condition: &str) -> Result<Vec<Anchor>> {
        match condition {
            "" => Ok(Vec::new()),
            condition => Ok(anchors(&*self.match_cache.filter(condition)?)),
        }
    }

    /// The lists of a form of a subscription, in these cells.
    ///
    /// # Errors
    /// [`Error::Condition`] if the condition of the form is malformed.
    pub(crate) fn lists(
        &self,
        topics: &TopicFilter,
        cells: &[Cell],
        form: &StoredSubscription<'_>,
    ) -> Result<SubscriptionLists> {
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
        let (reach, levels) = (topics.reach(), topics.levels());
        let mut lists = SubscriptionLists {
            keys: Vec::new(),
            shapes: Vec::new(),
        };
        for cell in cells {
            for anchor in &anchors {
                let key = keys::subscriptions(topics.pattern(), cell, reach, *anchor);
                lists.keys.push(key);
                lists.shapes.push(Shape::Subscriptions(SubscriptionShape {
                    reach,
                    levels: levels.count,
                    wild: levels.wild,
                    cell: cell.level(),
                    anchor: anchor.map(|anchor| anchor.shape.clone()),
                    changes: form.change.is_some(),
                }));
            }
        }
        lists.shapes.sort_unstable();
        lists.shapes.dedup();
        Ok(lists)
    }
}

/// The stored form of a change of a number.
fn stored_change(change: &OnChange) -> StoredChange {
    let (is_relative, threshold) = match change.threshold {
        Threshold::Absolute(by) => (false, by),
        Threshold::Percent(by) => (true, by),
    };
    StoredChange {
        path: change.path.to_string().into(),
        is_relative,
        threshold,
    }
}
