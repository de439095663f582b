//! Ends, renews and moves stored subscriptions.
//!
//! A change replaces the newest *form* of a subscription. Changes of one subscription enter the log
//! one after the other, each based on the latest state in the log, visible or not. Each is
//! acknowledged after the one before it, or fails with it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use esker::extension::{Batch, EngineError, Kind, Snapshot, Ticket};
use esker::{Error, Result, Seq};
use esker_coding::Own;

use crate::broker::{Broker, Inner, View};
use crate::forms::element::{Element, StoredSubscription, Tick, Time};
use crate::forms::message::Notification;
use crate::forms::place::Place;
use crate::lists::directory::{SubscriptionEntry, encode_subscription, subscription_key};
use crate::lists::shape::ShapeUntil;
use crate::search::prepared::{PreparedSubscription, SubscriptionLists};

impl Broker {
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
        self.inner.change(id, Change::Renew(until))
    }

    /// Moves a subscription to another place: it receives publications there from this call on, and
    /// no earlier ones. Returns false if the subscription does not exist any more.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the place is invalid; also any read or write
    /// error.
    pub fn move_to(&self, id: Seq, place: Place) -> Result<bool> {
        let inner = &*self.inner;
        inner.match_cache.extent(&place)?;
        Ok(inner.change(id, Change::Move(place))?.is_some())
    }
}

/// The number of forms of a subscription, including the newest, that the directory keeps for
/// consumers that were away.
const MAX_FORMS: usize = 16;

/// Reduces the older forms of a subscription (newest first) to fewer than [`MAX_FORMS`]. First
/// merges a form with the next later one if that has the same place and ends no earlier:
/// publications between their ends count as received. Then drops the oldest form, except forms that
/// met publications which no later form has met: a renewal must not return these again.
fn drop_forms(older: &mut Vec<StoredSubscription<'_>>, newest: &StoredSubscription<'_>) {
    while older.len() >= MAX_FORMS {
        let is_within = |pair: &[StoredSubscription<'_>]| match pair {
            [later, form] => later.begins == form.begins && later.to >= form.to,
            _ => false,
        };
        if let Some(at) = older.windows(2).rposition(is_within) {
            let form = older.remove(at + 1);
            older.own_mut(at).form = form.form;
            continue;
        }
        let mut met = newest.to;
        let is_needed = |form: &StoredSubscription<'_>| {
            let has_begun = form.ended.is_some_and(|ended| ended > newest.begins);
            let needed = has_begun && form.to > met;
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
    shapes: Vec<ShapeUntil>,
}

/// A change of a stored subscription.
enum Change {
    /// End it now.
    End,
    /// Move its end to this time.
    Renew(Time),
    /// Move it to this place.
    Move(Place),
}

/// A form of a subscription, where it is stored, and how long.
struct FormInLists<'a> {
    form: StoredSubscription<'a>,
    lists: SubscriptionLists,
    /// The time until which it is remembered.
    until: Time,
    /// The time of the store's clock from which it can be dropped.
    drop_time: Tick,
}

/// The change of a live subscription: the forms before and after it.
struct Rewrite<'a> {
    id: Seq,
    /// The directory entry before the change.
    entry: &'a SubscriptionEntry<'a>,
    /// The newest form before the change.
    old: FormInLists<'a>,
    /// The form that the change makes; `None` if it ends the subscription.
    new: Option<FormInLists<'a>>,
    /// The time of the change.
    now: Time,
}

/// The newest form after a change.
struct NewestForm<'a> {
    form: StoredSubscription<'a>,
    /// True if it replaces the form before it, which a renewal need not do.
    replaces: bool,
}

/// The operand that a change adds to a list.
#[derive(Default)]
struct ListOperand {
    encoded: Vec<u8>,
    /// The time of the store's clock from which all its elements can be dropped.
    drop_time: Tick,
}

/// The operands that a change adds, by the keys of their lists.
struct ListOperands<'a> {
    by_key: BTreeMap<&'a [u8], ListOperand>,
    /// The number of the change.
    first: Seq,
}

impl<'a> ListOperands<'a> {
    fn new(first: Seq) -> ListOperands<'a> {
        ListOperands {
            by_key: BTreeMap::new(),
            first,
        }
    }

    /// Adds an element behind those of the list that were added before, which are newer.
    fn add(&mut self, key: &'a [u8], element: &Element<'_>, drop_time: Tick) {
        let operand = self.by_key.entry(key).or_default();
        element.encode(self.first, drop_time, &mut operand.encoded);
        operand.drop_time = drop_time.max(operand.drop_time);
    }

    /// Adds the end of a form to its lists: the form with its end if `remembered` has it, and its
    /// tombstone, which lives as long.
    fn add_end(&mut self, old: &'a FormInLists<'_>, remembered: Option<&StoredSubscription<'_>>) {
        let FormInLists {
            form,
            lists,
            drop_time,
            ..
        } = old;
        let tombstone = Element::Ended {
            form: form.form,
            from: form.from,
            to: form.to,
        };
        for key in &lists.keys {
            if let Some(ended) = remembered {
                self.add(key, &Element::Subscription(ended.copy()), *drop_time);
            }
            self.add(key, &tombstone, *drop_time);
        }
    }
}

impl Rewrite<'_> {
    /// The form `new` as the change with the number `first` writes it. No publication so far has a
    /// later time than `latest`.
    fn newest_form<'n>(
        &self,
        new: &FormInLists<'n>,
        change: &Change,
        latest: Time,
        first: Seq,
    ) -> NewestForm<'n> {
        let mut form = new.form.copy();
        let replaces = match change {
            // It makes no form.
            Change::End => false,
            // A renewal may change which stored publications match, if one may have a time behind
            // the earlier of the two ends.
            Change::Renew(_) => latest > self.old.form.to.min(form.to),
            Change::Move(_) => true,
        };
        if replaces {
            (form.form, form.made_at) = (first, self.now);
        }
        if matches!(change, Change::Move(_)) {
            form.begins = first;
        }
        NewestForm { form, replaces }
    }

    /// The old form, ended by the change with the number `first`.
    fn ended_form(&self, first: Seq) -> StoredSubscription<'_> {
        let mut ended = self.old.form.copy();
        ended.ended = Some(first);
        ended
    }

    /// True if ended forms stay in the lists, where self-joins of their user find them.
    fn remembers_ended(&self) -> bool {
        !self.old.form.user.is_empty()
    }
}

/// The result of writing a change into its batch.
struct PreparedChange {
    /// The directory entry.
    entry: Vec<u8>,
    /// Shapes to confirm.
    shapes: Vec<ShapeUntil>,
}

impl Inner {
    /// The publications that a renewal returns: those with a number greater than `after` that none
    /// of the forms so far has met.
    fn missed(
        &self,
        view: &View,
        renewed: &PreparedSubscription,
        entry: &SubscriptionEntry<'_>,
        after: Seq,
    ) -> Result<Vec<Notification>> {
        let mut unmet = renewed.clone();
        // The newest form has met everything up to its end; older forms may have met later times.
        unmet.from = unmet.from.max(entry.newest.to.saturating_add(1));
        let mut missed = self.publications_after(view, &unmet, after)?;
        let was_met =
            |new: &Notification| entry.forms().any(|form| form.has_met(new.seq, new.time));
        missed.retain(|publication| !was_met(publication));
        Ok(missed)
    }

    /// Changes a subscription. Returns the publications that it missed if it is renewed; `None` if
    /// no live subscription has this number.
    fn change(&self, id: Seq, change: Change) -> Result<Option<Vec<Notification>>> {
        // The turn ends when the change is in the log. The next change is based on that, and both
        // share a sync; so no change is acknowledged if one before it fails.
        let turn = self.change_turns.take(id);
        let latest = self.store.latest();
        let appended = self.append_change(&latest, id, change)?;
        drop(turn);
        let Some(appended) = appended else {
            // The end that `None` reports must be acknowledged first.
            if self.store.snapshot().seq() < latest.seq() {
                self.acknowledged_snapshot()?;
            }
            return Ok(None);
        };
        self.store.acknowledge(appended.ticket)?;
        self.shapes.confirm(appended.shapes);
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
        let Some(stored) = self.stored_entry(snapshot, id)? else {
            return Ok(None);
        };
        let entry = SubscriptionEntry::decode(&stored)?;
        let now = self.now();
        let until = self.remembered_until(entry.newest.to, entry.newest.user);
        if until < now {
            self.note_ended(snapshot, until.saturating_add(1));
        }
        if until < now || entry.newest.ended.is_some() {
            return Ok(None);
        }
        let rewrite = self.rewrite(id, &entry, &change, now)?;
        let renewed = match (&change, &rewrite.new) {
            (Change::Renew(_), Some(new)) => {
                let mut renewed = self.prepare_form(&entry.topics, &new.form)?;
                renewed.made_at = now;
                Some(renewed)
            }
            _ => None,
        };
        // Reads come before the write: if they fail, the subscription is unchanged.
        let mut missed = match &renewed {
            Some(renewed) => self.missed(&self.view(snapshot)?, renewed, &entry, 0)?,
            None => Vec::new(),
        };
        // The engine's errors cannot carry the one that keeps the batch from being written.
        let mut failed = None;
        let complete = |batch: &mut Batch, first: Seq, before: &Snapshot| {
            if let Some(renewed) = &renewed {
                // The few publications since the snapshot, mostly in memory.
                let view = self.view_before(before);
                let new = self.missed(&view, renewed, &entry, snapshot.seq());
                missed.extend(new.map_err(|error| {
                    failed = Some(error);
                    EngineError::Invalid(
                        "the publications for a renewed subscription cannot be read".to_owned(),
                    )
                })?);
            }
            match &rewrite.new {
                Some(new) => self.write_form(batch, first, &rewrite, new, &change),
                None => self.write_end(batch, first, &rewrite),
            }
        };
        let appended = (self.store).append_with(&mut Batch::new(), self.durability, complete);
        if let Some(error) = failed {
            return Err(error);
        }
        let (ticket, written) = appended?;
        // Before the change is visible, and in the order of changes. If its sync fails, no inbox of
        // this store reads any more.
        self.deliveries.change(id, &written.entry);
        Ok(Some(Appended {
            ticket,
            missed,
            shapes: written.shapes,
        }))
    }

    /// Prepares the change of a live subscription with this entry.
    fn rewrite<'a>(
        &self,
        id: Seq,
        entry: &'a SubscriptionEntry<'a>,
        change: &Change,
        now: Time,
    ) -> Result<Rewrite<'a>> {
        let in_lists = |form: StoredSubscription<'a>| {
            let until = self.remembered_until(form.to, form.user);
            let prepared = self.prepare_form(&entry.topics, &form)?;
            Ok::<_, Error>(FormInLists {
                lists: self.lists(&prepared)?,
                drop_time: self.drop_time(until),
                until,
                form,
            })
        };
        let mut new = entry.newest.copy();
        let new = match change {
            Change::End => None,
            // Not before now: publications that it received must not be missed later.
            Change::Renew(time) => {
                new.to = now.max(*time);
                Some(new)
            }
            Change::Move(place) => {
                new.place = place.clone();
                Some(new)
            }
        };
        Ok(Rewrite {
            id,
            entry,
            old: in_lists(entry.newest.copy())?,
            new: new.map(in_lists).transpose()?,
            now,
        })
    }

    /// Adds the change that makes the form `new`, and whose first write has the number `first`, to
    /// its batch. Returns what the caller passes on after the write.
    fn write_form(
        &self,
        batch: &mut Batch,
        first: Seq,
        rewrite: &Rewrite<'_>,
        new: &FormInLists<'_>,
        change: &Change,
    ) -> std::result::Result<PreparedChange, EngineError> {
        let Rewrite { entry, old, .. } = rewrite;
        let latest = self.latest.load(Ordering::Acquire);
        let NewestForm { form, replaces } = rewrite.newest_form(new, change, latest, first);
        let ended = rewrite.ended_form(first);
        let mut operands = ListOperands::new(first);
        for key in &new.lists.keys {
            operands.add(key, &Element::Subscription(form.copy()), new.drop_time);
        }
        let remembers_ended = replaces && rewrite.remembers_ended();
        operands.add_end(old, remembers_ended.then_some(&ended));
        self.write_operands(batch, &operands)?;
        let mut older: Vec<_> = entry.older.iter().map(StoredSubscription::copy).collect();
        if replaces {
            older.insert(0, ended);
            drop_forms(&mut older, &form);
        }
        let encoded = encode_subscription(&entry.topics, &form, &older);
        let (directory, key) = (self.trees.directory, subscription_key(rewrite.id));
        batch.also_until(Kind::Put, directory, &key, &encoded, new.drop_time)?;
        Ok(PreparedChange {
            entry: encoded,
            shapes: self.write_shapes(batch, &new.lists.shapes, new.until)?,
        })
    }

    /// As [`Inner::write_form`], for a change that ends the subscription.
    fn write_end(
        &self,
        batch: &mut Batch,
        first: Seq,
        rewrite: &Rewrite<'_>,
    ) -> std::result::Result<PreparedChange, EngineError> {
        let Rewrite { entry, old, .. } = rewrite;
        let ended = rewrite.ended_form(first);
        let mut operands = ListOperands::new(first);
        operands.add_end(old, rewrite.remembers_ended().then_some(&ended));
        self.write_operands(batch, &operands)?;
        let encoded = encode_subscription(&entry.topics, &ended, &entry.older);
        let (directory, key) = (self.trees.directory, subscription_key(rewrite.id));
        if rewrite.remembers_ended() {
            batch.also_until(Kind::Put, directory, &key, &encoded, old.drop_time)?;
        } else {
            batch.also(Kind::Delete, directory, &key, &[])?;
        }
        Ok(PreparedChange {
            entry: encoded,
            shapes: Vec::new(),
        })
    }

    /// Adds the operands of a change to its batch.
    fn write_operands(
        &self,
        batch: &mut Batch,
        operands: &ListOperands<'_>,
    ) -> std::result::Result<(), EngineError> {
        for (key, operand) in &operands.by_key {
            let (tree, value) = (self.trees.subscriptions, &operand.encoded);
            batch.also_until(Kind::Operand, tree, key, value, operand.drop_time)?;
        }
        Ok(())
    }
}
