//! Subscriptions that end at another time than they were to, with publications whose times are ahead of the clock: each publication
//! meets a subscription once, however often it is renewed.

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
        let options = PubSub::with(Options {
            fs: Arc::new(self.memory.clone()),
            memory_budget: 1 << 20,
            table_size: 64 << 10,
            durability: Durability::Sync,
            background: false,
            clock: Arc::new(move || clock.load(Ordering::SeqCst)),
            ..Options::default()
        });
        let db = PubSub::create_or_open(Path::new("/renewals"), options).unwrap();
        let broker = Broker::create_or_open(&db, Config::new()).unwrap();
        self.open = Some((db, broker));
    }

    /// Opens it again, after a crash.
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
fn what_was_got_is_not_given_by_a_renewal() {
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
            // An inbox has what was for the subscription when it was published, and not what a renewal gave.
            assert_eq!(store.away(id, None), [first, third]);
            assert_eq!(store.away(id, Some(first)), [third]);
        }
    }
}

#[test]
fn self_joins_know_what_a_subscription_got_before_it_was_renewed() {
    let mut store = Store::new();
    let id = store.subscribe("ann");
    let first = store.publish(5_000);
    store.renew(id, 2_000);
    let second = store.publish(5_000);
    for _ in 0..2 {
        let again = Subscription::to("t".parse().unwrap()).user("ann").join();
        let past = store.broker().subscribe(&again.until(7_000)).unwrap().past;
        // The first time it gets the other, and the second time nothing.
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

/// What a subscription is given when it is renewed was another's before, and stays in its inbox.
#[test]
fn a_renewal_takes_nothing_out_of_another_inbox() {
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

/// One that had ended, and is renewed while its user is remembered.
#[test]
fn what_a_late_renewal_gave_is_in_no_inbox() {
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

/// However many ends it had.
#[test]
fn a_subscription_of_many_ends_is_given_nothing_twice() {
    let mut store = Store::new();
    let id = store.subscribe("");
    let mut missed = Vec::new();
    for n in 0..40 {
        store.publish(1_001);
        store.publish(8_995 - n * 100);
        missed.push(store.publish(9_000 - n * 100 + 1));
        store.renew(id, 9_000 - (n + 1) * 100);
    }
    // The first one was behind its first end, too.
    missed.remove(0);
    store.crash();
    assert_eq!(store.renew(id, 9_000), missed);
}

/// One that is kept alive, beside publications far ahead of the clock, loses nothing for a consumer that was away; nor do its ends
/// take the place of those where it was.
#[test]
fn a_subscription_that_is_renewed_often_forgets_nothing() {
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

/// A subscription that has moved is given nothing that was published at its new place before.
#[test]
fn a_renewal_after_a_move_gives_what_is_of_the_new_place() {
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
