//! SUBSCRIBE (the paper's Table 1, Algorithms 1, 3 and 4): stores a subscription, and finds the
//! earlier publications that match it. Also ends, renews and moves stored subscriptions.
//!
//! A change replaces the newest *form* of a subscription. Changes of one subscription enter the log
//! one after the other, each based on the latest state in the log, visible or not. Each is
//! acknowledged after the one before it, or fails with it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use esker::extension::{Batch, EngineError, Kind, Snapshot, Ticket};
use esker::{Error, Result, Seq};

use crate::anchor::{Anchor, anchors};
use crate::broker::{Broker, Inner, View, directory_entry, id_key, read_entry};
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

    /// Ends a subscription. Returns false if no subscription has this number, or it had ended.
    ///
    /// # Errors
    /// Any read or write error.
    pub fn unsubscribe(&self, id: Seq) -> Result<bool> {
        Ok(self.inner.change(id, Change::End)?.is_some())
    }

    /// Moves the end of a subscription to `until` (included), or to now if that is later. Returns
    /// the earlier publications that match only because of the new end: if the subscription had
    /// ended, those that it missed. It receives no publication twice, however often its end is
    /// moved. Returns `None` if the subscription does not exist any more.
    ///
    /// # Errors
    /// Any read or write error; the end is unchanged then, and the next call returns everything.
    pub fn renew(&self, id: Seq, until: Time) -> Result<Option<Vec<Notification>>> {
        self.inner.change(id, Change::Until(until))
    }

    /// Moves a subscription to another place: it receives publications there from this call on, and
    /// no earlier ones. Returns false if the subscription does not exist any more.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the place is invalid; also any read or write error.
    pub fn move_to(&self, id: Seq, place: Place) -> Result<bool> {
        let inner = &*self.inner;
        inner.compiled.shape(&place)?;
        Ok(inner.change(id, Change::To(place))?.is_some())
    }
}

/// The number of forms of a subscription, including the newest, that the directory keeps for
/// consumers that were away.
const FORMS: usize = 16;

/// Reduces the older forms of a subscription (newest first) to fewer than [`FORMS`]. First merges a
/// form with the next later one if that has the same place and ends no earlier: publications
/// between their ends count as received. Then drops the oldest form, except forms that met
/// publications which no later form has met: a renewal must not return these again.
fn forget(older: &mut Vec<StoredSubscription<'_>>, newest: &StoredSubscription<'_>) {
    while older.len() >= FORMS {
        let is_within = |pair: &[StoredSubscription<'_>]| match pair {
            [later, form] => later.begins == form.begins && later.to >= form.to,
            _ => false,
        };
        if let Some(at) = older.windows(2).rposition(is_within) {
            let form = older.remove(at + 1);
            if let Some(later) = older.get_mut(at) {
                later.form = form.form;
            }
            continue;
        }
        let mut met = newest.to;
        let is_needed = |form: &StoredSubscription<'_>| {
            let needed = form.ended > newest.begins && form.to > met;
            met = met.max(form.to);
            needed
        };
        let needed: Vec<bool> = older.iter().map(is_needed).collect();
        match needed.iter().rposition(|needed| !needed) {
            Some(at) => older.remove(at),
            None => return,
        };
    }
}

/// A change that is in the log, but not yet acknowledged.
struct Appended {
    ticket: Ticket,
    /// The publications that a renewal returns.
    missed: Vec<Notification>,
    /// Shapes to confirm.
    written: Vec<(Shape, Time)>,
}

/// A change of a stored subscription.
enum Change {
    End,
    Until(Time),
    To(Place),
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
        let shape = self.compiled.shape(&subscription.place)?;
        let anchors = self.anchors(&condition)?;
        let takes = |anchor: &Anchor| self.shapes.takes(&anchor.shape.path);
        Ok(Ready {
            filed: !anchors.is_empty() && anchors.iter().all(takes),
            topics: subscription.topics.clone(),
            place: subscription.place.clone(),
            cells: self.cells(&shape),
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
            cells: self.cells(&*self.compiled.shape(&form.place)?),
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
    fn lists(
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

    /// The publications that a renewal returns: those with a number greater than `after` that none
    /// of the forms so far has met.
    fn missed(
        &self,
        view: &View,
        renewed: &Ready,
        forms: &[StoredSubscription<'_>],
        after: Seq,
    ) -> Result<Vec<Notification>> {
        let mut late = renewed.clone();
        // The newest form has met everything up to its end; older forms may have met later times.
        let met = forms
            .first()
            .map_or(late.from, |last| last.to.saturating_add(1));
        late.from = late.from.max(met);
        let mut found = self.past_behind(view, &late, Seq::MAX, after)?;
        found.retain(|found| !forms.iter().any(|form| form.has_met(found.seq, found.time)));
        Ok(found)
    }

    /// Changes a subscription. Returns the publications that it missed if it is renewed; `None` if
    /// no live subscription has this number.
    fn change(&self, id: Seq, change: Change) -> Result<Option<Vec<Notification>>> {
        // The turn ends when the change is in the log. The next change is based on that, and both
        // share a sync; so no change is acknowledged if one before it fails.
        let turn = self.changes.turn(id);
        let latest = self.store.latest();
        let appended = self.append_change(&latest, id, change)?;
        drop(turn);
        let Some(appended) = appended else {
            // The end that `None` reports must be acknowledged first.
            if self.store.snapshot().seq() < latest.seq() {
                self.everything_written()?;
            }
            return Ok(None);
        };
        self.store.acknowledge(appended.ticket)?;
        self.shapes.confirm(appended.written);
        Ok(Some(appended.missed))
    }

    /// The first half of a change: appends it to the log, and passes the new state to the queues of
    /// consumers. `snapshot` has everything in the log; the caller's turn keeps other changes of
    /// the subscription from coming in between.
    fn append_change(
        &self,
        snapshot: &Snapshot,
        id: Seq,
        change: Change,
    ) -> Result<Option<Appended>> {
        let Some(entry) = self.lookup(snapshot, id)? else {
            return Ok(None);
        };
        let (topics, forms) = read_entry(&entry)?;
        let now = self.now();
        let Some((old, older)) = forms.split_first() else {
            return Ok(None);
        };
        let until = self.remembered(old.to, old.user);
        if until < now {
            self.note_ended(snapshot, until.saturating_add(1));
        }
        if until < now || old.ended != 0 {
            return Ok(None);
        }
        let cells_of = |place: &Place| Ok::<_, Error>(self.cells(&*self.compiled.shape(place)?));
        let mut new = old.copy();
        match change {
            Change::End => {}
            // Not before now: publications that it received must not be missed later.
            Change::Until(time) => new.to = now.max(time),
            Change::To(ref place) => new.place = place.clone(),
        }
        let (moves, renews, ends) = match change {
            Change::To(_) => (true, false, false),
            Change::Until(_) => (false, true, false),
            Change::End => (false, false, true),
        };
        let (old_lists, _) = self.lists(&topics, &cells_of(&old.place)?, old)?;
        let cells = cells_of(&new.place)?;
        let (new_lists, shapes) = self.lists(&topics, &cells, &new)?;
        // Self-joins need the ended forms of a user.
        let is_remembered = !old.user.is_empty();
        let new_until = self.remembered(new.to, new.user);
        let (useless, new_useless) = (self.useless_at(until), self.useless_at(new_until));
        // Reads come before the write: if they fail, the subscription is unchanged.
        let mut renewed = self.ready_from(&topics, &new)?;
        renewed.made = now;
        let mut missed = if renews {
            self.missed(&self.view(snapshot)?, &renewed, &forms, 0)?
        } else {
            Vec::new()
        };
        let mut failed = None;
        let (mut made, mut written) = (None, Vec::new());
        let mut complete = |batch: &mut Batch, first: Seq, before: &Snapshot| {
            if renews {
                // The few publications since the snapshot, mostly in memory.
                let view = self.view_before(before);
                match self.missed(&view, &renewed, &forms, snapshot.seq()) {
                    Ok(new) => missed.extend(new),
                    Err(error) => {
                        failed = Some(error);
                        return Err(EngineError::Invalid(
                            "the publications for a renewed subscription cannot be read".to_owned(),
                        ));
                    }
                }
            }
            let (tree, directory) = (self.trees.subscriptions, self.trees.directory);
            let mut ended = old.copy();
            ended.ended = first;
            let mut new = new.copy();
            // A renewal may change which stored publications match, if one may have a time behind
            // the earlier of the two ends.
            let differs = self.latest.load(Ordering::Acquire) > old.to.min(new.to);
            let is_new = moves || renews && differs;
            if is_new {
                (new.form, new.made) = (first, now);
            }
            if moves {
                new.begins = first;
            }
            // An operand for each list, newest first: the new form, the old one with its end, and
            // the tombstone of the old one, which lives as long as that.
            let mut operands: BTreeMap<&[u8], (Vec<u8>, u64)> = BTreeMap::new();
            let mut add = |key, element: Element<'_>, until: u64| {
                let (operand, latest) = operands.entry(key).or_default();
                element.encode(first, until, operand);
                *latest = until.max(*latest);
            };
            for key in new_lists.iter().filter(|_| !ends) {
                add(key, Element::Subscription(new.copy()), new_useless);
            }
            for key in &old_lists {
                if is_remembered && (is_new || ends) {
                    add(key, Element::Subscription(ended.copy()), useless);
                }
                add(key, Element::Ended(old.form, old.from, old.to), useless);
            }
            for (key, (operand, until)) in &operands {
                batch.also_until(Kind::Operand, tree, key, operand, *until)?;
            }
            let mut kept = older
                .iter()
                .map(StoredSubscription::copy)
                .collect::<Vec<_>>();
            if is_new {
                kept.insert(0, ended.copy());
                forget(&mut kept, &new);
            }
            let newest = if ends { &ended } else { &new };
            let changed = directory_entry(&topics, newest, &kept);
            match ends {
                true if is_remembered => {
                    batch.also_until(Kind::Put, directory, &id_key(id), &changed, useless)?;
                }
                true => batch.also(Kind::Delete, directory, &id_key(id), &[])?,
                false => {
                    batch.also_until(Kind::Put, directory, &id_key(id), &changed, new_useless)?;
                    written = self.write_shapes(batch, &shapes, new_until)?;
                }
            }
            made = Some(changed);
            Ok(())
        };
        let appended = self
            .store
            .append_with(&mut Batch::new(), self.durability, &mut complete);
        if let Some(error) = failed {
            return Err(error);
        }
        let ticket = appended?;
        // Before the change is visible, and in the order of changes. If its sync fails, no inbox of
        // this store reads any more.
        if let Some(made) = &made {
            self.deliveries.change(id, made);
        }
        Ok(Some(Appended {
            ticket,
            missed,
            written,
        }))
    }
}
