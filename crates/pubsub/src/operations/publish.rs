//! PUBLISH (the paper's Table 1, Algorithm 2): stores a publication, and finds the subscriptions
//! that it matches.
//!
//! The order in the log decides which of two finds the other. A publication finds the subscriptions
//! before it, in a snapshot of everything before its batch; a subscription behind it finds it in
//! the same way. So they meet exactly once, with any number of threads.

use std::sync::atomic::Ordering;

use esker::extension::{Batch, EngineError, Kind, Snapshot};
use esker::{Result, Seq};

use crate::broker::{Broker, Inner, View};
use crate::deliver::MatchGuard;
use crate::forms::cell::Cell;
use crate::forms::element::{Element, NEVER, StoredPublication, Time, lives_at};
use crate::forms::keys::{self, List};
use crate::forms::message::{Notification, Publication, Published};
use crate::forms::topic::Topic;
use crate::lists::directory::{LATEST_TIME_KEY, late_key};
use crate::lists::shape::{PublicationShape, Shape, ShapeUntil};
use crate::matching::PublicationParts;
use crate::search::subscribers::Matcher;

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
        let extent = inner.match_cache.extent(&publication.place)?;
        let cells = inner.cells(&extent);
        let lists: Vec<Vec<u8>> = list_keys(&publication.topic, &cells).collect();
        let WrittenPublication {
            seq,
            before,
            mut matching,
            time,
            expires,
        } = inner.store_publication(publication, &cells, &lists)?;
        let matched = if lives_at(expires, time) {
            let parts = PublicationParts {
                time,
                place: &extent,
                body: &publication.body,
            };
            Matcher::new(inner, &before, &publication.topic, &cells, &lists, parts).subscribers()
        } else {
            Ok(Vec::new())
        };
        // The publication is stored, even if its matches could not be read.
        let (matches, unread) = match matched {
            Ok(matches) => (matches, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        // If the matches are unknown, consumers read the lists.
        if let Some(matching) = matching.as_mut().filter(|_| unread.is_none()) {
            let receivers = matches.iter().map(|matched| matched.subscription);
            matching.set_matches(receivers, || Notification {
                seq,
                topic: publication.topic.clone(),
                time,
                expires: Some(expires).filter(|expires| *expires != NEVER),
                place: publication.place.clone(),
                tag: publication.tag.clone(),
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
        let extent = inner.match_cache.extent(&publication.place)?;
        let drop_time = inner.drop_time(expires);
        let cells = inner.cells(&extent);
        let tombstone = Element::Retracted {
            publication: publication.seq,
            time: publication.time,
        };
        let mut complete = |batch: &mut Batch, first: Seq, _: &Snapshot| {
            let mut operand = Vec::new();
            tombstone.encode(first, drop_time, &mut operand);
            for key in list_keys(&publication.topic, &cells) {
                let tree = inner.trees.publications;
                batch.also_until(Kind::Operand, tree, &key, &operand, drop_time)?;
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

/// The keys of the lists of a publication to `topic` in `cells`.
fn list_keys<'a>(topic: &'a Topic, cells: &'a [Cell]) -> impl Iterator<Item = Vec<u8>> + 'a {
    let key = |cell: &Cell| keys::list(topic.encoded(), cell.quarters(), List::Publications);
    cells.iter().map(key)
}

/// A publication that is in the log.
struct WrittenPublication<'d> {
    seq: Seq,
    /// The state before its batch.
    before: View,
    /// Delivers the publication; `None` if there are no consumers.
    matching: Option<MatchGuard<'d>>,
    time: Time,
    expires: Time,
}

/// The entries of the directory that the batch of a publication writes.
struct WrittenDirectory {
    shapes: Vec<ShapeUntil>,
    /// The latest time of all publications; `None` if it was not written.
    latest: Option<Time>,
}

impl Inner {
    /// Writes a publication in these cells, whose lists have these keys. Without a time of its own
    /// it gets the time of the write, by which the store decides which subscriptions are alive. So
    /// it meets every subscription that had not ended at its time, however long the write had to
    /// wait.
    fn store_publication(
        &self,
        publication: &Publication,
        cells: &[Cell],
        keys: &[Vec<u8>],
    ) -> Result<WrittenPublication<'_>> {
        let levels = publication.topic.levels() as u8;
        let mut shapes: Vec<Shape> = cells
            .iter()
            .map(|cell| {
                let cell_level = cell.level();
                Shape::Publications(PublicationShape { levels, cell_level })
            })
            .collect();
        shapes.sort_unstable();
        shapes.dedup();
        let complete = |batch: &mut Batch, first: Seq, before: &Snapshot| {
            let time = publication.time.unwrap_or_else(|| self.now());
            let expires = self.resolve_end(publication.end, time);
            let drop_time = self.drop_time(expires);
            let latest = self.latest.fetch_max(time, Ordering::AcqRel).max(time);
            let element = Element::Publication(StoredPublication {
                time,
                latest,
                expires,
                place: publication.place.clone(),
                tag: &publication.tag,
                body: &publication.body,
            });
            let mut operand = Vec::new();
            element.encode(first, drop_time, &mut operand);
            for key in keys {
                let tree = self.trees.publications;
                batch.also_until(Kind::Operand, tree, key, &operand, drop_time)?;
            }
            let directory = WrittenDirectory {
                shapes: self.write_shapes(batch, &shapes, expires)?,
                latest: self.write_latest(batch, latest)?,
            };
            // Subscriptions to its time may be forgotten already. It does not match these, and this
            // entry keeps their inboxes from returning it.
            let clock = before.time();
            if self.drop_time(time) <= clock && self.deliveries.has_consumers() {
                let (key, value) = (late_key(first), clock.to_le_bytes());
                batch.also_until(Kind::Put, self.trees.directory, &key, &value, drop_time)?;
            }
            let written = WrittenPublication {
                seq: first,
                before: self.view_before(before),
                matching: self.deliveries.begin(first),
                time,
                expires,
            };
            Ok((written, directory))
        };
        let durability = publication.durability.unwrap_or(self.durability);
        let (_, (written, directory)) =
            (self.store).write_with(&mut Batch::new(), durability, complete)?;
        if let Some(latest) = directory.latest {
            self.stored_latest.fetch_max(latest, Ordering::Relaxed);
        }
        self.shapes.confirm(directory.shapes);
        Ok(written)
    }

    /// Adds the latest time of all publications to a batch if the directory has an earlier one.
    /// Returns the time that it added, which is rounded up ([`LATEST_SLACK`]).
    fn write_latest(
        &self,
        batch: &mut Batch,
        latest: Time,
    ) -> std::result::Result<Option<Time>, EngineError> {
        if latest <= self.stored_latest.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let slack = LATEST_SLACK.saturating_mul(i64::from(self.config.resolution));
        let rounded = latest.saturating_add(slack);
        let directory = self.trees.directory;
        batch.also(
            Kind::Put,
            directory,
            LATEST_TIME_KEY,
            &rounded.to_le_bytes(),
        )?;
        Ok(Some(rounded))
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
