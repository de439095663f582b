//! Who gets a publication: the filters of all subscriptions, by their levels.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::Seq;
use parking_lot::Mutex;
use pubsub::Notification;

use super::message::{Message, Shared};
use super::source::{Room, Source};

/// True if a filter, without the name of a share, matches a topic.
pub(super) fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        match (wanted, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (_, Some(level)) if level == wanted => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

/// The sources of all subscriptions.
#[derive(Default)]
pub(super) struct Router {
    filters: Mutex<Node>,
    /// The number of the last publication that was offered.
    offered: AtomicU64,
}

/// The filters that go on after the same levels.
#[derive(Default)]
struct Node {
    levels: HashMap<Box<str>, Node>,
    /// Those that go on with `+`.
    any: Option<Box<Node>>,
    /// Those that end here.
    here: Vec<Arc<Source>>,
    /// Those that end with `#` here.
    below: Vec<Arc<Source>>,
}

impl Router {
    pub(super) fn add(&self, filter: &str, source: &Arc<Source>) {
        let mut filters = self.filters.lock();
        let mut node = &mut *filters;
        for level in filter.split('/') {
            match level {
                "#" => {
                    node.below.push(source.clone());
                    return;
                }
                "+" => node = &mut **node.any.get_or_insert_default(),
                _ => node = node.levels.entry(level.into()).or_default(),
            }
        }
        node.here.push(source.clone());
    }

    pub(super) fn remove(&self, filter: &str, source: &Arc<Source>) {
        let levels: Vec<&str> = filter.split('/').collect();
        self.filters.lock().remove(&levels, source);
    }

    /// Visits the sources of all subscriptions.
    pub(super) fn each(&self, visit: &mut dyn FnMut(&Source)) {
        self.filters.lock().all(visit);
    }

    /// Offers a publication to all sources that it may match.
    pub(super) fn offer(&self, notification: Notification) {
        let seq = notification.seq;
        let filters = self.filters.lock();
        if !filters.is_empty() {
            let message = Arc::new(Message::of(notification));
            filters.each(&message.topic, &mut |source| source.offer(&message));
        }
        drop(filters);
        self.offered.store(seq, Ordering::Release);
    }

    /// All publications up to this number were offered.
    pub(super) fn offered(&self) -> Seq {
        self.offered.load(Ordering::Acquire)
    }

    /// Gives a publication that is not stored to all sources that it matches, if all of them have
    /// room for it now; to none of them otherwise.
    pub(super) fn pass(&self, topic: &str, message: impl FnOnce() -> Shared) -> Room {
        let filters = self.filters.lock();
        let mut matching = 0;
        let mut room = Room::Now;
        filters.each(topic, &mut |source| {
            matching += 1;
            room = room.max(source.room());
        });
        if room == Room::Now && matching > 0 {
            let message = message();
            filters.each(topic, &mut |source| source.pass(&message));
        }
        room
    }
}

impl Node {
    fn is_empty(&self) -> bool {
        self.levels.is_empty()
            && self.any.is_none()
            && self.here.is_empty()
            && self.below.is_empty()
    }

    /// All sources. A node has at most as many below it as a filter has levels.
    fn all(&self, visit: &mut dyn FnMut(&Source)) {
        for source in self.here.iter().chain(&self.below) {
            visit(source);
        }
        for node in self.levels.values().chain(self.any.as_deref()) {
            node.all(visit);
        }
    }

    /// The sources whose filter matches a topic.
    fn each(&self, topic: &str, visit: &mut dyn FnMut(&Arc<Source>)) {
        let is_reserved = topic.starts_with('$');
        self.visit(Some(topic), is_reserved, visit);
    }

    /// `rest` are the levels behind those of the node. `is_reserved` says that wildcards do not
    /// match here.
    fn visit(&self, rest: Option<&str>, is_reserved: bool, visit: &mut dyn FnMut(&Arc<Source>)) {
        if !is_reserved {
            self.below.iter().for_each(&mut *visit);
        }
        let Some(rest) = rest else {
            self.here.iter().for_each(visit);
            return;
        };
        let (level, rest) = match rest.split_once('/') {
            Some((level, rest)) => (level, Some(rest)),
            None => (rest, None),
        };
        if let Some(node) = self.levels.get(level) {
            node.visit(rest, false, visit);
        }
        if let Some(node) = self.any.as_ref().filter(|_| !is_reserved) {
            node.visit(rest, false, visit);
        }
    }

    fn remove(&mut self, levels: &[&str], source: &Arc<Source>) {
        let is_other = |other: &Arc<Source>| !Arc::ptr_eq(other, source);
        match levels.split_first() {
            None => self.here.retain(is_other),
            Some((&"#", _)) => self.below.retain(is_other),
            Some((&"+", rest)) => {
                if let Some(node) = &mut self.any {
                    node.remove(rest, source);
                    if node.is_empty() {
                        self.any = None;
                    }
                }
            }
            Some((level, rest)) => {
                if let Some(node) = self.levels.get_mut(*level) {
                    node.remove(rest, source);
                    if node.is_empty() {
                        self.levels.remove(*level);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pubsub::{Subscription, TopicFilter};

    use super::super::source::Begin;
    use super::*;

    fn source() -> Arc<Source> {
        let all = Subscription::to(TopicFilter::everything());
        Arc::new(Source::new(all, false, None, Begin::Now))
    }

    fn finds(filter: &str, topic: &str) -> bool {
        let router = Router::default();
        let source = source();
        router.add(filter, &source);
        let mut found = 0;
        (router.filters.lock()).each(topic, &mut |_| found += 1);
        router.remove(filter, &source);
        assert!(router.filters.lock().is_empty());
        found == 1
    }

    #[test]
    fn wildcards_mean_what_mqtt_says() {
        let table = [
            ("a/b", "a/b", true),
            ("a/b", "a/b/c", false),
            ("a/b", "a", false),
            ("a/+", "a/b", true),
            ("a/+", "a", false),
            ("a/+", "a/", true),
            ("a/+", "a/b/c", false),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("a/#", "ab", false),
            ("+", "a", true),
            ("+", "/a", false),
            ("+/+", "/a", true),
            ("/+", "/a", true),
            ("+/b/#", "a/b", true),
            ("+/b/+", "a/b", false),
            ("#", "a/b", true),
            ("#", "$x/a", false),
            ("+/a", "$x/a", false),
            ("$x/#", "$x/a", true),
            ("$x/+", "$x/a", true),
            ("A", "a", false),
            ("1/2", "1/2", true),
        ];
        for (filter, topic, does) in table {
            assert_eq!(finds(filter, topic), does, "{filter} {topic}");
            assert_eq!(matches(filter, topic), does, "{filter} {topic}");
        }
    }

    #[test]
    fn the_broker_matches_as_the_router_does() {
        let filters = [
            "a/b", "a/+", "a/#", "+", "+/+", "/+", "+/b/#", "#", "$x/#", "+/a", "01", "1",
        ];
        let topics = [
            "a", "a/b", "a/b/c", "/a", "a/", "$x/a", "$x", "1", "01", "ab",
        ];
        for filter in filters {
            let parsed = super::super::filter::Filter::parse(filter).unwrap();
            let of_broker = parsed.topics().unwrap();
            for topic in topics {
                let does = of_broker.matches(&topic.parse().unwrap());
                assert_eq!(finds(filter, topic), does, "{filter} {topic}");
            }
        }
    }
}
