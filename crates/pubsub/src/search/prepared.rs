//! Subscriptions that are checked and ready to be searched for or stored: times are resolved, cells
//! and anchors are computed.

use esker::{Error, Result, Seq};

use crate::broker::Inner;
use crate::forms::anchor::{Anchor, anchors};
use crate::forms::cell::Cell;
use crate::forms::element::{StoredChange, StoredSubscription, Time, damaged};
use crate::forms::keys;
use crate::forms::message::{OnChange, Subscription, bad_input};
use crate::forms::place::Place;
use crate::forms::topic::TopicFilter;
use crate::lists::shape::{Shape, SubscriptionShape};
use crate::matching::SubscriptionParts;

/// A checked subscription with resolved times, stored or not. The fields mean the same as those of
/// [`StoredSubscription`].
#[derive(Clone)]
pub(crate) struct PreparedSubscription {
    pub(crate) topics: TopicFilter,
    pub(crate) place: Place,
    /// The cells that hold its place.
    pub(crate) cells: Vec<Cell>,
    pub(crate) begins: Seq,
    pub(crate) ended: Option<Seq>,
    pub(crate) made_at: Time,
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) user: Vec<u8>,
    pub(crate) tag: Vec<u8>,
    pub(crate) condition: Option<String>,
    pub(crate) is_self_join: bool,
    pub(crate) is_filed: bool,
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
    /// The first form of a new subscription with this number.
    pub(crate) fn first_form(&self, id: Seq) -> StoredSubscription<'_> {
        debug_assert!(
            self.begins == 0 && self.ended.is_none(),
            "a new subscription has no bounds"
        );
        StoredSubscription {
            form: id,
            id,
            begins: self.begins,
            ended: self.ended,
            made_at: self.made_at,
            from: self.from,
            to: self.to,
            is_self_join: self.is_self_join,
            is_filed: self.is_filed,
            user: &self.user,
            tag: &self.tag,
            place: self.place.clone(),
            condition: self.condition.as_deref(),
            change: self.change.clone(),
        }
    }

    /// The parts that decide a match.
    pub(crate) fn parts(&self) -> SubscriptionParts<'_> {
        SubscriptionParts {
            from: self.from,
            to: self.to,
            place: &self.place,
            condition: self.condition.as_deref(),
        }
    }
}

impl StoredSubscription<'_> {
    /// The parts that decide a match.
    pub(crate) fn parts(&self) -> SubscriptionParts<'_> {
        SubscriptionParts {
            from: self.from,
            to: self.to,
            place: &self.place,
            condition: self.condition,
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
        let made_at = subscription.made_at.unwrap_or_else(|| self.now());
        let from = self.resolve_start(subscription.from, made_at);
        let to = self.resolve_end(subscription.end, made_at);
        if subscription.is_self_join {
            self.check_self_join(subscription, made_at, from)?;
        }
        if let Some(expr) = &subscription.condition {
            expr.check().map_err(Error::BadInput)?;
        }
        let condition = subscription.condition.as_ref().map(ToString::to_string);
        let anchors = self.anchors(condition.as_deref())?;
        let may_file = |anchor: &Anchor| self.shapes.may_file_under(&anchor.shape.path);
        let extent = self.match_cache.extent(&subscription.place)?;
        Ok(PreparedSubscription {
            is_filed: !anchors.is_empty() && anchors.iter().all(may_file),
            topics: subscription.topics.clone(),
            place: subscription.place.clone(),
            cells: self.cells(&extent),
            begins: 0,
            ended: None,
            made_at,
            from,
            to,
            user: subscription.user.clone(),
            tag: subscription.tag.clone(),
            condition,
            is_self_join: subscription.is_self_join,
            change: subscription.change.as_ref().map(stored_change),
        })
    }

    /// Checks that a self-join has a user, and looks back no further than users are remembered.
    fn check_self_join(
        &self,
        subscription: &Subscription,
        made_at: Time,
        from: Time,
    ) -> Result<()> {
        if subscription.user.is_empty() {
            return bad_input(
                "a self-join excludes publications that its user received before: give the subscription a user",
            );
        }
        let earliest = self
            .config
            .remember
            .map(|remember| made_at.saturating_sub(self.to_units(remember)));
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
            begins: form.begins,
            ended: form.ended,
            made_at: form.made_at,
            from: form.from,
            to: form.to,
            user: form.user.to_vec(),
            tag: form.tag.to_vec(),
            condition: form.condition.map(str::to_owned),
            is_self_join: form.is_self_join,
            is_filed: form.is_filed,
            change: form.change.clone(),
        })
    }

    /// The anchors of a condition, given as text; none if there is no condition.
    fn anchors(&self, condition: Option<&str>) -> Result<Vec<Anchor>> {
        match condition {
            Some(condition) => Ok(anchors(&*self.match_cache.filter(condition)?)),
            None => Ok(Vec::new()),
        }
    }

    /// The lists of a subscription, at least one.
    ///
    /// # Errors
    /// [`Error::Condition`] if its condition is malformed; [`Error::Damaged`] if it is filed though
    /// its condition has no anchor.
    pub(crate) fn lists(&self, prepared: &PreparedSubscription) -> Result<SubscriptionLists> {
        let anchors: Vec<Option<Anchor>> = if prepared.is_filed {
            let anchors = self.anchors(prepared.condition.as_deref())?;
            anchors.into_iter().map(Some).collect()
        } else {
            vec![None]
        };
        if anchors.is_empty() {
            return Err(damaged(
                "a subscription is filed under no value of its condition",
            ));
        }
        let PreparedSubscription { topics, cells, .. } = prepared;
        let mut lists = SubscriptionLists {
            keys: Vec::new(),
            shapes: Vec::new(),
        };
        for cell in cells {
            for anchor in &anchors {
                let (pattern, reach) = (topics.pattern(), topics.reach());
                let key = keys::subscriptions(pattern, cell, reach, anchor.as_ref());
                lists.keys.push(key);
                lists.shapes.push(Shape::Subscriptions(SubscriptionShape {
                    reach,
                    pattern_levels: topics.levels(),
                    cell_level: cell.level(),
                    anchor: anchor.as_ref().map(|anchor| anchor.shape.clone()),
                    changes: prepared.change.is_some(),
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
    StoredChange {
        path: change.path.to_string().into(),
        threshold: change.threshold,
    }
}

#[cfg(test)]
#[path = "prepared_tests.rs"]
mod tests;
