//! Tags of publications, and how durable they are.

use std::time::Duration;

use esker::Options;
use esker_pubsub::{Broker, Config, PubSub, Publication, Subscription, Topic, TopicFilter};

fn topic(text: &str) -> Topic {
    text.parse().unwrap()
}

/// All publications to `a`, whenever they were made.
fn all() -> Subscription {
    Subscription::to(TopicFilter::exact(topic("a"))).from(i64::MIN)
}

#[test]
fn a_tag_goes_with_its_publication() {
    let dir = tempfile::tempdir().unwrap();
    let db = PubSub::create_or_open(dir.path(), Options::default()).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let subscription = Subscription::to(topic("a").into());
    let id = broker.subscribe(&subscription).unwrap().id;
    let mut inbox = broker.inbox(id, None).unwrap();
    let mut follow = broker.follow(&subscription, None).unwrap();
    for tag in [&b""[..], b"tag", &[0xff; 300]] {
        let publication = Publication::new(topic("a"), "{\"n\": 1}").tag(tag);
        broker
            .publish(&publication.lives(Duration::from_secs(1000)))
            .unwrap();
    }
    let tags = |of: Vec<esker_pubsub::Notification>| -> Vec<Vec<u8>> {
        assert!(of.iter().all(|one| one.body == b"{\"n\": 1}"));
        of.into_iter().map(|one| one.tag).collect()
    };
    let expected = vec![Vec::new(), b"tag".to_vec(), vec![0xff; 300]];
    let received = (0..3).map(|_| inbox.next().unwrap().unwrap()).collect();
    assert_eq!(tags(received), expected);
    let followed = (0..3).map(|_| follow.next().unwrap().unwrap()).collect();
    assert_eq!(tags(followed), expected);
    let numbered = all().matching("n = 1".parse().unwrap());
    let stored = broker.query_after(&numbered, 0, 9).unwrap();
    // Withdrawn as those without are.
    assert!(broker.retract(&stored[1]).unwrap());
    drop((inbox, follow, broker));
    db.close().unwrap();
    let db = PubSub::create_or_open(dir.path(), Options::default()).unwrap();
    db.compact(None).unwrap();
    let broker = Broker::open(&db).unwrap();
    let stored = broker.query_after(&numbered, 0, 9).unwrap();
    assert_eq!(tags(stored), [Vec::new(), vec![0xff; 300]]);
}
