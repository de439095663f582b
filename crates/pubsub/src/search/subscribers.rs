//! GetSubscribers (the paper's Algorithm 2): the stored subscriptions that match a publication.
//!
//! One walk reads the lists in which they can be. A subscription to changes also needs the newest
//! earlier publication in the lists of the publication, which the same walk often meets.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use esker::{Result, Seq};

use crate::broker::{Inner, View};
use crate::forms::body::NumberAt;
use crate::forms::cell::Cell;
use crate::forms::element::{Element, RawElement, StoredChange, Time, lives_at};
use crate::forms::keys::{List, ListKey};
use crate::forms::message::Match;
use crate::forms::topic::{Topic, TopicFilter};
use crate::lists::select;
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
    /// Publications of its batch that are before it, which the view does not have.
    batched: &'a [BatchedBefore<'a>],
    /// The subscriptions that admit the publication, by their numbers.
    candidates: BTreeMap<Seq, Candidate>,
    /// The earlier publications that the walk for subscriptions has met.
    earlier: EarlierPublications,
    /// True if that walk has visited all lists of the publication.
    has_read_earlier: bool,
    list: Option<CurrentList>,
}

/// A publication that is stored in the same write, before the one that is matched.
pub(crate) struct BatchedBefore<'a> {
    /// The keys of its lists.
    pub(crate) lists: &'a [Vec<u8>],
    pub(crate) body: &'a [u8],
    pub(crate) time: Time,
    pub(crate) expires: Time,
}

/// A list of subscriptions that is being read.
struct CurrentList {
    key: Vec<u8>,
    /// True if its subscriptions can match.
    can_match: bool,
}

/// A subscription whose interval, place and condition admit the publication.
struct Candidate {
    matched: Match,
    is_self_join: bool,
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
            batched: &[],
            candidates: BTreeMap::new(),
            earlier: EarlierPublications::new(parts.time),
            has_read_earlier: false,
            list: None,
        }
    }

    /// The same behind publications of its own batch.
    pub(crate) fn behind(mut self, batched: &'a [BatchedBefore<'a>]) -> Matcher<'a> {
        self.batched = batched;
        self
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
        let mut spans = select::for_publication(known, self.topic, self.cells, self.parts.body);
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
        if !self.enter_list(key)? {
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
        if subscription.ended.is_some() {
            return Ok(Next::Continue);
        }
        let cache = &self.inner.match_cache;
        if cache.admits(&subscription.parts(), &self.parts)? {
            let candidate = Candidate {
                matched: Match {
                    subscription: subscription.id,
                    user: subscription.user.to_vec(),
                    tag: subscription.tag.to_vec(),
                },
                is_self_join: subscription.is_self_join,
                change: subscription.change,
            };
            self.candidates.insert(subscription.id, candidate);
        }
        Ok(Next::Continue)
    }

    /// Notes that the list with this key is being read. Returns true if its subscriptions can
    /// match.
    fn enter_list(&mut self, key: &[u8]) -> Result<bool> {
        let list = match self.list.take() {
            Some(list) if list.key == key => list,
            _ => CurrentList {
                key: key.to_vec(),
                can_match: holds_subscriptions_to(key, self.topic, self.cells)?,
            },
        };
        Ok(self.list.insert(list).can_match)
    }

    /// Drops subscriptions to changes of a number that changed too little.
    fn drop_small_changes(&mut self) -> Result<()> {
        let changes = self.candidates.values();
        let changes = changes.filter_map(|candidate| candidate.change.as_ref());
        let paths: BTreeSet<Arc<str>> = changes.map(|change| change.path.clone()).collect();
        for path in paths {
            let number = self.inner.match_cache.number(&path)?;
            let now = number.find(self.parts.body);
            let batched = self.batched_number(&number);
            let previous = if batched.is_some() {
                batched
            } else if self.has_read_earlier && self.earlier.decides(&number) {
                self.earlier.newest_number(&number)
            } else {
                self.previous_number(number)?
            };
            self.candidates.retain(|_, candidate| {
                let change = candidate.change.as_ref();
                let change = change.filter(|change| change.path == path);
                change.is_none_or(|change| change.threshold.is_exceeded(now, previous))
            });
        }
        Ok(())
    }

    /// The number in the newest publication of its batch that is before it in one of its lists.
    fn batched_number(&self, number: &NumberAt) -> Option<f64> {
        let is_earlier = |batched: &&BatchedBefore<'_>| {
            lives_at(batched.expires, self.parts.time.max(batched.time))
                && batched
                    .lists
                    .iter()
                    .any(|list| self.own_lists.contains(list))
        };
        let mut newest_first = self.batched.iter().rev().filter(is_earlier);
        newest_first.find_map(|batched| number.find(batched.body))
    }

    /// The number in the newest earlier publication of the same lists that has one.
    fn previous_number(&self, number: Arc<NumberAt>) -> Result<Option<f64>> {
        let inner = self.inner;
        let snapshot = &self.view.snapshot;
        let mut earlier = EarlierPublications::with_number(self.parts.time, number.clone());
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
        // In the order of numbers, so that of a user's subscriptions the first counts.
        let kept = self.candidates.into_values().filter(|candidate| {
            let user = &candidate.matched.user;
            let is_new = user.is_empty() || !users.contains(user);
            if is_new && candidate.change.is_none() {
                users.insert(user.clone());
            }
            is_new || !candidate.is_self_join
        });
        kept.map(|candidate| candidate.matched).collect()
    }
}

/// True if the list at a key holds subscriptions to the topic, in a cell that overlaps one of
/// these.
///
/// # Errors
/// [`esker::Error::Damaged`] if it is not the key of a list.
pub(crate) fn holds_subscriptions_to(key: &[u8], topic: &Topic, cells: &[Cell]) -> Result<bool> {
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
    /// If set, the newest publication of each list that has this number is collected. If not, the
    /// newest few of all, since the walk does not know yet which numbers are needed.
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

    fn with_number(time: Time, number: Arc<NumberAt>) -> EarlierPublications {
        EarlierPublications {
            number: Some(number),
            ..EarlierPublications::new(time)
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
