//! Renewals, with publications whose times are ahead of the clock: each publication meets a
//! subscription once, however often it is renewed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::{Database, Durability, Options, Seq};
use esker_pubsub::{Broker, Config, Notification, Place, PubSub, Publication, Subscription, Time};
use esker_sim::memory::{Memory, PowerCut};

struct Store {
    memory: Memory,
    clock: Arc<AtomicU64>,
    open: Option<(Database, Broker)>,
}

impl Store {
    fn new() -> Store {
        let mut store = Store {
            memory: Memory::new(),
            clock: Arc::new(AtomicU64::new(1_000)),
            open: None,
        };
        store.open();
        store
    }

    fn open(&mut self) {
        let clock = self.clock.clone();
        let options = PubSub::register(
            Options::new()
                .fs(Arc::new(self.memory.clone()))
                .memory_budget(1 << 20)
                .table_size(64 << 10)
                .durability(Durability::Sync)
                .background(false)
                .clock(Arc::new(move || clock.load(Ordering::SeqCst))),
        );
        let db = PubSub::create_or_open(Path::new("/renewals"), options).unwrap();
        let broker = Broker::create_or_open(&db, Config::new()).unwrap();
        self.open = Some((db, broker));
    }

    /// Opens the store again after a crash.
    fn crash(&mut self) {
        let after = self.memory.power_cut(7, PowerCut::Reordered);
        self.open = None;
        self.memory = after;
        self.open();
    }

    fn broker(&self) -> &Broker {
        &self.open.as_ref().unwrap().1
    }

    fn publish(&self, time: Time) -> Seq {
        let new = Publication::new("t".parse().unwrap(), "{}").at_time(time);
        self.broker().publish(&new).unwrap().seq
    }

    fn subscribe(&self, user: &str) -> Seq {
        let new = Subscription::to("t".parse().unwrap()).user(user);
        self.broker().subscribe(&new.until(9_000)).unwrap().id
    }

    fn renew(&self, id: Seq, until: Time) -> Vec<Seq> {
        seqs(self.broker().renew(id, until).unwrap().unwrap())
    }

    fn away(&self, id: Seq, after: Option<Seq>) -> Vec<Seq> {
        let mut inbox = self.broker().inbox(id, after).unwrap();
        std::iter::from_fn(|| inbox.next().unwrap().map(|next| next.seq)).collect()
    }
}

fn seqs(found: Vec<Notification>) -> Vec<Seq> {
    found.into_iter().map(|found| found.seq).collect()
}

#[test]
fn a_renewal_does_not_return_received_publications() {
    for user in ["", "ann"] {
        for crashes in [false, true] {
            let mut store = Store::new();
            let id = store.subscribe(user);
            let first = store.publish(5_000);
            assert!(store.renew(id, 2_000).is_empty());
            let second = store.publish(5_000);
            if crashes {
                store.crash();
            }
            assert_eq!(store.renew(id, 9_000), [second]);
            let third = store.publish(5_000);
            assert!(store.renew(id, 3_000).is_empty());
            let fourth = store.publish(8_000);
            assert!(store.renew(id, 6_000).is_empty());
            assert!(store.renew(id, 4_000).is_empty());
            let fifth = store.publish(5_000);
            if crashes {
                store.crash();
            }
            assert_eq!(store.renew(id, 9_000), [fourth, fifth]);
            // An inbox has the publications that matched when they were published, not those that
            // renewals returned.
            assert_eq!(store.away(id, None), [first, third]);
            assert_eq!(store.away(id, Some(first)), [third]);
        }
    }
}

#[test]
fn self_joins_exclude_publications_received_before_a_renewal() {
    let mut store = Store::new();
    let id = store.subscribe("ann");
    let first = store.publish(5_000);
    store.renew(id, 2_000);
    let second = store.publish(5_000);
    for _ in 0..2 {
        let again = Subscription::to("t".parse().unwrap()).user("ann").join();
        let past = store.broker().subscribe(&again.until(7_000)).unwrap().past;
        // The first self-join receives the second publication; the next one receives nothing.
        let expected: &[Seq] = if store.clock.load(Ordering::SeqCst) == 1_000 {
            &[second]
        } else {
            &[]
        };
        assert_eq!(seqs(past), expected);
        assert!(!expected.contains(&first));
        store.clock.fetch_add(1, Ordering::SeqCst);
        store.crash();
    }
}

/// A publication that a renewal returns had been delivered to another subscription, and stays in
/// its inbox.
#[test]
fn a_renewal_removes_nothing_from_another_inbox() {
    let mut store = Store::new();
    let first = store.subscribe("ann");
    store.renew(first, 2_000);
    let joins = Subscription::to("t".parse().unwrap()).user("ann").join();
    let second = store.broker().subscribe(&joins.until(9_000)).unwrap().id;
    let seq = store.publish(5_000);
    assert_eq!(store.renew(first, 9_000), [seq]);
    assert_eq!(store.away(second, None), [seq]);
    assert!(store.away(first, None).is_empty());
    store.crash();
    assert_eq!(store.away(second, None), [seq]);
}

/// The subscription had ended, and is renewed while it is remembered for its user.
#[test]
fn publications_of_a_late_renewal_are_in_no_inbox() {
    let store = Store::new();
    let id = store.subscribe("ann");
    store.renew(id, 2_000);
    store.clock.store(3_000, Ordering::SeqCst);
    let missed = store.publish(3_000);
    store.clock.store(3_100, Ordering::SeqCst);
    assert_eq!(store.renew(id, 9_000), [missed]);
    let seq = store.publish(3_100);
    assert_eq!(store.away(id, None), [seq]);
}

/// Forty renewals, more than the directory keeps forms.
#[test]
fn a_subscription_of_many_ends_receives_nothing_twice() {
    let mut store = Store::new();
    let id = store.subscribe("");
    let mut missed = Vec::new();
    for n in 0..40 {
        store.publish(1_001);
        store.publish(8_995 - n * 100);
        missed.push(store.publish(9_000 - n * 100 + 1));
        store.renew(id, 9_000 - (n + 1) * 100);
    }
    // The first one was behind the first end, too.
    missed.remove(0);
    store.crash();
    assert_eq!(store.renew(id, 9_000), missed);
}

/// A subscription that is renewed often, beside publications far ahead of the clock, loses nothing
/// for a consumer that was away. Its ends do not displace its places in the directory.
#[test]
fn frequent_renewals_lose_nothing() {
    let mut store = Store::new();
    let id = store.subscribe("ann");
    let publish_at = |store: &Store, longitude: f64| {
        let new = Publication::new("t".parse().unwrap(), "{}").at_point(longitude, 1.0);
        let made = store.broker().publish(&new).unwrap();
        assert_eq!(made.matches.len(), 1);
        made.seq
    };
    let mut told = Vec::new();
    for place in 0..3 {
        for n in 0..40 {
            store.publish(1_000_000);
            told.push(publish_at(&store, f64::from(place) * 50.0));
            let until = 10_000 + i64::from(place) * 10_000 + n * 100;
            assert!(store.renew(id, until).is_empty());
        }
        let next = esker_pubsub::Region::Circle {
            longitude: f64::from(place + 1) * 50.0,
            latitude: 1.0,
            metres: 1_000.0,
        };
        let moved = store.broker().move_to(id, Place::Region(next)).unwrap();
        assert!(moved);
    }
    assert_eq!(store.away(id, None), told);
    store.crash();
    assert_eq!(store.away(id, None), told);
}

/// A renewal after a move returns nothing that was published at the new place before the move.
#[test]
fn a_renewal_after_a_move_returns_publications_since_the_move() {
    let store = Store::new();
    let id = store.subscribe("ann");
    let first = store.publish(5_000);
    store.renew(id, 2_000);
    store.publish(5_000);
    let here = Place::Cell(esker_pubsub::Cell::root());
    assert!(store.broker().move_to(id, here).unwrap());
    let third = {
        let new = Publication::new("t".parse().unwrap(), "{}").at_point(1.0, 1.0);
        store.broker().publish(&new.at_time(5_000)).unwrap().seq
    };
    assert_eq!(store.renew(id, 9_000), [third]);
    assert!(store.renew(id, 2_000).is_empty());
    assert!(store.renew(id, 9_000).is_empty());
    assert_eq!(store.away(id, None), [first]);
}
