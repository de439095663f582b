//! Listing topics with live publications or subscriptions.

use std::collections::{BTreeMap, HashSet};

use esker::Result;

use crate::broker::Broker;
use crate::element::{Element, Target, Time};
use crate::keys::{List, ListKey};
use crate::topic::TopicFilter;
use crate::walk::{Next, Span, tidy, walk};

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
        let mut topics: BTreeMap<(Vec<u8>, u8), (TopicUse, HashSet<Target>)> = BTreeMap::new();
        let alive = inner.wanted().publications(Time::MIN, Time::MAX);
        let wanted = alive.subscriptions(now, Time::MAX);
        let mut trees = vec![inner.trees.publications, inner.trees.subscriptions];
        trees.dedup();
        for tree in trees {
            let spans = tidy(vec![Span::Range(Vec::new(), vec![0xff])]);
            let cost = snapshot.cost();
            walk(&snapshot, tree, &spans, &wanted, &cost, &mut |key, raw| {
                let parsed = ListKey::parse(key)?;
                let filter = match parsed.list {
                    List::Publications => TopicFilter::of_topic(parsed.topic),
                    List::Subscriptions(reach, _) => TopicFilter::of(parsed.topic, reach),
                };
                let element = raw.decode()?;
                let is_alive = match &element {
                    Element::Publication(publication) => publication.is_alive(now),
                    Element::Subscription(form) => form.to >= now && form.ended == 0,
                    Element::Retracted(..) | Element::Ended(..) => false,
                };
                if !is_alive {
                    return Ok(Next::On);
                }
                let place = (parsed.topic.to_vec(), filter.rank());
                let (topic, seen) = topics.entry(place).or_insert_with(|| {
                    let topic = TopicUse {
                        topic: filter,
                        publications: 0,
                        subscriptions: 0,
                        latest: None,
                    };
                    (topic, HashSet::new())
                });
                // An element in several cells counts once.
                let is_new = raw.target().is_some_and(|target| seen.insert(target));
                match element {
                    Element::Publication(publication) if is_new => {
                        topic.publications += 1;
                        topic.latest = topic.latest.max(Some(publication.time));
                    }
                    Element::Subscription(_) if is_new => topic.subscriptions += 1,
                    _ => {}
                }
                Ok(Next::On)
            })?;
        }
        Ok(topics.into_values().map(|(topic, _)| topic).collect())
    }
}
