//! PUBLISH (the paper's Table 1, Algorithm 2): stores a publication, and finds the subscriptions
//! that it matches.
//!
//! The order in the log decides which of two finds the other. A publication finds the subscriptions
//! before it, in a snapshot of everything before its batch; a subscription behind it finds it in
//! the same way. So they meet exactly once, with any number of threads.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker::extension::{Batch, Kind, Snapshot};
use esker::{Result, Seq};

use crate::broker::{Broker, Inner, LATEST, View, late_key};
use crate::cell::Cell;
use crate::config::Architecture;
use crate::deliver::Matching;
use crate::element::{Element, NEVER, Raw, StoredChange, StoredPublication, Time, lives_at};
use crate::keys::{self, List, ListKey};
use crate::matching::Subject;
use crate::message::{Match, Notification, Publication, Published};
use crate::shape::Shape;
use crate::spans::{self, NumberAt};
use crate::topic::{Topic, TopicFilter};
use crate::walk::{Next, Span, Walk, tidy, walk};

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
        let is_matched =
            inner.config.architecture != Architecture::RepQueries && lives_at(expires, time);
        let found = if is_matched {
            let subject = Subject {
                time,
                place: &extent,
                body: &publication.body,
            };
            inner.subscribers(&before, &publication.topic, &cells, &lists, &subject)
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

/// A subscription found for a publication.
struct Found {
    matched: Match,
    joins: bool,
    change: Option<StoredChange>,
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

    /// GetSubscribers: the subscriptions in a snapshot that match a publication.
    pub(crate) fn subscribers(
        &self,
        View { snapshot, known }: &View,
        topic: &Topic,
        cells: &[Cell],
        own: &[Vec<u8>],
        subject: &Subject<'_>,
    ) -> Result<Vec<Match>> {
        let mut spans = spans::for_publication(known, topic, cells, subject.body);
        // One walk reads subscriptions and, where that costs nothing, earlier publications: a
        // publication that matches no subscription needs no previous number.
        let reads_both = known.has_changes && self.is_one_tree() && cells.len() == 1;
        if reads_both {
            spans.extend(own.iter().cloned().map(Span::key));
        }
        let spans = tidy(spans);
        let mut found: BTreeMap<Seq, Found> = BTreeMap::new();
        let mut earlier = Earlier::new(subject.time);
        let mut checked: (Vec<u8>, bool) = Default::default();
        let cost = snapshot.cost();
        let mut visit = |key: &[u8], raw: &Raw<'_>| {
            if raw.is_publication() {
                // Ranges contain publications of other nodes, too.
                return if own.iter().any(|own| own == key) {
                    earlier.visit(raw)
                } else {
                    Ok(Next::EndList)
                };
            }
            if checked.0 != key {
                checked = (key.to_vec(), is_for(key, topic, cells));
            }
            if !checked.1 {
                return Ok(Next::EndList);
            }
            // Most stored subscriptions may have ended.
            if let Some(to) = raw.until().filter(|to| *to < subject.time) {
                self.note_ended(snapshot, to.saturating_add(1));
                return Ok(Next::On);
            }
            let Element::Subscription(subscription) = raw.decode()? else {
                return Ok(Next::On);
            };
            if subscription.ended == 0 && self.compiled.admits(&subscription, subject)? {
                let matched = Match {
                    subscription: subscription.id,
                    user: subscription.user.to_vec(),
                    tag: subscription.tag.to_vec(),
                };
                found.insert(
                    subscription.id,
                    Found {
                        matched,
                        joins: subscription.joins,
                        change: subscription.change,
                    },
                );
            }
            Ok(Next::On)
        };
        let beside = if reads_both { own } else { &[] };
        let mut wanted = self.wanted().subscriptions(subject.time, subject.time);
        if reads_both {
            wanted = wanted.publications(Time::MIN, Time::MAX);
        }
        let walk = Walk {
            snapshot,
            tree: self.trees.subscriptions,
            spans: &spans,
            optional: beside,
            wanted: &wanted,
            cost: &cost,
        };
        let is_whole = walk.run(&mut visit)?;
        self.count(&cost);
        let was_read = reads_both && is_whole;
        self.filter_matches(found, earlier, was_read, snapshot, topic, cells, subject)
    }

    /// Drops subscriptions whose number changed too little, and self-joins of users that receive
    /// the publication by an earlier subscription.
    #[allow(
        clippy::too_many_arguments,
        reason = "the second half of `subscribers`"
    )]
    fn filter_matches(
        &self,
        mut found: BTreeMap<Seq, Found>,
        earlier: Earlier,
        was_read: bool,
        snapshot: &Snapshot,
        topic: &Topic,
        cells: &[Cell],
        subject: &Subject<'_>,
    ) -> Result<Vec<Match>> {
        let changes: Vec<StoredChange> = found.values().filter_map(|f| f.change.clone()).collect();
        if !changes.is_empty() {
            let mut befores = BTreeMap::new();
            for change in &changes {
                if befores.contains_key(&change.path) {
                    continue;
                }
                let number = self.compiled.number(&change.path)?;
                let known = was_read && earlier.decides(&number);
                let before = if known {
                    earlier.number(&number)
                } else {
                    self.number_before(snapshot, number, topic, cells, subject.time)?
                };
                befores.insert(change.path.clone(), before);
            }
            for (path, before) in befores {
                let now = self.compiled.number(&path)?.find(subject.body);
                found.retain(|_, found| {
                    let change = found.change.as_ref().filter(|change| change.path == path);
                    change.is_none_or(|change| change.is_met(now, before))
                });
            }
        }
        let mut users: HashSet<Vec<u8>> = HashSet::new();
        let kept = found.into_values().filter(|found| {
            let user = &found.matched.user;
            let is_new = user.is_empty() || !users.contains(user);
            if is_new && found.change.is_none() {
                users.insert(user.clone());
            }
            is_new || !found.joins
        });
        Ok(kept.map(|found| found.matched).collect())
    }

    /// The number in the newest earlier publication of the same lists that has one.
    fn number_before(
        &self,
        snapshot: &Snapshot,
        number: Arc<NumberAt>,
        topic: &Topic,
        cells: &[Cell],
        time: Time,
    ) -> Result<Option<f64>> {
        let mut earlier = Earlier::new(time);
        earlier.wanted = Some(number.clone());
        let spans = tidy(list_keys(topic, cells).map(Span::key).collect());
        let cost = snapshot.cost();
        let tree = self.trees.publications;
        let wanted = self.wanted().publications(Time::MIN, Time::MAX);
        walk(snapshot, tree, &spans, &wanted, &cost, &mut |_, raw| {
            earlier.visit(raw)
        })?;
        self.count(&cost);
        Ok(earlier.number(&number))
    }
}

/// True if the list at a key holds subscriptions to the topic, in a cell that overlaps one of
/// these.
pub(crate) fn is_for(key: &[u8], topic: &Topic, cells: &[Cell]) -> bool {
    let Some(key) = ListKey::parse(key) else {
        return false;
    };
    let List::Subscriptions(reach, _) = key.list else {
        return false;
    };
    let meets = |cell: &Cell| {
        cell.quarters().starts_with(key.cell) || key.cell.starts_with(cell.quarters())
    };
    TopicFilter::of(key.topic, reach).matches(topic) && cells.iter().any(meets)
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;

/// The newest earlier publications in the lists of a publication.
struct Earlier {
    time: Time,
    bodies: BTreeMap<Seq, Vec<u8>>,
    /// Only publications with this number are collected.
    wanted: Option<Arc<NumberAt>>,
    is_cut: bool,
}

impl Earlier {
    /// The number of publications to collect in the walk for subscriptions: usually the newest has
    /// the number.
    const MOST: usize = 1;

    fn new(time: Time) -> Earlier {
        Earlier {
            time,
            bodies: BTreeMap::new(),
            wanted: None,
            is_cut: false,
        }
    }

    fn visit(&mut self, raw: &Raw<'_>) -> Result<Next> {
        let Element::Publication(publication) = raw.decode()? else {
            return Ok(Next::On);
        };
        if !publication.is_alive(self.time) {
            return Ok(Next::On);
        }
        if let Some(number) = &self.wanted {
            if number.find(publication.body).is_none() {
                return Ok(Next::On);
            }
            self.bodies.insert(raw.seq, publication.body.to_vec());
            return Ok(Next::EndList);
        }
        self.bodies.insert(raw.seq, publication.body.to_vec());
        self.is_cut = self.bodies.len() >= Earlier::MOST;
        Ok(if self.is_cut { Next::EndList } else { Next::On })
    }

    /// True if the previous number is known, or known not to exist.
    fn decides(&self, number: &NumberAt) -> bool {
        !self.is_cut || self.number(number).is_some()
    }

    fn number(&self, number: &NumberAt) -> Option<f64> {
        let newest_first = self.bodies.values().rev();
        newest_first.filter_map(|body| number.find(body)).next()
    }
}
