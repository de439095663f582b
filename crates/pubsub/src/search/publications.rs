//! GetData (the paper's Algorithms 1, 3, 4 and 5): the stored publications that match a
//! subscription.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker::extension::Snapshot;
use esker::{Result, Seq};
use esker_coding::Misplaced;

use crate::broker::{Inner, View};
use crate::forms::body::NumberAt;
use crate::forms::element::{Element, RawElement, StoredPublication, Time};
use crate::forms::keys::{self, List, ListKey};
use crate::forms::message::Notification;
use crate::forms::topic::Topic;
use crate::lists::select;
use crate::lists::shape::KnownShapes;
use crate::lists::walk::{Next, Span, normalise, walk};
use crate::matching::PublicationParts;
use crate::search::prepared::PreparedSubscription;
use crate::search::self_join::{JoinPrecedence, SelfJoin};

/// A publication that the interval, the place and the condition of a subscription admit.
struct Candidate {
    notification: Notification,
    /// The number whose changes the subscription receives.
    number: Option<f64>,
    /// The number in the newest earlier publication in its lists that has one, as far as they are
    /// read.
    previous: Option<EarlierNumber>,
}

/// The number in a publication, and its sequence number.
#[derive(Clone, Copy)]
struct EarlierNumber {
    seq: Seq,
    number: f64,
}

impl Candidate {
    /// Takes the number of an earlier publication if that is newer than the previous one so far:
    /// lists are read in no particular order.
    fn note_previous(&mut self, earlier: EarlierNumber) {
        if self.previous.is_none_or(|known| known.seq < earlier.seq) {
            self.previous = Some(earlier);
        }
    }
}

/// A list of publications that is being read.
struct CurrentList {
    key: Vec<u8>,
    /// Its topic, if its publications can match.
    topic: Option<Arc<Topic>>,
}

/// Collects the publications that match a subscription.
struct PublicationSearch<'a> {
    inner: &'a Inner,
    snapshot: &'a Snapshot,
    prepared: &'a PreparedSubscription,
    page: Page,
    /// Finds the number whose changes the subscription receives.
    number: Option<Arc<NumberAt>>,
    /// By the number of the publication; at most `page.max_len`, the oldest, which is no limit for
    /// subscriptions to changes.
    candidates: BTreeMap<Seq, Candidate>,
    /// By list, the candidates whose previous number is not known yet. Empty unless the
    /// subscription is one to changes.
    waiting: HashMap<Vec<u8>, Vec<Seq>>,
    list: Option<CurrentList>,
}

impl PublicationSearch<'_> {
    /// Takes an element of a list of publications if it matches. Elements of a list come newest
    /// first.
    fn visit(&mut self, key: &[u8], raw: &RawElement<'_>) -> Result<Next> {
        let Some(topic) = self.enter_list(key)? else {
            return Ok(Next::EndList);
        };
        let Element::Publication(publication) = raw.decode()? else {
            return Ok(Next::Continue);
        };
        let is_waited_for = self.waiting.contains_key(key);
        // All further elements of the list are older.
        let is_behind = publication.latest < self.prepared.from || raw.seq <= self.page.after;
        if is_behind && !is_waited_for {
            return Ok(Next::EndList);
        }
        if !publication.is_alive(self.prepared.made_at) {
            self.inner.note_ended(self.snapshot, publication.expires);
            return Ok(Next::Continue);
        }
        let is_outside = raw.seq < self.prepared.begins
            || self.prepared.ended.is_some_and(|ended| raw.seq >= ended)
            || raw.seq <= self.page.after;
        let is_admitted = !is_outside && self.admits(&publication)?;
        if !is_admitted && !is_waited_for {
            return Ok(Next::Continue);
        }
        let seq = raw.seq;
        let number = self.number_in(&publication);
        if let Some(number) = number {
            self.note_previous(key, EarlierNumber { seq, number })?;
        }
        if is_admitted {
            if number.is_some() {
                self.waiting.entry(key.to_vec()).or_default().push(seq);
            }
            // A publication in several cells is met several times.
            self.candidates.entry(seq).or_insert_with(|| Candidate {
                notification: Notification::of(&publication, seq, Topic::clone(&topic)),
                number,
                previous: None,
            });
        }
        if self.candidates.len() > self.page.max_len {
            self.candidates.pop_last();
        }
        Ok(Next::Continue)
    }

    /// Notes that the list with this key is being read. Returns its topic if its publications can
    /// match.
    fn enter_list(&mut self, key: &[u8]) -> Result<Option<Arc<Topic>>> {
        let list = match self.list.take() {
            Some(list) if list.key == key => list,
            _ => CurrentList {
                key: key.to_vec(),
                topic: self.topic_of(key)?.map(Arc::new),
            },
        };
        Ok(self.list.insert(list).topic.clone())
    }

    /// The topic of a list, if its publications can match the subscription.
    fn topic_of(&self, key: &[u8]) -> Result<Option<Topic>> {
        let parsed = ListKey::parse(key)?;
        if parsed.list != List::Publications {
            return Ok(None);
        }
        let topic = parsed.topic()?;
        let is_for = self.prepared.topics.matches(&topic) && parsed.is_in(&self.prepared.cells);
        Ok(is_for.then_some(topic))
    }

    /// The number of a publication whose changes the subscription receives.
    fn number_in(&self, publication: &StoredPublication<'_>) -> Option<f64> {
        self.number.as_ref()?.find(publication.body)
    }

    /// True if the interval, the place and the condition of the subscription admit a publication.
    fn admits(&self, publication: &StoredPublication<'_>) -> Result<bool> {
        let place = self.inner.match_cache.extent(&publication.place)?;
        let parts = PublicationParts {
            time: publication.time,
            place: &place,
            body: publication.body,
        };
        self.inner
            .match_cache
            .admits(&self.prepared.parts(), &parts)
    }

    /// Notes the number of a publication for the candidates that wait for the previous one of its
    /// list.
    fn note_previous(&mut self, key: &[u8], earlier: EarlierNumber) -> Result<()> {
        for seq in self.waiting.remove(key).into_iter().flatten() {
            let candidate = self.candidates.get_mut(&seq);
            let candidate = candidate.ok_or_else(|| Misplaced::here())?;
            candidate.note_previous(earlier);
        }
        Ok(())
    }

    /// Reads the other lists of the candidates, in cells that the subscription does not cover: a
    /// publisher finds the previous publication there, too.
    fn read_elsewhere(&mut self) -> Result<()> {
        let (inner, snapshot, prepared) = (self.inner, self.snapshot, self.prepared);
        let is_everywhere = prepared.cells.iter().any(|own| own.level() == 0);
        let Some(number) = self.number.as_ref().filter(|_| !is_everywhere) else {
            return Ok(());
        };
        // By list, the candidates whose previous number is not known yet, oldest first.
        let mut waiting: HashMap<Vec<u8>, Vec<Seq>> = HashMap::new();
        for (seq, candidate) in &self.candidates {
            if candidate.number.is_none() {
                continue;
            }
            let Notification { topic, place, .. } = &candidate.notification;
            for cell in inner.cells(&*inner.match_cache.extent(place)?) {
                if !prepared.cells.iter().any(|own| own.meets(&cell)) {
                    let key = keys::list(topic.encoded(), cell.quarters(), List::Publications);
                    waiting.entry(key).or_default().push(*seq);
                }
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        let spans = normalise(waiting.keys().cloned().map(Span::key).collect());
        let times = inner.time_filter().with_publications(Time::MIN, Time::MAX);
        let cost = snapshot.cost();
        let candidates = &mut self.candidates;
        let mut visit = |key: &[u8], raw: &RawElement<'_>| {
            let seqs = waiting.get_mut(key).ok_or_else(|| Misplaced::here())?;
            let Element::Publication(publication) = raw.decode()? else {
                return Ok(Next::Continue);
            };
            if !publication.is_alive(prepared.made_at) {
                inner.note_ended(snapshot, publication.expires);
                return Ok(Next::Continue);
            }
            if let Some(number) = number.find(publication.body) {
                let seq = raw.seq;
                while let Some(waiting) = seqs.pop_if(|waiting| *waiting > seq) {
                    let candidate = candidates.get_mut(&waiting);
                    let candidate = candidate.ok_or_else(|| Misplaced::here())?;
                    candidate.note_previous(EarlierNumber { seq, number });
                }
            }
            Ok(if seqs.is_empty() {
                Next::EndList
            } else {
                Next::Continue
            })
        };
        let tree = inner.trees.publications;
        walk(snapshot, tree, &spans, &times, &cost, &mut visit)?;
        inner.add_reads(&cost);
        Ok(())
    }
}

/// The part of a subscription's publications to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    /// Only publications with greater numbers: all if it is 0.
    pub(crate) after: Seq,
    /// The maximum number of publications; the oldest are returned.
    pub(crate) max_len: usize,
    /// For a self-join.
    pub(crate) precedence: JoinPrecedence,
}

impl Page {
    pub(crate) const ALL: Page = Page {
        after: 0,
        max_len: usize::MAX,
        precedence: JoinPrecedence::AsSubscribed,
    };
}

impl Inner {
    /// The publications in a snapshot that match a subscription which is not in it, oldest first.
    pub(crate) fn past_publications(
        &self,
        view: &View,
        prepared: &PreparedSubscription,
    ) -> Result<Vec<Notification>> {
        self.page(view, prepared, Page::ALL)
    }

    /// As [`Inner::past_publications`], but only those with a number greater than `after`.
    pub(crate) fn publications_after(
        &self,
        view: &View,
        prepared: &PreparedSubscription,
        after: Seq,
    ) -> Result<Vec<Notification>> {
        self.page(view, prepared, Page { after, ..Page::ALL })
    }

    /// As [`Inner::past_publications`], but only one page of them.
    ///
    /// Reads the lists in one walk; with two trees, a self-join reads its lists in a walk of its
    /// own.
    pub(crate) fn page(
        &self,
        view: &View,
        prepared: &PreparedSubscription,
        page: Page,
    ) -> Result<Vec<Notification>> {
        let has_ended = prepared.from > prepared.to;
        if has_ended || prepared.from > self.latest.load(Ordering::Acquire) {
            return Ok(Vec::new());
        }
        let change = prepared.change.as_ref();
        let number = change.map(|change| self.match_cache.number(&change.path));
        // Self-joins and changes depend on other elements: the page is cut when these are known.
        let is_cut_later = prepared.is_self_join || change.is_some();
        let mut search = PublicationSearch {
            inner: self,
            snapshot: &view.snapshot,
            prepared,
            page: Page {
                max_len: if is_cut_later {
                    usize::MAX
                } else {
                    page.max_len
                },
                ..page
            },
            number: number.transpose()?,
            candidates: BTreeMap::new(),
            waiting: HashMap::new(),
            list: None,
        };
        let mut join =
            (prepared.is_self_join).then(|| SelfJoin::new(self, view, prepared, page.precedence));
        search.read(&view.known, join.as_mut())?;
        search.read_elsewhere()?;
        let mut publications = search.into_notifications();
        if let Some(join) = join {
            publications = join.without_received(publications)?;
        }
        publications.truncate(page.max_len);
        Ok(publications)
    }
}

impl PublicationSearch<'_> {
    /// Reads the lists of the subscription's topics and cells, and collects for a self-join the
    /// other subscriptions in them.
    fn read(&mut self, known: &KnownShapes, join: Option<&mut SelfJoin<'_>>) -> Result<()> {
        let (inner, prepared) = (self.inner, self.prepared);
        let mut spans = select::for_subscription(known, &prepared.topics, &prepared.cells);
        let mut times = if prepared.change.is_some() {
            // The publication before the first match is needed, too.
            inner.time_filter().with_publications(Time::MIN, Time::MAX)
        } else {
            (inner.time_filter()).with_publications(prepared.from, prepared.to)
        };
        let mut joined_in_walk = None;
        if let Some(join) = join {
            let subscriptions = select::for_self_join(known, &prepared.topics, &prepared.cells);
            if inner.is_one_tree() {
                // One walk reads both lists of each topic (Algorithm 4).
                spans.extend(subscriptions);
                times = times.with_subscriptions(prepared.from, Time::MAX);
                joined_in_walk = Some(join);
            } else {
                join.read(normalise(subscriptions))?;
            }
        }
        let spans = normalise(spans);
        let snapshot = self.snapshot;
        let cost = snapshot.cost();
        let mut visit = |key: &[u8], raw: &RawElement<'_>| {
            if raw.is_publication() {
                self.visit(key, raw)
            } else if let Some(join) = &mut joined_in_walk {
                join.visit(key, raw)
            } else {
                Ok(Next::EndList)
            }
        };
        let tree = inner.trees.publications;
        walk(snapshot, tree, &spans, &times, &cost, &mut visit)?;
        inner.add_reads(&cost);
        if let Some(join) = joined_in_walk {
            join.note_read(spans);
        }
        Ok(())
    }

    /// The publications found, oldest first, without those whose number changed too little.
    fn into_notifications(self) -> Vec<Notification> {
        let change = self.prepared.change.as_ref();
        let candidates = self.candidates.into_values().filter(|candidate| {
            let previous = candidate.previous.map(|earlier| earlier.number);
            change.is_none_or(|change| change.threshold.is_exceeded(candidate.number, previous))
        });
        candidates.map(|candidate| candidate.notification).collect()
    }
}
