//! Listing topics with live publications or subscriptions.

use std::collections::{BTreeMap, HashSet};

use esker::Result;
use esker_coding::Misplaced;

use crate::broker::Broker;
use crate::forms::element::{Element, Target, Time};
use crate::forms::keys::{KeyRange, List, ListKey};
use crate::forms::topic::{Reach, TopicFilter};
use crate::lists::walk::{Next, Span, normalise, walk};

/// The live publications and subscriptions of a topic or filter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicUse {
    /// The topic, or the filter.
    pub topic: TopicFilter,
    /// Publications that have not expired.
    pub publications: u64,
    /// Subscriptions that have not ended.
    pub subscriptions: u64,
    /// The time of the last publication.
    pub latest: Option<Time>,
}

/// A topic, and the elements that were counted for it: an element in several cells counts once.
struct CountedTopic {
    counts: TopicUse,
    counted: HashSet<Target>,
}

/// The order of the listing.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct TopicOrder {
    /// The encoded topic, or the pattern.
    topic: Vec<u8>,
    reach: Reach,
}

impl CountedTopic {
    fn new(topic: TopicFilter) -> CountedTopic {
        CountedTopic {
            counts: TopicUse {
                topic,
                publications: 0,
                subscriptions: 0,
                latest: None,
            },
            counted: HashSet::new(),
        }
    }

    /// Counts a live publication or subscription, unless it was counted in another cell.
    fn count(&mut self, target: Target, element: &Element<'_>) {
        if !self.counted.insert(target) {
            return;
        }
        let counts = &mut self.counts;
        match element {
            Element::Publication(publication) => {
                counts.publications += 1;
                counts.latest = counts.latest.max(Some(publication.time));
            }
            Element::Subscription(_) => counts.subscriptions += 1,
            Element::Retracted { .. } | Element::Ended { .. } => {
                debug_assert!(false, "tombstones are not alive");
            }
        }
    }
}

/// True for a publication that has not expired and a subscription that has not ended.
fn is_alive(element: &Element<'_>, now: Time) -> bool {
    match element {
        Element::Publication(publication) => publication.is_alive(now),
        Element::Subscription(form) => form.to >= now && form.ended.is_none(),
        Element::Retracted { .. } | Element::Ended { .. } => false,
    }
}

impl Broker {
    /// All topics with live publications or subscriptions, sorted, with numbers ordered as numbers.
    /// Reads all lists.
    ///
    /// # Errors
    /// Any read error.
    pub fn topics(&self) -> Result<Vec<TopicUse>> {
        let inner = &*self.inner;
        let now = inner.now();
        let snapshot = inner.store.snapshot();
        let mut topics: BTreeMap<TopicOrder, CountedTopic> = BTreeMap::new();
        let publications = inner.time_filter().with_publications(Time::MIN, Time::MAX);
        let times = publications.with_subscriptions(now, Time::MAX);
        let mut trees = vec![inner.trees.publications, inner.trees.subscriptions];
        trees.dedup();
        for tree in trees {
            // All keys: none begins with this byte.
            let spans = normalise(vec![Span::Range(KeyRange {
                start: Vec::new(),
                end: vec![0xff],
            })]);
            let cost = snapshot.cost();
            walk(&snapshot, tree, &spans, &times, &cost, &mut |key, raw| {
                let parsed = ListKey::parse(key)?;
                let filter = match parsed.list {
                    List::Publications => TopicFilter::of_topic(parsed.topic),
                    List::Subscriptions(reach, _) => TopicFilter::of(parsed.topic, reach),
                };
                let element = raw.decode()?;
                if !is_alive(&element, now) {
                    return Ok(Next::Continue);
                }
                let order = TopicOrder {
                    topic: parsed.topic.to_vec(),
                    reach: filter.reach(),
                };
                let target = raw.target().ok_or_else(|| Misplaced::here())?;
                let topic = topics.entry(order);
                let topic = topic.or_insert_with(|| CountedTopic::new(filter));
                topic.count(target, &element);
                Ok(Next::Continue)
            })?;
        }
        Ok(topics.into_values().map(|topic| topic.counts).collect())
    }
}
