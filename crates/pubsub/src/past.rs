//! GetData (the paper's Algorithms 1, 3, 4 and 5): the stored publications that match a
//! subscription.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker::extension::{Cost, Snapshot};
use esker::{Result, Seq};
use esker_coding::Misplaced;

use crate::broker::{Inner, View};
use crate::cell::Cell;
use crate::element::{Element, NEVER, Raw, StoredPublication, StoredSubscription, Time};
use crate::keys::{List, ListKey};
use crate::matching::Subject;
use crate::message::Notification;
use crate::spans::{self, NumberAt};
use crate::subscribe::Ready;
use crate::subscribers::is_for;
use crate::topic::Topic;
use crate::walk::{Next, Span, Visit, tidy, walk};

/// A publication found for a subscription.
struct Candidate {
    notification: Notification,
    /// The number whose changes the subscription receives, and the previous one in its list.
    number: Option<f64>,
    before: Option<f64>,
}

/// Collects the publications that match a subscription.
struct Past<'a> {
    inner: &'a Inner,
    snapshot: &'a Snapshot,
    ready: &'a Ready,
    page: Page,
    stored: StoredSubscription<'a>,
    /// The number whose changes it receives.
    number: Option<Arc<NumberAt>>,
    found: BTreeMap<Seq, Candidate>,
    /// By list, the candidates whose previous number is not known yet.
    waiting: HashMap<Vec<u8>, Vec<Seq>>,
    /// The key of the current list, and its topic if its publications can match.
    checked: (Vec<u8>, Option<Topic>),
}

/// Another subscription of the same user: its list, and its stored form.
struct UserSubscription {
    key: Vec<u8>,
    entry: Vec<u8>,
}

impl Past<'_> {
    fn visit(&mut self, key: &[u8], raw: &Raw<'_>) -> Result<Next> {
        if self.checked.0 != key {
            self.checked = (key.to_vec(), self.topic_of(key));
        }
        if self.checked.1.is_none() {
            return Ok(Next::EndList);
        }
        let Element::Publication(publication) = raw.decode()? else {
            return Ok(Next::On);
        };
        let is_waited_for = self.waiting.get(key).is_some_and(|seqs| !seqs.is_empty());
        // The newest come first: all others are older.
        let is_behind = publication.latest < self.ready.from || raw.seq <= self.page.after;
        if is_behind && !is_waited_for {
            return Ok(Next::EndList);
        }
        if !publication.is_alive(self.ready.made) {
            self.inner.note_ended(self.snapshot, publication.expires);
            return Ok(Next::On);
        }
        let mut number = None;
        if is_waited_for {
            number = self.number_in(&publication);
            if let Some(before) = number {
                self.set_previous(key, before);
            }
        }
        let is_outside = raw.seq < self.ready.begins
            || self.ready.ended != 0 && raw.seq >= self.ready.ended
            || raw.seq <= self.page.after;
        if is_outside || !self.admits(&publication)? {
            return Ok(Next::On);
        }
        let Some(topic) = self.checked.1.clone() else {
            return Ok(Next::EndList);
        };
        let number = if is_waited_for {
            number
        } else {
            self.number_in(&publication)
        };
        let new = self.found.entry(raw.seq).or_insert_with(|| Candidate {
            notification: Notification {
                seq: raw.seq,
                topic,
                time: publication.time,
                expires: Some(publication.expires).filter(|expires| *expires != NEVER),
                place: publication.place.clone(),
                body: publication.body.to_vec(),
            },
            number,
            before: None,
        });
        if new.number.is_some() {
            self.waiting.entry(key.to_vec()).or_default().push(raw.seq);
        }
        if self.found.len() > self.page.most {
            self.found.pop_last();
        }
        Ok(Next::On)
    }

    /// The topic of a list, if its publications can match the subscription.
    fn topic_of(&self, key: &[u8]) -> Option<Topic> {
        let parsed = ListKey::parse(key)?;
        if parsed.list != List::Publications {
            return None;
        }
        let meets = |cell: &Cell| {
            cell.quarters().starts_with(parsed.cell) || parsed.cell.starts_with(cell.quarters())
        };
        let topic = parsed.topic()?;
        (self.ready.topics.matches(&topic) && self.ready.cells.iter().any(meets)).then_some(topic)
    }

    fn number_in(&self, publication: &StoredPublication<'_>) -> Option<f64> {
        self.number.as_ref()?.find(publication.body)
    }

    fn admits(&self, publication: &StoredPublication<'_>) -> Result<bool> {
        let place = self.inner.compiled.extent(&publication.place)?;
        let subject = Subject {
            time: publication.time,
            place: &place,
            body: publication.body,
        };
        self.inner.compiled.admits(&self.stored, &subject)
    }

    /// Sets the previous number of the candidates in a list that wait for it.
    fn set_previous(&mut self, key: &[u8], number: f64) {
        for seq in self.waiting.remove(key).unwrap_or_default() {
            if let Some(candidate) = self.found.get_mut(&seq) {
                // A candidate in several lists keeps the first number found.
                candidate.before = candidate.before.or(Some(number));
            }
        }
    }
}

/// The part of a subscription's publications to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    /// Only those with greater numbers.
    pub(crate) after: Seq,
    /// The maximum number of publications; the oldest are returned.
    pub(crate) most: usize,
    /// True for self-joins as publishers decide them: of a user's subscriptions, the one with the
    /// least number receives a publication.
    pub(crate) as_told: bool,
}

impl Page {
    pub(crate) const ALL: Page = Page {
        after: 0,
        most: usize::MAX,
        as_told: false,
    };
}

impl Inner {
    /// The publications in a snapshot that match this form of a subscription, oldest first.
    pub(crate) fn past(&self, view: &View, ready: &Ready, form: Seq) -> Result<Vec<Notification>> {
        self.past_behind(view, ready, form, 0)
    }

    /// Those with a number greater than `after`.
    pub(crate) fn past_behind(
        &self,
        view: &View,
        ready: &Ready,
        form: Seq,
        after: Seq,
    ) -> Result<Vec<Notification>> {
        self.page(view, ready, form, Page { after, ..Page::ALL })
    }

    /// One page of them.
    pub(crate) fn page(
        &self,
        view: &View,
        ready: &Ready,
        form: Seq,
        page: Page,
    ) -> Result<Vec<Notification>> {
        let View { snapshot, known } = view;
        if ready.from > ready.to || ready.from > self.latest.load(Ordering::Acquire) {
            return Ok(Vec::new());
        }
        let mut publications = spans::for_subscription(known, &ready.topics, &ready.cells);
        let change = ready.change.as_ref();
        let mut past = Past {
            inner: self,
            snapshot,
            ready,
            // Self-joins and changes depend on other elements: the page is cut when these are
            // known.
            page: if ready.joins || ready.change.is_some() {
                Page {
                    most: usize::MAX,
                    ..page
                }
            } else {
                page
            },
            stored: ready.stored(form),
            number: change
                .map(|change| self.compiled.number(&change.path))
                .transpose()?,
            found: BTreeMap::new(),
            waiting: HashMap::new(),
            checked: Default::default(),
        };
        let mut got: Vec<UserSubscription> = Vec::new();
        let mut subscriptions = Vec::new();
        if ready.joins {
            subscriptions = spans::for_self_join(known, &ready.topics, &ready.cells);
        }
        let mut read = Vec::new();
        if self.is_one_tree() {
            // One walk reads both lists of each topic (Algorithm 4).
            publications.append(&mut subscriptions);
        } else if ready.joins {
            read = tidy(subscriptions);
            self.collect_of_user(snapshot, &read, ready, form, &mut got)?;
        }
        let spans = tidy(publications);
        let cost = snapshot.cost();
        let mut visit = |key: &[u8], raw: &Raw<'_>| match raw.is_publication() {
            true => past.visit(key, raw),
            false if ready.joins => collect(key, raw, ready, form, &mut got),
            false => Ok(Next::EndList),
        };
        let mut wanted = match change {
            // The publication before the first match is needed, too.
            Some(_) => self.wanted().publications(Time::MIN, Time::MAX),
            None => self.wanted().publications(ready.from, ready.to),
        };
        if ready.joins && self.is_one_tree() {
            wanted = wanted.subscriptions(ready.from, Time::MAX);
        }
        let tree = self.trees.publications;
        walk(snapshot, tree, &spans, &wanted, &cost, &mut visit)?;
        self.count(&cost);
        if self.is_one_tree() {
            read = spans;
        }
        let mut found: Vec<Candidate> = past.found.into_values().collect();
        if let Some(change) = change {
            found.retain(|candidate| change.is_met(candidate.number, candidate.before));
        }
        if ready.joins && !found.is_empty() {
            let as_told = page.as_told.then_some(ready.id);
            self.drop_received(view, ready, form, &mut found, &read, got, as_told)?;
        }
        found.truncate(page.most);
        Ok(found.into_iter().map(|found| found.notification).collect())
    }

    /// Collects the user's other subscriptions in some lists.
    fn collect_of_user(
        &self,
        snapshot: &Snapshot,
        spans: &[Span],
        ready: &Ready,
        form: Seq,
        got: &mut Vec<UserSubscription>,
    ) -> Result<()> {
        let cost: Cost = snapshot.cost();
        let visit: &mut Visit<'_> = &mut |key, raw| {
            if raw.is_publication() {
                Ok(Next::EndList)
            } else {
                collect(key, raw, ready, form, got)
            }
        };
        let wanted = self.wanted().subscriptions(ready.from, Time::MAX);
        let tree = self.trees.subscriptions;
        walk(snapshot, tree, spans, &wanted, &cost, visit)?;
        self.count(&cost);
        Ok(())
    }

    /// Drops publications that another subscription of the user received. With `as_told`, the
    /// number of this subscription, only those that the other one received first.
    #[allow(clippy::too_many_arguments, reason = "the second half of `page`")]
    fn drop_received(
        &self,
        View { snapshot, known }: &View,
        ready: &Ready,
        form: Seq,
        found: &mut Vec<Candidate>,
        read: &[Span],
        mut got: Vec<UserSubscription>,
        as_told: Option<Seq>,
    ) -> Result<()> {
        // Lists with subscriptions to these publications that were not read yet, such as those of
        // ancestors and wildcards.
        let mut elsewhere = HashSet::new();
        for candidate in found.iter() {
            let publication = &candidate.notification;
            let cells = self.cells(&*self.compiled.extent(&publication.place)?);
            elsewhere.extend(
                spans::for_publication(known, &publication.topic, &cells, &publication.body)
                    .into_iter()
                    .filter(|span| !read.iter().any(|read| read.holds(span))),
            );
        }
        let elsewhere = tidy(elsewhere.into_iter().collect());
        if !elsewhere.is_empty() {
            self.collect_of_user(snapshot, &elsewhere, ready, form, &mut got)?;
        }
        let mut kept = Vec::with_capacity(found.len());
        for candidate in found.drain(..) {
            let publication = &candidate.notification;
            let place = self.compiled.extent(&publication.place)?;
            let cells = self.cells(&place);
            let subject = Subject {
                time: publication.time,
                place: &place,
                body: &publication.body,
            };
            let mut was_received = false;
            for earlier in &got {
                let mut input = esker_coding::Reader::new(&earlier.entry);
                let subscription = crate::element::subscription(&mut input);
                let subscription = subscription.ok_or_else(|| Misplaced::here())?;
                let is_first = match as_told {
                    None => true,
                    Some(own) if publication.seq > form => {
                        // A form newer than the publication received it by a renewal, after others.
                        subscription.id < own && subscription.form < publication.seq
                    }
                    Some(_) => subscription.form < form,
                };
                if !is_first {
                    continue;
                }
                let expires = publication.expires.unwrap_or(NEVER);
                was_received |=
                    subscription.has_received(publication.seq, publication.time, expires)
                        && is_for(&earlier.key, &publication.topic, &cells)
                        && self.compiled.admits(&subscription, &subject)?;
            }
            if !was_received {
                kept.push(candidate);
            }
        }
        *found = kept;
        Ok(())
    }
}

/// Collects a subscription if it is another one of the user and its interval reaches that of
/// `ready`.
fn collect(
    key: &[u8],
    raw: &Raw<'_>,
    ready: &Ready,
    form: Seq,
    got: &mut Vec<UserSubscription>,
) -> Result<Next> {
    if raw.is_of(&ready.user)
        && let Element::Subscription(subscription) = raw.decode()?
        && subscription.form != form
        && subscription.to >= ready.from
        // Which changes it received may depend on publications that have expired since.
        && subscription.change.is_none()
    {
        let mut entry = Vec::new();
        subscription.encode(&mut entry);
        got.push(UserSubscription {
            key: key.to_vec(),
            entry,
        });
    }
    Ok(Next::On)
}
