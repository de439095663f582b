//! GetSubscribers (the paper's Algorithm 2): the stored subscriptions that match a publication.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use esker::{Result, Seq};

use crate::broker::{Inner, View};
use crate::cell::Cell;
use crate::element::{Element, Raw, StoredChange, Time};
use crate::keys::{List, ListKey};
use crate::matching::Subject;
use crate::message::Match;
use crate::spans::{self, NumberAt};
use crate::topic::{Topic, TopicFilter};
use crate::walk::{Next, Span, Walk, tidy, walk};

/// Finds the subscriptions in a snapshot that match a publication.
pub(crate) struct Matcher<'a> {
    inner: &'a Inner,
    view: &'a View,
    topic: &'a Topic,
    cells: &'a [Cell],
    /// The keys of the publication's lists.
    own: &'a [Vec<u8>],
    subject: Subject<'a>,
    /// By the number of the subscription.
    found: BTreeMap<Seq, Found>,
    /// What the walk for subscriptions has met of earlier publications.
    earlier: Earlier,
    /// True if that walk has met all that `earlier` asks for.
    has_read_earlier: bool,
    /// The key of the current list of subscriptions, and true if they can match.
    list: Vec<u8>,
    is_list_for_it: bool,
}

/// A subscription found for a publication.
struct Found {
    matched: Match,
    joins: bool,
    change: Option<StoredChange>,
}

impl<'a> Matcher<'a> {
    /// For a publication to `topic` in `cells`, whose lists have the keys `own`.
    pub(crate) fn new(
        inner: &'a Inner,
        view: &'a View,
        topic: &'a Topic,
        cells: &'a [Cell],
        own: &'a [Vec<u8>],
        subject: Subject<'a>,
    ) -> Matcher<'a> {
        Matcher {
            inner,
            view,
            topic,
            cells,
            own,
            subject,
            found: BTreeMap::new(),
            earlier: Earlier::new(subject.time),
            has_read_earlier: false,
            list: Vec::new(),
            is_list_for_it: false,
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
        let (inner, time) = (self.inner, self.subject.time);
        let mut spans = spans::for_publication(known, self.topic, self.cells, self.subject.body);
        if spans.is_empty() {
            return Ok(());
        }
        let mut wanted = inner.wanted().subscriptions(time, time);
        // One walk reads subscriptions and, where that costs nothing, earlier publications: a
        // publication that matches no subscription needs no previous number.
        let reads_both = known.has_changes && inner.is_one_tree() && self.cells.len() == 1;
        let mut optional: &[Vec<u8>] = &[];
        if reads_both {
            optional = self.own;
            spans.extend(optional.iter().cloned().map(Span::key));
            wanted = wanted.publications(Time::MIN, Time::MAX);
        }
        let cost = snapshot.cost();
        let walk = Walk {
            snapshot,
            tree: inner.trees.subscriptions,
            spans: &tidy(spans),
            optional,
            wanted: &wanted,
            cost: &cost,
        };
        let is_whole = walk.run(&mut |key, raw| self.visit(key, raw))?;
        inner.count(&cost);
        self.has_read_earlier = reads_both && is_whole;
        Ok(())
    }

    fn visit(&mut self, key: &[u8], raw: &Raw<'_>) -> Result<Next> {
        if raw.is_publication() {
            // Ranges contain publications of other nodes, too.
            return if self.own.iter().any(|own| own == key) {
                self.earlier.visit(raw)
            } else {
                Ok(Next::EndList)
            };
        }
        if self.list != key {
            self.list = key.to_vec();
            self.is_list_for_it = is_for(key, self.topic, self.cells)?;
        }
        if !self.is_list_for_it {
            return Ok(Next::EndList);
        }
        // Most stored subscriptions may have ended.
        if let Some(to) = raw.until().filter(|to| *to < self.subject.time) {
            let ended = to.saturating_add(1);
            self.inner.note_ended(&self.view.snapshot, ended);
            return Ok(Next::On);
        }
        let Element::Subscription(subscription) = raw.decode()? else {
            return Ok(Next::On);
        };
        let admits = |subject| self.inner.compiled.admits(&subscription, subject);
        if subscription.ended == 0 && admits(&self.subject)? {
            let matched = Match {
                subscription: subscription.id,
                user: subscription.user.to_vec(),
                tag: subscription.tag.to_vec(),
            };
            let found = Found {
                matched,
                joins: subscription.joins,
                change: subscription.change,
            };
            self.found.insert(subscription.id, found);
        }
        Ok(Next::On)
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
            let number = self.inner.compiled.number(&path)?;
            let now = number.find(self.subject.body);
            let previous = if self.has_read_earlier && self.earlier.decides(&number) {
                self.earlier.number(&number)
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
        let mut earlier = Earlier::new(self.subject.time);
        earlier.wanted = Some(number.clone());
        let spans = tidy(self.own.iter().cloned().map(Span::key).collect());
        let cost = snapshot.cost();
        let tree = inner.trees.publications;
        let wanted = inner.wanted().publications(Time::MIN, Time::MAX);
        walk(snapshot, tree, &spans, &wanted, &cost, &mut |_, raw| {
            earlier.visit(raw)
        })?;
        inner.count(&cost);
        Ok(earlier.number(&number))
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
/// If it is not the key of a list, which is damage.
pub(crate) fn is_for(key: &[u8], topic: &Topic, cells: &[Cell]) -> Result<bool> {
    let key = ListKey::parse(key)?;
    let List::Subscriptions(reach, _) = key.list else {
        return Ok(false);
    };
    let meets = |cell: &Cell| {
        cell.quarters().starts_with(key.cell) || key.cell.starts_with(cell.quarters())
    };
    Ok(TopicFilter::of(key.topic, reach).matches(topic) && cells.iter().any(meets))
}

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
