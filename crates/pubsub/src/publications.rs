//! GetData (the paper's Algorithms 1, 3, 4 and 5): the stored publications that match a
//! subscription.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker::extension::Snapshot;
use esker::{Result, Seq};
use esker_coding::Misplaced;

use crate::broker::{Inner, View};
use crate::cell::Cell;
use crate::element::{Element, Raw, StoredPublication, StoredSubscription, Time};
use crate::join::SelfJoin;
use crate::keys::{self, List, ListKey};
use crate::matching::Subject;
use crate::message::Notification;
use crate::spans::{self, NumberAt};
use crate::subscribe::Ready;
use crate::topic::Topic;
use crate::walk::{Next, Span, tidy, walk};

/// A publication found for a subscription.
struct Candidate {
    notification: Notification,
    /// The number whose changes the subscription receives.
    number: Option<f64>,
    /// The newest earlier publication in its lists that has the number, as far as they are read.
    previous: Option<(Seq, f64)>,
}

impl Candidate {
    /// Lists are read in no particular order: the greatest sequence number decides.
    fn note_previous(&mut self, seq: Seq, number: f64) {
        if self.previous.is_none_or(|(previous, _)| previous < seq) {
            self.previous = Some((seq, number));
        }
    }
}

/// Collects the publications that match a subscription.
struct PublicationSearch<'a> {
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
    list: Vec<u8>,
    topic: Option<Topic>,
}

impl PublicationSearch<'_> {
    fn visit(&mut self, key: &[u8], raw: &Raw<'_>) -> Result<Next> {
        if self.list != key {
            self.list = key.to_vec();
            self.topic = self.topic_of(key)?;
        }
        if self.topic.is_none() {
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
            if let Some(previous) = number {
                self.note_previous(key, raw.seq, previous);
            }
        }
        let is_outside = raw.seq < self.ready.begins
            || self.ready.ended != 0 && raw.seq >= self.ready.ended
            || raw.seq <= self.page.after;
        if is_outside || !self.admits(&publication)? {
            return Ok(Next::On);
        }
        let Some(topic) = self.topic.clone() else {
            return Ok(Next::EndList);
        };
        let number = if is_waited_for {
            number
        } else {
            self.number_in(&publication)
        };
        let new = self.found.entry(raw.seq).or_insert_with(|| Candidate {
            notification: Notification::of(&publication, raw.seq, topic),
            number,
            previous: None,
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
    fn topic_of(&self, key: &[u8]) -> Result<Option<Topic>> {
        let parsed = ListKey::parse(key)?;
        if parsed.list != List::Publications {
            return Ok(None);
        }
        let meets = |cell: &Cell| {
            cell.quarters().starts_with(parsed.cell) || parsed.cell.starts_with(cell.quarters())
        };
        let topic = parsed.topic()?;
        let is_for = self.ready.topics.matches(&topic) && self.ready.cells.iter().any(meets);
        Ok(is_for.then_some(topic))
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

    /// Notes the number of a publication for the candidates that wait for the previous one of its
    /// list.
    fn note_previous(&mut self, key: &[u8], seq: Seq, number: f64) {
        for waiting in self.waiting.remove(key).unwrap_or_default() {
            if let Some(candidate) = self.found.get_mut(&waiting) {
                candidate.note_previous(seq, number);
            }
        }
    }

    /// Reads the other lists of the candidates, in cells that the subscription does not ask for: a
    /// publisher finds the previous publication there, too.
    fn read_elsewhere(&mut self) -> Result<()> {
        let (inner, snapshot, ready) = (self.inner, self.snapshot, self.ready);
        let is_everywhere = ready.cells.iter().any(|own| own.level() == 0);
        let Some(number) = self.number.as_ref().filter(|_| !is_everywhere) else {
            return Ok(());
        };
        // By list, the candidates whose previous number is not known yet, oldest first.
        let mut waiting: HashMap<Vec<u8>, Vec<Seq>> = HashMap::new();
        for (seq, candidate) in &self.found {
            let Notification { topic, place, .. } = &candidate.notification;
            if candidate.number.is_none() {
                continue;
            }
            for cell in inner.cells(&*inner.compiled.extent(place)?) {
                if !ready.cells.iter().any(|own| own.meets(&cell)) {
                    let key = keys::list(topic.encoded(), cell.quarters(), List::Publications);
                    waiting.entry(key).or_default().push(*seq);
                }
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        let spans = tidy(waiting.keys().cloned().map(Span::key).collect());
        let wanted = inner.wanted().publications(Time::MIN, Time::MAX);
        let cost = snapshot.cost();
        let found = &mut self.found;
        let mut visit = |key: &[u8], raw: &Raw<'_>| {
            let seqs = waiting.get_mut(key).ok_or_else(|| Misplaced::here())?;
            let Element::Publication(publication) = raw.decode()? else {
                return Ok(Next::On);
            };
            if !publication.is_alive(ready.made) {
                inner.note_ended(snapshot, publication.expires);
                return Ok(Next::On);
            }
            if let Some(number) = number.find(publication.body) {
                while let Some(seq) = seqs.pop_if(|seq| *seq > raw.seq) {
                    if let Some(candidate) = found.get_mut(&seq) {
                        candidate.note_previous(raw.seq, number);
                    }
                }
            }
            Ok(if seqs.is_empty() {
                Next::EndList
            } else {
                Next::On
            })
        };
        let tree = inner.trees.publications;
        walk(snapshot, tree, &spans, &wanted, &cost, &mut visit)?;
        inner.count(&cost);
        Ok(())
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
    pub(crate) as_published: bool,
}

impl Page {
    pub(crate) const ALL: Page = Page {
        after: 0,
        most: usize::MAX,
        as_published: false,
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
        let change = ready.change.as_ref();
        let number = change.map(|change| self.compiled.number(&change.path));
        // Self-joins and changes depend on other elements: the page is cut when these are known.
        let is_cut_later = ready.joins || change.is_some();
        let mut search = PublicationSearch {
            inner: self,
            snapshot,
            ready,
            page: Page {
                most: if is_cut_later { usize::MAX } else { page.most },
                ..page
            },
            stored: ready.stored(form),
            number: number.transpose()?,
            found: BTreeMap::new(),
            waiting: HashMap::new(),
            list: Vec::new(),
            topic: None,
        };
        let mut spans = spans::for_subscription(known, &ready.topics, &ready.cells);
        let mut wanted = if change.is_some() {
            // The publication before the first match is needed, too.
            self.wanted().publications(Time::MIN, Time::MAX)
        } else {
            self.wanted().publications(ready.from, ready.to)
        };
        let mut join = ready
            .joins
            .then(|| SelfJoin::new(self, view, ready, form, page.as_published));
        let joins_in_one_walk = join.is_some() && self.is_one_tree();
        if let Some(join) = &mut join {
            let subscriptions = spans::for_self_join(known, &ready.topics, &ready.cells);
            if joins_in_one_walk {
                // One walk reads both lists of each topic (Algorithm 4).
                spans.extend(subscriptions);
                wanted = wanted.subscriptions(ready.from, Time::MAX);
            } else {
                join.read(tidy(subscriptions))?;
            }
        }
        let spans = tidy(spans);
        let cost = snapshot.cost();
        let mut visit = |key: &[u8], raw: &Raw<'_>| {
            if raw.is_publication() {
                search.visit(key, raw)
            } else if let Some(join) = &mut join {
                join.visit(key, raw)
            } else {
                Ok(Next::EndList)
            }
        };
        let tree = self.trees.publications;
        walk(snapshot, tree, &spans, &wanted, &cost, &mut visit)?;
        self.count(&cost);
        if let Some(join) = join.as_mut().filter(|_| joins_in_one_walk) {
            join.note_read(spans);
        }
        search.read_elsewhere()?;
        let mut found: Vec<Candidate> = search.found.into_values().collect();
        if let Some(change) = change {
            found.retain(|candidate| {
                let previous = candidate.previous.map(|(_, number)| number);
                change.is_met(candidate.number, previous)
            });
        }
        let mut found: Vec<Notification> = found
            .into_iter()
            .map(|candidate| candidate.notification)
            .collect();
        if let Some(join) = join {
            join.drop_received(&mut found)?;
        }
        found.truncate(page.most);
        Ok(found)
    }
}
