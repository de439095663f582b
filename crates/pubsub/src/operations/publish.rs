//! PUBLISH (the paper's Table 1, Algorithm 2): stores a publication, and finds the subscriptions
//! that it matches.
//!
//! The order in the log decides which of two finds the other. A publication finds the subscriptions
//! before it, in a snapshot of everything before its batch; a subscription behind it finds it in
//! the same way. So they meet exactly once, with any number of threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker::extension::{Batch, EngineError, Kind, Snapshot};
use esker::{Durability, Result, Seq};
use esker_coding::Misplaced;

use crate::broker::{Broker, Inner, View};
use crate::deliver::MatchGuard;
use crate::forms::cell::Cell;
use crate::forms::element::{Element, NEVER, StoredPublication, Time, lives_at};
use crate::forms::keys::{self, List};
use crate::forms::message::{Notification, Publication, Published};
use crate::forms::place::Extent;
use crate::forms::topic::Topic;
use crate::lists::directory::{LATEST_TIME_KEY, late_key};
use crate::lists::shape::{PublicationShape, Shape, ShapeUntil};
use crate::matching::PublicationParts;
use crate::search::subscribers::{BatchedBefore, Matcher};

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
        let mut published = self.publish_all(std::slice::from_ref(publication))?;
        published.pop().ok_or_else(|| Misplaced::here().into())
    }

    /// Publishes several in one write: all of them are stored, or none. Their numbers rise in the
    /// order given, and what each matches is as if they were published one after the other. The
    /// write is as durable as the most durable of them.
    ///
    /// Costs one write for all of them, and for each what [`publish`](Broker::publish) reads. All
    /// of them are in memory at the same time.
    ///
    /// # Errors
    /// [`Error::BadInput`](esker::Error::BadInput) if the place of one is invalid; also any write
    /// error.
    ///
    /// ```
    /// use esker_pubsub::{Broker, Config, PubSub, Publication, Subscription};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let db = PubSub::create_or_open(folder.path(), PubSub::register(esker::Options::new()))?;
    /// let broker = Broker::create_or_open(&db, Config::new())?;
    /// broker.subscribe(&Subscription::to("news".parse()?))?;
    /// let news = |topic: &str| Ok::<_, esker::Error>(Publication::new(topic.parse()?, "{}"));
    /// let published = broker.publish_all(&[news("news/a")?, news("news/b")?])?;
    /// assert!(published[0].seq < published[1].seq);
    /// assert_eq!(published[1].matches.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn publish_all(&self, publications: &[Publication]) -> Result<Vec<Published>> {
        if publications.is_empty() {
            return Ok(Vec::new());
        }
        let inner = &*self.inner;
        let prepared = |publication| PreparedPublication::new(inner, publication);
        let prepared: Vec<PreparedPublication<'_>> =
            publications.iter().map(prepared).collect::<Result<_>>()?;
        let WrittenBatch { before, written } = inner.store_publications(&prepared)?;
        let mut batched = Vec::with_capacity(written.len());
        let mut published = Vec::with_capacity(written.len());
        for (prepared, written) in prepared.iter().zip(written) {
            let (time, expires) = (written.time, written.expires);
            published.push(inner.matched(&before, &batched, prepared, written));
            batched.push(BatchedBefore {
                lists: &prepared.lists,
                body: &prepared.publication.body,
                time,
                expires,
            });
        }
        Ok(published)
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

/// The one of two durabilities that loses less.
fn more_durable(one: Durability, other: Durability) -> Durability {
    let lost = |durability: Durability| match durability {
        Durability::Sync => Duration::ZERO,
        Durability::Periodic(interval) => interval,
        Durability::Os => Duration::MAX,
    };
    if lost(other) < lost(one) { other } else { one }
}

/// The keys of the lists of a publication to `topic` in `cells`.
fn list_keys<'a>(topic: &'a Topic, cells: &'a [Cell]) -> impl Iterator<Item = Vec<u8>> + 'a {
    let key = |cell: &Cell| keys::list(topic.encoded(), cell.quarters(), List::Publications);
    cells.iter().map(key)
}

/// A publication, and the lists that it is written to.
struct PreparedPublication<'p> {
    publication: &'p Publication,
    extent: Arc<Extent>,
    cells: Vec<Cell>,
    /// The keys of its lists.
    lists: Vec<Vec<u8>>,
    shapes: Vec<Shape>,
}

impl<'p> PreparedPublication<'p> {
    fn new(inner: &Inner, publication: &'p Publication) -> Result<PreparedPublication<'p>> {
        let extent = inner.match_cache.extent(&publication.place)?;
        let cells = inner.cells(&extent);
        let levels = publication.topic.levels() as u8;
        let shape = |cell: &Cell| {
            let cell_level = cell.level();
            Shape::Publications(PublicationShape { levels, cell_level })
        };
        let mut shapes: Vec<Shape> = cells.iter().map(shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        Ok(PreparedPublication {
            lists: list_keys(&publication.topic, &cells).collect(),
            publication,
            extent,
            cells,
            shapes,
        })
    }
}

/// Publications that are in the log.
struct WrittenBatch<'d> {
    /// The state before their batch.
    before: View,
    written: Vec<WrittenPublication<'d>>,
}

/// A publication that is in the log.
struct WrittenPublication<'d> {
    seq: Seq,
    /// Delivers the publication; `None` if there are no consumers.
    matching: Option<MatchGuard<'d>>,
    time: Time,
    expires: Time,
}

/// The entries of the directory that a batch of publications writes.
#[derive(Default)]
struct WrittenDirectory {
    shapes: Vec<ShapeUntil>,
    /// The latest time of all publications; `None` if it was not written.
    latest: Option<Time>,
}

impl Inner {
    /// Writes publications in one batch. Those without a time of their own get the time of the
    /// write, by which the store decides which subscriptions are alive. So they meet every
    /// subscription that had not ended at their time, however long the write had to wait.
    fn store_publications(&self, prepared: &[PreparedPublication<'_>]) -> Result<WrittenBatch<'_>> {
        let complete = |batch: &mut Batch, first: Seq, before: &Snapshot| {
            let mut directory = WrittenDirectory::default();
            let mut written = Vec::with_capacity(prepared.len());
            for publication in prepared {
                let seq = first + Seq::from(batch.sequences());
                written.push(self.add(publication, seq, before, batch, &mut directory)?);
            }
            let batch = WrittenBatch {
                before: self.view_before(before),
                written,
            };
            Ok((batch, directory))
        };
        let durabilities = prepared.iter().map(|prepared| {
            let durability = prepared.publication.durability;
            durability.unwrap_or(self.durability)
        });
        let durability = durabilities.reduce(more_durable);
        let durability = durability.unwrap_or(self.durability);
        let (_, (written, directory)) =
            (self.store).write_with(&mut Batch::new(), durability, complete)?;
        if let Some(latest) = directory.latest {
            self.stored_latest.fetch_max(latest, Ordering::Relaxed);
        }
        self.shapes.confirm(directory.shapes);
        Ok(written)
    }

    /// Adds the publication with the number `seq` to a batch.
    fn add(
        &self,
        prepared: &PreparedPublication<'_>,
        seq: Seq,
        before: &Snapshot,
        batch: &mut Batch,
        directory: &mut WrittenDirectory,
    ) -> std::result::Result<WrittenPublication<'_>, EngineError> {
        let publication = prepared.publication;
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
        element.encode(seq, drop_time, &mut operand);
        let tree = self.trees.publications;
        let mut keys = prepared.lists.iter();
        // All entries of a publication have its number.
        if let Some(key) = keys.next() {
            batch.operand_until(tree, key, &operand, drop_time)?;
        }
        for key in keys {
            batch.also_until(Kind::Operand, tree, key, &operand, drop_time)?;
        }
        (directory.shapes).extend(self.write_shapes(batch, &prepared.shapes, expires)?);
        if directory.latest.is_none_or(|written| written < latest) {
            directory.latest = self.write_latest(batch, latest)?.max(directory.latest);
        }
        // Subscriptions to its time may be forgotten already. It does not match these, and this
        // entry keeps their inboxes from returning it.
        let clock = before.time();
        if self.drop_time(time) <= clock && self.deliveries.has_consumers() {
            let (key, value) = (late_key(seq), clock.to_le_bytes());
            batch.also_until(Kind::Put, self.trees.directory, &key, &value, drop_time)?;
        }
        Ok(WrittenPublication {
            seq,
            matching: self.deliveries.begin(seq),
            time,
            expires,
        })
    }

    /// Matches a publication that is stored, behind those of its batch that are before it, and
    /// passes it to the consumers of what it matches.
    fn matched(
        &self,
        before: &View,
        batched: &[BatchedBefore<'_>],
        prepared: &PreparedPublication<'_>,
        written: WrittenPublication<'_>,
    ) -> Published {
        let publication = prepared.publication;
        let WrittenPublication {
            seq,
            mut matching,
            time,
            expires,
        } = written;
        let matched = if lives_at(expires, time) {
            let parts = PublicationParts {
                time,
                place: &prepared.extent,
                body: &publication.body,
            };
            let (topic, cells) = (&publication.topic, &prepared.cells);
            let matcher = Matcher::new(self, before, topic, cells, &prepared.lists, parts);
            matcher.behind(batched).subscribers()
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
        Published {
            seq,
            matches,
            unread,
        }
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
