//! Ends, renews and moves stored subscriptions.
//!
//! A change replaces the newest *form* of a subscription. Changes of one subscription enter the log
//! one after the other, each based on the latest state in the log, visible or not. Each is
//! acknowledged after the one before it, or fails with it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use esker::extension::{Batch, EngineError, Kind, Snapshot, Ticket};
use esker::{Result, Seq};
use esker_coding::{Misplaced, Own};

use crate::broker::{Broker, Inner, View};
use crate::forms::element::{Element, StoredSubscription, Time};
use crate::forms::message::Notification;
use crate::forms::place::Place;
use crate::forms::topic::TopicFilter;
use crate::lists::directory::{DirectoryEntry, encode_entry, id_key};
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
    /// [`Error::BadInput`](esker::Error::BadInput) if the place is invalid; also any read or write
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

/// The lists and the directory entry that a change writes.
struct Rewrite<'a> {
    id: Seq,
    topics: &'a TopicFilter,
    /// The newest form so far, and the older ones, newest first.
    old: &'a StoredSubscription<'a>,
    older: &'a [StoredSubscription<'a>],
    old_lists: SubscriptionLists,
    /// The time of the store's clock from which the old form can be dropped.
    old_drop_time: u64,
    /// The form that the change makes; the old one if it only ends that.
    new: StoredSubscription<'a>,
    new_lists: SubscriptionLists,
    /// The time until which the new form is remembered.
    new_until: Time,
    /// The time of the store's clock from which the new form can be dropped.
    new_drop_time: u64,
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
    drop_time: u64,
}

impl Rewrite<'_> {
    /// The newest form after the change with the number `first`. No publication so far has a later
    /// time than `latest`.
    fn newest_form(&self, change: &Change, latest: Time, first: Seq) -> NewestForm<'_> {
        let mut new = self.new.copy();
        let replaces = match change {
            Change::End => false,
            // A renewal may change which stored publications match, if one may have a time behind
            // the earlier of the two ends.
            Change::Renew(_) => latest > self.old.to.min(new.to),
            Change::Move(_) => true,
        };
        if replaces {
            (new.form, new.made) = (first, self.now);
        }
        if matches!(change, Change::Move(_)) {
            new.begins = first;
        }
        NewestForm {
            form: new,
            replaces,
        }
    }

    /// The operand for each list, by key. Its elements, newest first: the new form, the old one
    /// with its end, and the tombstone of the old one, which lives as long as that.
    fn operands(
        &self,
        first: Seq,
        new: Option<&StoredSubscription<'_>>,
        ended: Option<&StoredSubscription<'_>>,
    ) -> BTreeMap<&[u8], ListOperand> {
        let mut operands: BTreeMap<&[u8], ListOperand> = BTreeMap::new();
        let mut add = |key, element: Element<'_>, drop_time: u64| {
            let operand: &mut ListOperand = operands.entry(key).or_default();
            element.encode(first, drop_time, &mut operand.encoded);
            operand.drop_time = drop_time.max(operand.drop_time);
        };
        if let Some(new) = new {
            for key in &self.new_lists.keys {
                add(key, Element::Subscription(new.copy()), self.new_drop_time);
            }
        }
        let Rewrite { old, .. } = self;
        for key in &self.old_lists.keys {
            if let Some(ended) = ended {
                add(key, Element::Subscription(ended.copy()), self.old_drop_time);
            }
            let tombstone = Element::Ended {
                form: old.form,
                from: old.from,
                to: old.to,
            };
            add(key, tombstone, self.old_drop_time);
        }
        operands
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
        forms: &[StoredSubscription<'_>],
        after: Seq,
    ) -> Result<Vec<Notification>> {
        let mut unmet = renewed.clone();
        // The newest form has met everything up to its end; older forms may have met later times.
        let met = forms
            .first()
            .map_or(unmet.from, |last| last.to.saturating_add(1));
        unmet.from = unmet.from.max(met);
        let mut found = self.publications_after(view, &unmet, Seq::MAX, after)?;
        found.retain(|found| !forms.iter().any(|form| form.has_met(found.seq, found.time)));
        Ok(found)
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
        let Some(entry) = self.stored_entry(snapshot, id)? else {
            return Ok(None);
        };
        let DirectoryEntry { topics, forms } = DirectoryEntry::decode(&entry)?;
        let now = self.now();
        let old = forms.item(0)?;
        let until = self.remembered_until(old.to, old.user);
        if until < now {
            self.note_ended(snapshot, until.saturating_add(1));
        }
        if until < now || old.ended != 0 {
            return Ok(None);
        }
        let rewrite = self.rewrite(id, &topics, &forms, &change, now)?;
        let renewed = match change {
            Change::Renew(_) => {
                let mut renewed = self.prepare_form(&topics, &rewrite.new)?;
                renewed.made = now;
                Some(renewed)
            }
            _ => None,
        };
        // Reads come before the write: if they fail, the subscription is unchanged.
        let mut missed = match &renewed {
            Some(renewed) => self.missed(&self.view(snapshot)?, renewed, &forms, 0)?,
            None => Vec::new(),
        };
        // The engine's errors cannot carry the one that keeps the batch from being written.
        let mut failed = None;
        let complete = |batch: &mut Batch, first: Seq, before: &Snapshot| {
            if let Some(renewed) = &renewed {
                // The few publications since the snapshot, mostly in memory.
                let view = self.view_before(before);
                let new = self.missed(&view, renewed, &forms, snapshot.seq());
                missed.extend(new.map_err(|error| {
                    failed = Some(error);
                    EngineError::Invalid(
                        "the publications for a renewed subscription cannot be read".to_owned(),
                    )
                })?);
            }
            self.write_change(batch, first, &rewrite, &change)
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

    /// Prepares the change of a live subscription with these forms, newest first.
    fn rewrite<'a>(
        &self,
        id: Seq,
        topics: &'a TopicFilter,
        forms: &'a [StoredSubscription<'a>],
        change: &Change,
        now: Time,
    ) -> Result<Rewrite<'a>> {
        let (old, older) = forms.split_first().ok_or_else(|| Misplaced::here())?;
        let mut new = old.copy();
        match change {
            Change::End => {}
            // Not before now: publications that it received must not be missed later.
            Change::Renew(time) => new.to = now.max(*time),
            Change::Move(place) => new.place = place.clone(),
        }
        let lists = |form: &StoredSubscription<'_>| {
            let cells = self.cells(&*self.match_cache.extent(&form.place)?);
            self.lists(topics, &cells, form)
        };
        let (old_lists, new_lists) = (lists(old)?, lists(&new)?);
        let new_until = self.remembered_until(new.to, new.user);
        Ok(Rewrite {
            id,
            topics,
            old,
            older,
            old_lists,
            old_drop_time: self.drop_time(self.remembered_until(old.to, old.user)),
            new_drop_time: self.drop_time(new_until),
            new,
            new_lists,
            new_until,
            now,
        })
    }

    /// Adds a change, whose first write has the number `first`, to its batch. Returns what the
    /// caller passes on after the write.
    fn write_change(
        &self,
        batch: &mut Batch,
        first: Seq,
        rewrite: &Rewrite<'_>,
        change: &Change,
    ) -> std::result::Result<PreparedChange, EngineError> {
        let Rewrite { old, older, .. } = rewrite;
        let latest = self.latest.load(Ordering::Acquire);
        let NewestForm {
            form: new,
            replaces,
        } = rewrite.newest_form(change, latest, first);
        let mut ended = old.copy();
        ended.ended = first;
        let ends = matches!(change, Change::End);
        // Self-joins need the ended forms of a user.
        let is_remembered = !old.user.is_empty();
        let keeps_old = is_remembered && (replaces || ends);
        let operands =
            rewrite.operands(first, (!ends).then_some(&new), keeps_old.then_some(&ended));
        for (key, operand) in &operands {
            let (tree, value) = (self.trees.subscriptions, &operand.encoded);
            batch.also_until(Kind::Operand, tree, key, value, operand.drop_time)?;
        }
        let mut kept: Vec<_> = older.iter().map(StoredSubscription::copy).collect();
        if replaces {
            kept.insert(0, ended.copy());
            drop_forms(&mut kept, &new);
        }
        let newest = if ends { &ended } else { &new };
        let entry = encode_entry(rewrite.topics, newest, &kept);
        let (directory, key) = (self.trees.directory, id_key(rewrite.id));
        let mut shapes = Vec::new();
        if !ends {
            batch.also_until(Kind::Put, directory, &key, &entry, rewrite.new_drop_time)?;
            shapes = self.write_shapes(batch, &rewrite.new_lists.shapes, rewrite.new_until)?;
        } else if is_remembered {
            batch.also_until(Kind::Put, directory, &key, &entry, rewrite.old_drop_time)?;
        } else {
            batch.also(Kind::Delete, directory, &key, &[])?;
        }
        Ok(PreparedChange { entry, shapes })
    }
}
