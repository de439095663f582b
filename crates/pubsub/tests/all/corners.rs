//! Corner cases: times before 1970, endless waits, many moves, the last of all times, fine units.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::{Database, Durability, Options, Seq};
use esker_pubsub::{Broker, Config, PubSub, Publication, Region, Subscription, Topic};
use esker_sim::memory::Memory;

fn store(clock: &Arc<AtomicU64>) -> (Database, Broker) {
    let clock = clock.clone();
    let options = PubSub::register(
        Options::new()
            .fs(Arc::new(Memory::new()))
            .memory_budget(1 << 20)
            .table_size(64 << 10)
            .durability(Durability::Os)
            .clock(Arc::new(move || clock.load(Ordering::SeqCst))),
    );
    let db = PubSub::create_or_open(Path::new("/audit"), options).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    (db, broker)
}

fn topic() -> Topic {
    "t".parse().unwrap()
}

#[test]
fn times_before_1970_end_as_others_do() {
    let (_db, broker) = store(&Arc::new(AtomicU64::new(0)));
    let publication = Publication::new(topic(), "{}").at_time(-88).expires(-38);
    let seq = broker.publish(&publication).unwrap().seq;
    let past = |at| {
        let asked = Subscription::to(topic().into()).at_time(at);
        let past = broker.subscribe(&asked.from(-369).until(-60)).unwrap().past;
        past.into_iter()
            .map(|found| found.seq)
            .collect::<Vec<Seq>>()
    };
    assert_eq!(past(-68), [seq]);
    assert!(past(-38).is_empty());
    let publication = Publication::new(topic(), "{}").at_time(-61);
    // The second subscription had ended before it was made.
    assert_eq!(broker.publish(&publication).unwrap().matches.len(), 1);
    let publication = Publication::new(topic(), "{}").at_time(-59);
    assert!(broker.publish(&publication).unwrap().matches.is_empty());
}

#[test]
fn a_wait_need_not_end() {
    let (_db, broker) = store(&Arc::new(AtomicU64::new(1_000)));
    let asked = Subscription::to(topic().into());
    let id = broker.subscribe(&asked).unwrap().id;
    let mut inbox = broker.inbox(id, None).unwrap();
    let mut follow = broker.follow(&asked, None).unwrap();
    assert!(follow.next().unwrap().is_none());
    let publication = Publication::new(topic(), "{}");
    let seq = broker.publish(&publication).unwrap().seq;
    let next = inbox.wait(Duration::MAX).unwrap().unwrap();
    assert_eq!(next.seq, seq);
    assert!(inbox.next().unwrap().is_none());
    std::thread::scope(|scope| {
        let told = scope.spawn(|| inbox.wait(Duration::MAX).unwrap().unwrap().seq);
        let followed = scope.spawn(|| follow.wait(Duration::MAX).unwrap().unwrap().seq);
        assert_eq!(followed.join().unwrap(), seq);
        let seq = broker.publish(&publication).unwrap().seq;
        assert_eq!(told.join().unwrap(), seq);
    });
}

#[test]
fn a_follower_is_not_over_before_it_returned_everything() {
    let clock = Arc::new(AtomicU64::new(1_000));
    let (_db, broker) = store(&clock);
    let asked = Subscription::to(topic().into()).until(2_000);
    let mut follow = broker.follow(&asked, None).unwrap();
    assert!(!follow.is_over());
    let publication = Publication::new(topic(), "{}");
    let seq = broker.publish(&publication).unwrap().seq;
    clock.store(2_001, Ordering::SeqCst);
    assert!(!follow.is_over());
    assert_eq!(follow.next().unwrap().map(|next| next.seq), Some(seq));
    assert!(follow.next().unwrap().is_none());
    assert!(follow.is_over());
}

/// The directory keeps sixteen places of a subscription.
#[test]
fn a_consumer_that_was_away_gets_publications_for_the_last_sixteen_places() {
    let (_db, broker) = store(&Arc::new(AtomicU64::new(1_000)));
    let region = |n: u32| {
        let west = f64::from(n);
        Region::Rect {
            west,
            south: 0.0,
            east: west + 0.5,
            north: 1.0,
        }
    };
    let asked = Subscription::to(topic().into()).within(region(0));
    let id = broker.subscribe(&asked).unwrap().id;
    let mut expected = Vec::new();
    for n in 0..40 {
        let publication = Publication::new(topic(), "{}").at_point(f64::from(n) + 0.2, 0.5);
        let published = broker.publish(&publication).unwrap();
        assert_eq!(published.matches.len(), 1);
        expected.push(published.seq);
        assert!(
            broker
                .move_to(id, esker_pubsub::Place::Region(region(n + 1)))
                .unwrap()
        );
    }
    let mut inbox = broker.inbox(id, None).unwrap();
    let got: Vec<Seq> = std::iter::from_fn(|| inbox.next().unwrap().map(|next| next.seq)).collect();
    // The sixteenth place is the current one, to which nothing was published.
    assert_eq!(got, expected[expected.len() - 15..]);
}

/// Neither inboxes with it in their queue return it, nor readers of the lists.
#[test]
fn a_retracted_publication_is_not_returned_any_more() {
    let (_db, broker) = store(&Arc::new(AtomicU64::new(1_000)));
    let asked = Subscription::to(topic().into()).from(0);
    let id = broker.subscribe(&asked).unwrap().id;
    let mut quick = broker.inbox(id, None).unwrap();
    assert!(quick.next().unwrap().is_none());
    broker.publish(&Publication::new(topic(), "{}")).unwrap();
    let found = broker.query(&asked).unwrap();
    assert!(broker.retract(&found[0]).unwrap());
    assert!(quick.next().unwrap().is_none());
    assert!(broker.query(&asked).unwrap().is_empty());
    assert!(broker.inbox(id, None).unwrap().next().unwrap().is_none());
    assert!(
        broker
            .follow(&asked, None)
            .unwrap()
            .next()
            .unwrap()
            .is_none()
    );
}

/// An endless publication or subscription is alive even at the last of all times.
#[test]
fn endless_elements_are_alive_at_the_last_time() {
    let (_db, broker) = store(&Arc::new(AtomicU64::new(1_000)));
    let asked = Subscription::to(topic().into()).from(0);
    let id = broker.subscribe(&asked).unwrap().id;
    let early = broker.publish(&Publication::new(topic(), "{}")).unwrap();
    let last = Publication::new(topic(), "{}").at_time(i64::MAX);
    let last = broker.publish(&last).unwrap();
    assert_eq!(last.matches.len(), 1);
    let expected = [early.seq, last.seq];
    let all = broker.query(&asked.clone().at_time(i64::MAX)).unwrap();
    assert_eq!(all.iter().map(|one| one.seq).collect::<Vec<_>>(), expected);
    let mut inbox = broker.inbox(id, None).unwrap();
    let got: Vec<Seq> = std::iter::from_fn(|| inbox.next().unwrap().map(|next| next.seq)).collect();
    assert_eq!(got, expected);
    // A self-join recognises them, too.
    let user = Subscription::to(topic().into()).from(1_000).user("ann");
    let first = broker.subscribe(&user).unwrap();
    assert_eq!(first.past.len(), 2);
    let again = broker.subscribe(&user.join().at_time(1_000)).unwrap();
    assert!(again.past.is_empty(), "{:?}", again.past);
}

/// Units in which today's clock would exceed the last time.
#[test]
fn units_that_are_too_fine_are_refused() {
    let memory = Memory::new();
    let options = PubSub::register(Options::new().fs(Arc::new(memory)));
    let db = PubSub::create_or_open(Path::new("/units"), options).unwrap();
    for units in [0, 1_000_001, 5_300_000, u32::MAX] {
        let made = Broker::create_or_open(&db, Config::new().resolution(units));
        let refused = made.map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), esker::ErrorKind::BadInput, "{units}");
    }
    let broker = Broker::create_or_open(&db, Config::new().resolution(1_000_000)).unwrap();
    broker.subscribe(&Subscription::to(topic().into())).unwrap();
    let new = Publication::new(topic(), "{}");
    assert_eq!(broker.publish(&new).unwrap().matches.len(), 1);
}
