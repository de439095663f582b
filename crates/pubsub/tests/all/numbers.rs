//! Subscriptions to changes of a number, with publications that lie in several cells: publishers,
//! queries, renewals and inboxes compare with the same previous publication.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::{Database, Durability, Options, Seq};
use esker_pubsub::{
    Broker, Config, Granularity, PubSub, Publication, Region, Subscription, Threshold,
};
use esker_sim::memory::Memory;

/// Cells of a single level: the quarters of the sphere.
fn store(clock: &Arc<AtomicU64>, granularity: Granularity) -> (Database, Broker) {
    let clock = clock.clone();
    let options = PubSub::register(
        Options::new()
            .fs(Arc::new(Memory::new()))
            .background(false)
            .durability(Durability::Os)
            .clock(Arc::new(move || clock.load(Ordering::SeqCst))),
    );
    let db = PubSub::create_or_open(Path::new("/numbers"), options).unwrap();
    let config = Config::new().depth(1).granularity(granularity);
    let broker = Broker::create_or_open(&db, config).unwrap();
    (db, broker)
}

fn region(west: f64, east: f64) -> Region {
    Region::Rect {
        west,
        south: 10.0,
        east,
        north: 20.0,
    }
}

fn publication(v: f64) -> Publication {
    Publication::new("t".parse().unwrap(), format!("{{\"v\":{v:?}}}"))
}

fn asked(place: Region) -> Subscription {
    Subscription::to("t".parse().unwrap())
        .from(0)
        .within(place)
        .on_change("v".parse().unwrap(), Threshold::Absolute(50.0))
}

/// Publishes in the cell in the west, in that in the east, or in both. Returns those that matched a
/// subscription when they were published, and checks that every other way returns the same.
fn compare(place: Region, granularity: Granularity, flushes: [bool; 3]) {
    let clock = Arc::new(AtomicU64::new(1_000));
    let (db, broker) = store(&clock, granularity);
    let id = broker.subscribe(&asked(place.clone())).unwrap().id;
    // It ends, and is renewed later.
    let ended = asked(place.clone()).until(1_000).user("ann");
    let ended = broker.subscribe(&ended).unwrap().id;
    clock.store(1_001, Ordering::SeqCst);
    let mut expected: Vec<Seq> = Vec::new();
    let mut after_flush = |made: Publication| {
        let made = broker.publish(&made).unwrap();
        if !made.matches.is_empty() {
            expected.push(made.seq);
        }
    };
    for (first, second) in [(-5.0, 5.0), (5.0, -5.0), (-5.0, -6.0), (5.0, 6.0)] {
        for (older, newer) in [(0.0, 100.0), (100.0, 0.0)] {
            after_flush(publication(older).at_point(first, 15.0));
            if flushes[0] {
                db.flush().unwrap();
            }
            after_flush(publication(newer).at_point(second, 15.0));
            if flushes[1] {
                db.flush().unwrap();
            }
            after_flush(publication(100.0).in_region(region(-10.0, 10.0)));
            if flushes[2] {
                db.flush().unwrap();
            }
        }
    }
    let seqs = |found: Vec<esker_pubsub::Notification>| -> Vec<Seq> {
        found.into_iter().map(|found| found.seq).collect()
    };
    for is_compacted in [false, true] {
        if is_compacted {
            db.compact(None).unwrap();
        }
        let what = format!("{place:?}, {granularity:?}, {flushes:?}, compacted {is_compacted}");
        let found = broker.query(&asked(place.clone())).unwrap();
        assert_eq!(seqs(found), expected, "a query: {what}");
        let made = broker.subscribe(&asked(place.clone())).unwrap();
        assert_eq!(seqs(made.past), expected, "a subscription: {what}");
        let mut inbox = broker.inbox(id, None).unwrap();
        let found = std::iter::from_fn(|| inbox.next().unwrap()).collect();
        assert_eq!(seqs(found), expected, "an inbox: {what}");
    }
    let renewed = broker.renew(ended, 100_000).unwrap().unwrap();
    assert_eq!(seqs(renewed), expected, "a renewal: {place:?}, {flushes:?}");
    assert!(!expected.is_empty());
}

/// The previous publication is the newest in any of the cells that the publication lies in, in
/// whatever order the lists are read.
#[test]
fn the_previous_publication_is_the_newest_of_all_cells() {
    for granularity in [Granularity::Variable, Granularity::Fixed] {
        for bits in 0..8 {
            let flushes = [bits & 1 == 1, bits & 2 == 2, bits & 4 == 4];
            compare(region(-10.0, 10.0), granularity, flushes);
        }
    }
}

/// The subscription asks for the western cell alone; the previous publication may lie in the eastern
/// one.
#[test]
fn the_previous_publication_may_lie_where_the_subscription_does_not() {
    for bits in 0..8 {
        let flushes = [bits & 1 == 1, bits & 2 == 2, bits & 4 == 4];
        compare(region(-10.0, -1.0), Granularity::Variable, flushes);
    }
}

#[test]
fn publications_of_one_write_are_as_if_made_one_after_the_other() {
    let clock = Arc::new(AtomicU64::new(1_000));
    let (_db, broker) = store(&clock, Granularity::Variable);
    let (west, both) = (region(-20.0, -10.0), region(-20.0, 10.0));
    let changes = broker.subscribe(&asked(west.clone())).unwrap().id;
    let all = Subscription::to("t".parse().unwrap());
    let all = broker.subscribe(&all.from(0)).unwrap().id;
    let one = |v: f64, region: &Region| publication(v).in_region(region.clone());
    let published = broker.publish_all(&[
        one(0.0, &west),
        one(10.0, &west),
        one(100.0, &both),
        // Elsewhere: not the number before the next.
        one(500.0, &region(10.0, 20.0)),
        one(110.0, &west),
        // Expired by the time of the next.
        one(900.0, &west).at_time(900).expires(950),
        one(120.0, &west),
        one(0.0, &west),
    ]);
    let published = published.unwrap();
    let matched = |of: Seq| -> Vec<usize> {
        let has = |place: &usize| {
            published[*place]
                .matches
                .iter()
                .any(|m| m.subscription == of)
        };
        (0..published.len()).filter(has).collect()
    };
    assert_eq!(matched(changes), [2, 5, 7]);
    assert_eq!(matched(all), [0, 1, 2, 3, 4, 5, 6, 7]);
    let numbers: Vec<Seq> = published.iter().map(|one| one.seq).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next));
    let found = broker.query(&asked(west)).unwrap();
    let found: Vec<Seq> = found.iter().map(|one| one.seq).collect();
    assert_eq!(found, [numbers[2], numbers[7]]);
    assert!(broker.publish_all(&[]).unwrap().is_empty());
}

#[test]
fn of_publications_of_one_write_all_are_stored_or_none() {
    let clock = Arc::new(AtomicU64::new(1_000));
    let (_db, broker) = store(&clock, Granularity::Variable);
    let nowhere = Region::Circle {
        longitude: 0.0,
        latitude: 0.0,
        metres: -1.0,
    };
    let all = [publication(1.0), publication(2.0).in_region(nowhere)];
    assert_eq!(
        broker.publish_all(&all).unwrap_err().kind(),
        esker::ErrorKind::BadInput
    );
    let asked = Subscription::to("t".parse().unwrap()).from(0);
    assert!(broker.query(&asked).unwrap().is_empty());
    assert_eq!(broker.publish_all(&all[..1]).unwrap().len(), 1);
    assert_eq!(broker.query(&asked).unwrap().len(), 1);
}
