//! PUBLISH (the paper's Table 1, Algorithm 2): stores a publication, and finds the subscriptions
//! that it matches.
//!
//! The order in the log decides which of two finds the other. A publication finds the subscriptions
//! before it, in a snapshot of everything before its batch; a subscription behind it finds it in
//! the same way. So they meet exactly once, with any number of threads.

use std::sync::atomic::Ordering;

use esker::extension::{Batch, Kind, Snapshot};
use esker::{Result, Seq};

use crate::broker::{Broker, Inner, LATEST, View, late_key};
use crate::cell::Cell;
use crate::deliver::Matching;
use crate::element::{Element, NEVER, StoredPublication, Time, lives_at};
use crate::keys::{self, List};
use crate::matching::Subject;
use crate::message::{Notification, Publication, Published};
use crate::shape::Shape;
use crate::subscribers::Matcher;
use crate::topic::Topic;

/// The persisted `latest` is rounded up by this many milliseconds, so that it is rarely rewritten.
const LATEST_SLACK: Time = 10_000;

impl Broker {
    /// Stores a publication, finds the matching subscriptions, and notifies their inboxes.
    ///
    /// Costs one write, and in each component (sorted part) of the tree a lookup in the lists that
    /// can contain matching subscriptions.
    ///
    /// # Errors
    /// [`Error::BadInput`](esker::Error::BadInput) if the place is invalid; also any write error. A
    /// read error is returned in [`Published::unread`], since the publication is stored by then.
    pub fn publish(&self, publication: &Publication) -> Result<Published> {
        let inner = &*self.inner;
        let extent = inner.compiled.extent(&publication.place)?;
        let cells = inner.cells(&extent);
        let lists: Vec<Vec<u8>> = list_keys(&publication.topic, &cells).collect();
        let stored = inner.store_publication(publication, &cells, &lists)?;
        let (seq, before, mut matching) = (stored.seq, stored.before, stored.matching);
        let (time, expires) = (stored.time, stored.expires);
        let found = if lives_at(expires, time) {
            let subject = Subject {
                time,
                place: &extent,
                body: &publication.body,
            };
            Matcher::new(inner, &before, &publication.topic, &cells, &lists, subject).subscribers()
        } else {
            Ok(Vec::new())
        };
        // The publication is stored, even if its matches could not be read.
        let (matches, unread) = match found {
            Ok(matches) => (matches, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        // If the matches are unknown, consumers read the lists.
        if let Some(matching) = matching.as_mut().filter(|_| unread.is_none()) {
            let receivers = matches.iter().map(|matched| matched.subscription);
            matching.found(receivers, || Notification {
                seq,
                topic: publication.topic.clone(),
                time,
                expires: Some(expires).filter(|expires| *expires != NEVER),
                place: publication.place.clone(),
                body: publication.body.clone(),
            });
        }
        Ok(Published {
            seq,
            matches,
            unread,
        })
    }

    /// Withdraws a publication: no subscription receives it from now on. Only a
    /// [follower](Broker::follow) that is far behind may still return it. Returns false if it had
    /// expired.
    ///
    /// # Errors
    /// Any write error.
    pub fn retract(&self, publication: &Notification) -> Result<bool> {
        let inner = &*self.inner;
        if inner.has_expired(publication) {
            return Ok(false);
        }
        let expires = publication.expires.unwrap_or(NEVER);
        let extent = inner.compiled.extent(&publication.place)?;
        let useless = inner.useless_at(expires);
        let cells = inner.cells(&extent);
        let void = Element::Retracted(publication.seq, publication.time);
        let mut complete = |batch: &mut Batch, first: Seq, _: &Snapshot| {
            let mut operand = Vec::new();
            void.encode(first, useless, &mut operand);
            for key in list_keys(&publication.topic, &cells) {
                let tree = inner.trees.publications;
                batch.also_until(Kind::Operand, tree, &key, &operand, useless)?;
            }
            Ok(())
        };
        inner
            .store
            .write_with(&mut Batch::new(), inner.durability, &mut complete)?;
        inner.deliveries.retract(publication.seq);
        Ok(true)
    }
}

/// The keys of a publication's lists.
fn list_keys<'a>(topic: &'a Topic, cells: &'a [Cell]) -> impl Iterator<Item = Vec<u8>> + 'a {
    let key = |cell: &Cell| keys::list(topic.encoded(), cell.quarters(), List::Publications);
    cells.iter().map(key)
}

/// A publication that is in the log.
struct Stored<'d> {
    seq: Seq,
    /// The state before its batch.
    before: View,
    matching: Option<Matching<'d>>,
    time: Time,
    expires: Time,
}

impl Inner {
    /// Writes a publication. Without a time of its own it gets the time of the write, by which the
    /// store decides which subscriptions are alive. So it meets every subscription that had not
    /// ended at its time, however long the write had to wait.
    fn store_publication(
        &self,
        publication: &Publication,
        cells: &[Cell],
        keys: &[Vec<u8>],
    ) -> Result<Stored<'_>> {
        let levels = publication.topic.levels() as u8;
        let mut shapes: Vec<Shape> = cells
            .iter()
            .map(|cell| Shape::Publications {
                levels,
                cell: cell.level(),
            })
            .collect();
        shapes.sort_unstable();
        shapes.dedup();
        let complete = |batch: &mut Batch, first: Seq, before: &Snapshot| {
            let time = publication.time.unwrap_or_else(|| self.now());
            let expires = self.end(publication.end, time);
            let useless = self.useless_at(expires);
            let latest = self.latest.fetch_max(time, Ordering::AcqRel).max(time);
            let element = Element::Publication(StoredPublication {
                time,
                latest,
                expires,
                place: publication.place.clone(),
                body: &publication.body,
            });
            let mut operand = Vec::new();
            element.encode(first, useless, &mut operand);
            for key in keys {
                let tree = self.trees.publications;
                batch.also_until(Kind::Operand, tree, key, &operand, useless)?;
            }
            let directory = self.trees.directory;
            let written = self.write_shapes(batch, &shapes, expires)?;
            let mut kept_latest = Time::MIN;
            if latest > self.kept_latest.load(Ordering::Relaxed) {
                let ahead = LATEST_SLACK.saturating_mul(i64::from(self.config.resolution));
                let kept = latest.saturating_add(ahead);
                batch.also(Kind::Put, directory, LATEST, &kept.to_le_bytes())?;
                kept_latest = kept;
            }
            // Subscriptions to its time may be forgotten already. It does not match these, and this
            // entry keeps their inboxes from returning it.
            let clock = before.time();
            if self.useless_at(time) <= clock && self.deliveries.has_consumers() {
                let (key, value) = (late_key(first), clock.to_le_bytes());
                batch.also_until(Kind::Put, directory, &key, &value, useless)?;
            }
            let stored = Stored {
                seq: first,
                before: self.view_before(before),
                matching: self.deliveries.begin(first),
                time,
                expires,
            };
            Ok((stored, written, kept_latest))
        };
        let (_, (stored, written, kept_latest)) =
            (self.store).write_with(&mut Batch::new(), self.durability, complete)?;
        self.kept_latest.fetch_max(kept_latest, Ordering::Relaxed);
        self.shapes.confirm(written);
        Ok(stored)
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
