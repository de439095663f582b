//! GetSubscribers (the paper's Algorithm 2): the stored subscriptions that match a publication.
//!
//! One walk reads the lists in which they can be. A subscription to changes also needs the newest
//! earlier publication in the lists of the publication, which the same walk often meets.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use esker::{Result, Seq};

use crate::broker::{Inner, View};
use crate::forms::cell::Cell;
use crate::forms::element::{Element, RawElement, StoredChange, Time};
use crate::forms::keys::{List, ListKey};
use crate::forms::message::Match;
use crate::forms::topic::{Topic, TopicFilter};
use crate::lists::spans::{self, NumberAt};
use crate::lists::walk::{Next, Span, Walk, normalise, walk};
use crate::matching::PublicationParts;

/// Finds the subscriptions in a snapshot that match a publication.
pub(crate) struct Matcher<'a> {
    inner: &'a Inner,
    view: &'a View,
    topic: &'a Topic,
    cells: &'a [Cell],
    /// The keys of the publication's lists.
    own_lists: &'a [Vec<u8>],
    parts: PublicationParts<'a>,
    /// By the number of the subscription.
    found: BTreeMap<Seq, FoundSubscription>,
    /// The earlier publications that the walk for subscriptions has met.
    earlier: EarlierPublications,
    /// True if that walk has visited all lists of the publication.
    has_read_earlier: bool,
    /// The key of the current list of subscriptions.
    list: Vec<u8>,
    /// True if the subscriptions of the current list can match.
    can_list_match: bool,
}

/// A subscription found for a publication.
struct FoundSubscription {
    matched: Match,
    joins: bool,
    change: Option<StoredChange>,
}

impl<'a> Matcher<'a> {
    /// For a publication to `topic` in `cells`, whose lists have the keys `own_lists`.
    pub(crate) fn new(
        inner: &'a Inner,
        view: &'a View,
        topic: &'a Topic,
        cells: &'a [Cell],
        own_lists: &'a [Vec<u8>],
        parts: PublicationParts<'a>,
    ) -> Matcher<'a> {
        Matcher {
            inner,
            view,
            topic,
            cells,
            own_lists,
            parts,
            found: BTreeMap::new(),
            earlier: EarlierPublications::new(parts.time),
            has_read_earlier: false,
            list: Vec::new(),
            can_list_match: false,
        }
    }

    /// The matching subscriptions.
    ///
    /// # Errors
    /// Any read error.
    pub(crate) fn subscribers(mut self) -> Result<Vec<Match>> {
        self.walk()?;
        self.drop_small_changes()?;
        Ok(self.into_matches())
    }

    /// Reads the lists of subscriptions that the publication meets.
    fn walk(&mut self) -> Result<()> {
        let View { snapshot, known } = self.view;
        let (inner, time) = (self.inner, self.parts.time);
        let mut spans = spans::for_publication(known, self.topic, self.cells, self.parts.body);
        if spans.is_empty() {
            return Ok(());
        }
        let mut times = inner.time_filter().with_subscriptions(time, time);
        // One walk reads subscriptions and, where that costs nothing, earlier publications: a
        // publication that matches no subscription needs no previous number.
        let reads_both = known.has_changes && inner.is_one_tree() && self.cells.len() == 1;
        let mut optional: &[Vec<u8>] = &[];
        if reads_both {
            optional = self.own_lists;
            spans.extend(optional.iter().cloned().map(Span::key));
            times = times.with_publications(Time::MIN, Time::MAX);
        }
        let cost = snapshot.cost();
        let walk = Walk {
            snapshot,
            tree: inner.trees.subscriptions,
            spans: &normalise(spans),
            optional,
            times: &times,
            cost: &cost,
        };
        let is_whole = walk.run(&mut |key, raw| self.visit(key, raw))?;
        inner.add_reads(&cost);
        self.has_read_earlier = reads_both && is_whole;
        Ok(())
    }

    /// Takes an element of a list: a subscription if it matches, or an earlier publication.
    fn visit(&mut self, key: &[u8], raw: &RawElement<'_>) -> Result<Next> {
        if raw.is_publication() {
            // Ranges contain publications of other nodes, too.
            return if self.own_lists.iter().any(|own| own == key) {
                self.earlier.visit(raw)
            } else {
                Ok(Next::EndList)
            };
        }
        if self.list != key {
            self.list = key.to_vec();
            self.can_list_match = is_for(key, self.topic, self.cells)?;
        }
        if !self.can_list_match {
            return Ok(Next::EndList);
        }
        // Before it is decoded: most stored subscriptions may have ended.
        if let Some(to) = raw.subscription_end().filter(|to| *to < self.parts.time) {
            let ended = to.saturating_add(1);
            self.inner.note_ended(&self.view.snapshot, ended);
            return Ok(Next::Continue);
        }
        let Element::Subscription(subscription) = raw.decode()? else {
            return Ok(Next::Continue);
        };
        let admits = |parts| self.inner.match_cache.admits(&subscription, parts);
        if subscription.ended == 0 && admits(&self.parts)? {
            let matched = Match {
                subscription: subscription.id,
                user: subscription.user.to_vec(),
                tag: subscription.tag.to_vec(),
            };
            let found = FoundSubscription {
                matched,
                joins: subscription.joins,
                change: subscription.change,
            };
            self.found.insert(subscription.id, found);
        }
        Ok(Next::Continue)
    }

    /// Drops subscriptions to changes of a number that changed too little.
    fn drop_small_changes(&mut self) -> Result<()> {
        let mut paths: Vec<Arc<str>> = Vec::new();
        for change in self
            .found
            .values()
            .filter_map(|found| found.change.as_ref())
        {
            if !paths.contains(&change.path) {
                paths.push(change.path.clone());
            }
        }
        for path in paths {
            let number = self.inner.match_cache.number(&path)?;
            let now = number.find(self.parts.body);
            let previous = if self.has_read_earlier && self.earlier.decides(&number) {
                self.earlier.newest_number(&number)
            } else {
                self.previous_number(number)?
            };
            self.found.retain(|_, found| {
                let change = found.change.as_ref().filter(|change| change.path == path);
                change.is_none_or(|change| change.is_met(now, previous))
            });
        }
        Ok(())
    }

    /// The number in the newest earlier publication of the same lists that has one.
    fn previous_number(&self, number: Arc<NumberAt>) -> Result<Option<f64>> {
        let inner = self.inner;
        let snapshot = &self.view.snapshot;
        let mut earlier = EarlierPublications::new(self.parts.time);
        earlier.number = Some(number.clone());
        let spans = normalise(self.own_lists.iter().cloned().map(Span::key).collect());
        let cost = snapshot.cost();
        let tree = inner.trees.publications;
        let times = inner.time_filter().with_publications(Time::MIN, Time::MAX);
        walk(snapshot, tree, &spans, &times, &cost, &mut |_, raw| {
            earlier.visit(raw)
        })?;
        inner.add_reads(&cost);
        Ok(earlier.newest_number(&number))
    }

    /// The matches, without self-joins of users that receive the publication by an earlier
    /// subscription.
    fn into_matches(self) -> Vec<Match> {
        let mut users: HashSet<Vec<u8>> = HashSet::new();
        let kept = self.found.into_values().filter(|found| {
            let user = &found.matched.user;
            let is_new = user.is_empty() || !users.contains(user);
            if is_new && found.change.is_none() {
                users.insert(user.clone());
            }
            is_new || !found.joins
        });
        kept.map(|found| found.matched).collect()
    }
}

/// True if the list at a key holds subscriptions to the topic, in a cell that overlaps one of
/// these.
///
/// # Errors
/// [`esker::Error::Damaged`] if it is not the key of a list.
pub(crate) fn is_for(key: &[u8], topic: &Topic, cells: &[Cell]) -> Result<bool> {
    let key = ListKey::parse(key)?;
    let List::Subscriptions(reach, _) = key.list else {
        return Ok(false);
    };
    Ok(TopicFilter::of(key.topic, reach).matches(topic) && key.is_in(cells))
}

/// The newest earlier publications in the lists of a publication.
struct EarlierPublications {
    /// The time of the publication: earlier ones that have expired by then do not count.
    time: Time,
    /// By the number of the publication.
    bodies: BTreeMap<Seq, Vec<u8>>,
    /// If set, only publications with this number are collected, the newest of each list.
    number: Option<Arc<NumberAt>>,
    /// True if there may be more publications than those in `bodies`.
    is_cut: bool,
}

impl EarlierPublications {
    /// The number of publications to collect in the walk for subscriptions: usually the newest has
    /// the number.
    const MAX_BODIES: usize = 1;

    fn new(time: Time) -> EarlierPublications {
        EarlierPublications {
            time,
            bodies: BTreeMap::new(),
            number: None,
            is_cut: false,
        }
    }

    /// Takes an element of one of the lists, newest first within the list.
    fn visit(&mut self, raw: &RawElement<'_>) -> Result<Next> {
        let Element::Publication(publication) = raw.decode()? else {
            return Ok(Next::Continue);
        };
        if !publication.is_alive(self.time) {
            return Ok(Next::Continue);
        }
        if let Some(number) = &self.number {
            if number.find(publication.body).is_none() {
                return Ok(Next::Continue);
            }
            self.bodies.insert(raw.seq, publication.body.to_vec());
            return Ok(Next::EndList);
        }
        self.bodies.insert(raw.seq, publication.body.to_vec());
        self.is_cut = self.bodies.len() >= EarlierPublications::MAX_BODIES;
        Ok(if self.is_cut {
            Next::EndList
        } else {
            Next::Continue
        })
    }

    /// True if the previous number is known, or known not to exist.
    fn decides(&self, number: &NumberAt) -> bool {
        !self.is_cut || self.newest_number(number).is_some()
    }

    /// The number in the newest collected publication that has it.
    fn newest_number(&self, number: &NumberAt) -> Option<f64> {
        let mut newest_first = self.bodies.values().rev();
        newest_first.find_map(|body| number.find(body))
    }
}
