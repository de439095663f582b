//! Inboxes return the publications that match a stored subscription: in order, once, also to
//! consumers that are slow or were away, or after the store was opened again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker::{Database, Durability, Options, Seq};
use esker_pubsub::{
    Broker, Config, Inbox, Place, PubSub, Publication, Region, Subscription, Topic,
};
use esker_sim::memory::Memory;
use fastrand::Rng;

fn options(memory: &Memory, clock: &Arc<AtomicU64>) -> Options {
    let clock = clock.clone();
    PubSub::register(
        Options::new()
            .fs(Arc::new(memory.clone()))
            .memory_budget(1 << 20)
            .table_size(64 << 10)
            .durability(Durability::Os)
            .clock(Arc::new(move || clock.load(Ordering::SeqCst))),
    )
}

fn all_of(inbox: &mut Inbox) -> Vec<Seq> {
    std::iter::from_fn(|| inbox.next().unwrap().map(|next| next.seq)).collect()
}

#[test]
fn slow_and_quick_consumers_receive_everything_in_order() {
    let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
    let db = PubSub::create_or_open(Path::new("/inbox"), options(&memory, &clock)).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let made: Vec<Seq> = ["a", "a/#", "a/1", "a/+", "b"]
        .iter()
        .map(|topic| {
            let subscription = Subscription::to(topic.parse().unwrap());
            broker.subscribe(&subscription).unwrap().id
        })
        .collect();
    let expected = Mutex::new(BTreeMap::<Seq, Vec<Seq>>::new());
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = told.clone();
    let notifier = broker.notify(made[0], None, move |next| {
        log.lock().unwrap().push(next.unwrap().seq)
    });
    let notifier = notifier.unwrap();
    let done = AtomicU64::new(0);
    let quick = std::thread::scope(|scope| {
        for thread in 0..3 {
            let (broker, expected, done) = (&broker, &expected, &done);
            scope.spawn(move || {
                for n in 0..1200 {
                    let topic: Topic = format!("a/{}", (n + thread) % 3).parse().unwrap();
                    let body = format!("{{\"n\":{n}}}");
                    let published = broker.publish(&Publication::new(topic, body)).unwrap();
                    let mut expected = expected.lock().unwrap();
                    for matched in published.matches {
                        expected
                            .entry(matched.subscription)
                            .or_default()
                            .push(published.seq);
                    }
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        let quick = scope.spawn(|| {
            let mut inbox = broker.inbox(made[1], None).unwrap();
            let mut got = Vec::new();
            loop {
                let is_last = done.load(Ordering::SeqCst) == 3;
                match inbox.wait(Duration::from_millis(5)).unwrap() {
                    Some(next) => got.push(next.seq),
                    None if is_last => return got,
                    None => {}
                }
            }
        });
        quick.join().unwrap()
    });
    let mut expected = expected.into_inner().unwrap();
    for seqs in expected.values_mut() {
        seqs.sort_unstable();
    }
    assert!(
        quick == expected[&made[1]],
        "{} of {}",
        quick.len(),
        expected[&made[1]].len()
    );
    assert_eq!(quick.len(), 3600);
    // Late consumers, which are away in between.
    for id in &made[2..4] {
        let mut inbox = broker.inbox(*id, None).unwrap();
        let mut got: Vec<Seq> = (0..100)
            .map(|_| inbox.next().unwrap().unwrap().seq)
            .collect();
        let seen = inbox.seen();
        drop(inbox);
        got.extend(all_of(&mut broker.inbox(*id, Some(seen)).unwrap()));
        assert!(got == expected[id]);
    }
    assert!(all_of(&mut broker.inbox(made[4], None).unwrap()).is_empty());
    // The callback receives everything, given the time, before its thread ends.
    while told.lock().unwrap().len() < 3600 {
        std::thread::yield_now();
    }
    drop(notifier);
    assert!(*told.lock().unwrap() == expected[&made[0]]);
}

#[test]
fn consumers_of_changing_subscriptions_receive_all_matches() {
    for seed in 0..esker_sim::by_tier(24, 60) {
        let mut rng = Rng::with_seed(seed);
        let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
        let open = || -> (Database, Broker) {
            let db = PubSub::create_or_open(Path::new("/inbox"), options(&memory, &clock)).unwrap();
            let broker = Broker::create_or_open(&db, Config::new().remember(None)).unwrap();
            (db, broker)
        };
        let (mut db, mut broker) = open();
        let place = |rng: &mut Rng| {
            Place::Region(Region::Circle {
                longitude: f64::from(rng.u8(0..4)),
                latitude: 50.0,
                metres: 100_000.0,
            })
        };
        let mut expected = BTreeMap::<Seq, Vec<Seq>>::new();
        let mut got = BTreeMap::<Seq, Vec<Seq>>::new();
        let mut inboxes = BTreeMap::<Seq, Inbox>::new();
        // The time from which no inbox returns a publication.
        let mut gone = BTreeMap::<Seq, i64>::new();
        let mut moves = 0;
        for _ in 0..400 {
            clock.fetch_add(1, Ordering::SeqCst);
            let ids: Vec<Seq> = expected.keys().copied().collect();
            let any = (!ids.is_empty()).then(|| ids[rng.usize(0..ids.len())]);
            match (rng.u8(0..40), any) {
                (0..3, _) if ids.len() < 8 => {
                    let mut subscription = Subscription::to("a".parse().unwrap())
                        .at_place(place(&mut rng))
                        .lasting(Duration::from_millis(rng.u64(20..2000)))
                        .user(["ann", "bob", "eve"][rng.usize(0..3)]);
                    if rng.bool() {
                        subscription = subscription.join();
                    }
                    let id = broker.subscribe(&subscription).unwrap().id;
                    expected.insert(id, Vec::new());
                    inboxes.insert(id, broker.inbox(id, None).unwrap());
                }
                (3..5, Some(id)) if moves < 12 => {
                    moves += usize::from(broker.move_to(id, place(&mut rng)).unwrap());
                }
                (5, Some(id)) => {
                    broker.unsubscribe(id).unwrap();
                }
                // The inbox does not repeat publications that a renewal returns.
                (15..17, Some(id)) if moves < 12 => {
                    let until = broker.now() + rng.i64(0..1500);
                    moves += usize::from(broker.renew(id, until).unwrap().is_some());
                }
                (6..12, Some(id)) => {
                    let inbox = inboxes.get_mut(&id).unwrap();
                    for _ in 0..rng.u8(0..20) {
                        let next = inbox.next().unwrap();
                        if let Some(next) = next {
                            assert!(gone[&next.seq] > broker.now(), "seed {seed}: {next:?}");
                            got.entry(id).or_default().push(next.seq);
                        }
                    }
                }
                (17, _) => {
                    let all = Subscription::to("a".parse().unwrap()).from(0);
                    let found = broker.query(&all).unwrap();
                    if let Some(one) = found.get(found.len().saturating_sub(rng.usize(1..20))) {
                        assert!(broker.retract(one).unwrap());
                        gone.insert(one.seq, 0);
                    }
                }
                (12, Some(id)) => {
                    let seen = inboxes.remove(&id).unwrap().seen();
                    inboxes.insert(id, broker.inbox(id, Some(seen)).unwrap());
                }
                (13, _) => db.flush().unwrap(),
                (14, _) if rng.bool() => {
                    let seen: Vec<(Seq, Seq)> =
                        inboxes.iter().map(|(id, i)| (*id, i.seen())).collect();
                    inboxes.clear();
                    drop(broker);
                    db.close().unwrap();
                    (db, broker) = open();
                    for (id, seen) in seen {
                        inboxes.insert(id, broker.inbox(id, Some(seen)).unwrap());
                    }
                }
                _ => {
                    let new = Publication::new("a/b".parse().unwrap(), "{}").at_point(
                        f64::from(rng.u8(0..4)),
                        50.0 + f64::from(rng.u8(0..3)) / 2.0,
                    );
                    let new = match rng.u8(0..4) {
                        0 => new.at_time(broker.now() + rng.i64(0..1500)),
                        _ => new,
                    };
                    let expires = match rng.u8(0..3) {
                        0 => broker.now() + rng.i64(1..300),
                        _ => i64::MAX,
                    };
                    let published = broker.publish(&new.expires(expires)).unwrap();
                    gone.insert(published.seq, expires);
                    for matched in published.matches {
                        expected
                            .get_mut(&matched.subscription)
                            .unwrap()
                            .push(published.seq);
                    }
                }
            }
        }
        for (id, inbox) in &mut inboxes {
            let rest = all_of(inbox);
            let got = got.entry(*id).or_default();
            got.extend(rest);
            // An expired publication was returned before it expired, or not at all.
            let is_there = |seq: &Seq| gone[seq] > broker.now() || got.contains(seq);
            let mut all = expected[id].clone();
            all.retain(is_there);
            assert_eq!(*got, all, "seed {seed}, subscription {id}");
        }
    }
}

/// A consumer that is behind receives publications from before the end of its subscription, and
/// none from after it, with and without a user.
#[test]
fn a_late_consumer_receives_nothing_from_after_the_end() {
    let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
    let db = PubSub::create_or_open(Path::new("/inbox"), options(&memory, &clock)).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let publish = || {
        let new = Publication::new("a".parse().unwrap(), "{}");
        broker.publish(&new).unwrap().seq
    };
    for user in ["", "ann"] {
        for is_quick in [false, true] {
            let subscription = Subscription::to("a".parse().unwrap()).user(user);
            let id = broker.subscribe(&subscription).unwrap().id;
            let mut inbox = broker.inbox(id, None).unwrap();
            if is_quick {
                assert!(inbox.next().unwrap().is_none());
            }
            let before = publish();
            assert!(broker.unsubscribe(id).unwrap());
            publish();
            assert_eq!(all_of(&mut inbox), [before], "{user}, {is_quick}");
        }
    }
}

/// A withdrawn publication is removed from queues and from pages read before.
#[test]
fn a_withdrawn_publication_is_in_no_inbox() {
    let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
    let db = PubSub::create_or_open(Path::new("/inbox"), options(&memory, &clock)).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let subscription = Subscription::to("a".parse().unwrap());
    let id = broker.subscribe(&subscription).unwrap().id;
    let publish = || {
        let new = Publication::new("a".parse().unwrap(), "{}");
        broker.publish(&new).unwrap().seq
    };
    let retract = |seq: Seq| {
        let all = broker.query(&subscription.clone().from(0)).unwrap();
        let one = all.iter().find(|found| found.seq == seq).unwrap();
        assert!(broker.retract(one).unwrap());
    };
    let mut quick = broker.inbox(id, None).unwrap();
    assert!(quick.next().unwrap().is_none());
    let made: Vec<Seq> = (0..4).map(|_| publish()).collect();
    let mut late = broker.inbox(id, None).unwrap();
    assert_eq!(late.next().unwrap().map(|next| next.seq), Some(made[0]));
    retract(made[1]);
    retract(made[3]);
    assert_eq!(all_of(&mut quick), [made[0], made[2]]);
    assert_eq!(all_of(&mut late), [made[2]]);
}

/// While the clock is wrong by days, nothing is forgotten.
#[test]
fn a_wrong_jump_of_the_clock_forgets_nothing() {
    let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
    let db = PubSub::create_or_open(Path::new("/inbox"), options(&memory, &clock)).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let publish = |topic: &str| {
        let new = Publication::new(topic.parse().unwrap(), "{}").lives(Duration::from_secs(9));
        broker.publish(&new).unwrap().matches.len()
    };
    let subscribe = |topic: &str| {
        let new = Subscription::to(topic.parse().unwrap()).lasting(Duration::from_secs(60));
        broker.subscribe(&new).unwrap().past.len()
    };
    subscribe("a/b");
    let waits = Subscription::to("a/b".parse().unwrap());
    let mut inbox = broker
        .inbox(broker.subscribe(&waits).unwrap().id, None)
        .unwrap();
    assert!(inbox.next().unwrap().is_none());
    publish("a/b");
    let right = clock.load(Ordering::SeqCst);
    clock.store(right + 3 * 24 * 60 * 60 * 1000, Ordering::SeqCst);
    assert!(db.unconfirmed_time().is_some());
    publish("q/r/s/t");
    subscribe("x/y/z/a/b");
    // A waiting publication has not expired for certain.
    assert!(inbox.next().unwrap().is_some());
    clock.store(right + 1, Ordering::SeqCst);
    assert_eq!(publish("a/b"), 2);
    let here = Subscription::to("a/b".parse().unwrap()).since(Duration::from_secs(1));
    assert_eq!(broker.query(&here).unwrap().len(), 2);
}

/// Neither a queue, nor a page of the lists, nor a follower returns it.
#[test]
fn a_publication_that_expired_while_waiting_is_not_returned() {
    let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
    let db = PubSub::create_or_open(Path::new("/inbox"), options(&memory, &clock)).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let subscription = Subscription::to("a".parse().unwrap());
    let id = broker.subscribe(&subscription).unwrap().id;
    let mut queue = broker.inbox(id, None).unwrap();
    assert!(queue.next().unwrap().is_none());
    let mut follow = broker.follow(&subscription, None).unwrap();
    let publish = |expires| {
        let new = Publication::new("a".parse().unwrap(), "{}");
        broker.publish(&new.expires(expires)).unwrap().seq
    };
    let made: Vec<Seq> = [3_000, 2_000, 3_000, 2_000].map(publish).into();
    let mut page = broker.inbox(id, None).unwrap();
    assert_eq!(page.next().unwrap().unwrap().seq, made[0]);
    assert_eq!(follow.next().unwrap().unwrap().seq, made[0]);
    clock.store(2_000, Ordering::SeqCst);
    assert_eq!(all_of(&mut queue), [made[0], made[2]]);
    assert_eq!(all_of(&mut page), [made[2]]);
    let rest: Vec<Seq> = std::iter::from_fn(|| follow.next().unwrap().map(|f| f.seq)).collect();
    assert_eq!(rest, [made[2]]);
    // Expired publications are not the end of the log: the follower continues behind them.
    for n in 0..3_000 {
        publish(if n < 2_500 { 2_001 } else { 4_000 });
    }
    assert_eq!(
        follow.next().unwrap().map(|next| next.seq > made[3]),
        Some(true)
    );
    clock.store(2_001, Ordering::SeqCst);
    let rest = std::iter::from_fn(|| follow.next().unwrap()).count();
    assert_eq!(rest, 500);
    // They do not come back when the clock is set back.
    clock.store(1_500, Ordering::SeqCst);
    let again = all_of(&mut broker.inbox(id, None).unwrap());
    assert_eq!(again[..2], [made[0], made[2]]);
    assert_eq!(again.len(), 502);
}

/// A follower that lags behind returns no withdrawn publication, whether it found it in the log or
/// in the lists.
#[test]
fn no_follower_returns_a_withdrawn_publication() {
    let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
    let db = PubSub::create_or_open(Path::new("/inbox"), options(&memory, &clock)).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let subscription = Subscription::to("a".parse().unwrap()).from(0);
    let publish = || {
        let new = Publication::new("a".parse().unwrap(), "{}");
        broker.publish(&new).unwrap().seq
    };
    let retract = |seq: Seq| {
        let all = broker.query(&subscription).unwrap();
        let one = all.iter().find(|found| found.seq == seq).unwrap();
        assert!(broker.retract(one).unwrap());
    };
    let mut quick = broker.follow(&subscription, None).unwrap();
    let made: Vec<Seq> = (0..4).map(|_| publish()).collect();
    let mut late = broker.follow(&subscription, None).unwrap();
    assert_eq!(late.next().unwrap().map(|next| next.seq), Some(made[0]));
    retract(made[1]);
    let last = publish();
    retract(made[3]);
    for (follow, expected) in [
        (&mut quick, &[made[0], made[2], last][..]),
        (&mut late, &[made[2], last]),
    ] {
        let got: Vec<Seq> = std::iter::from_fn(|| follow.next().unwrap().map(|f| f.seq)).collect();
        assert_eq!(got, expected);
        assert!(follow.seen() >= last);
    }
}

/// A consumer that reads the lists after its subscription has ended or expired knows its last
/// state: its places, and its end.
#[test]
fn a_late_consumer_knows_the_last_change_of_an_ended_subscription() {
    let place = |longitude: f64| {
        Place::Region(Region::Circle {
            longitude,
            latitude: 50.0,
            metres: 100_000.0,
        })
    };
    for user in ["", "ann"] {
        for expires in [false, true] {
            for change in ["moves", "is renewed", "is cut short"] {
                let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
                let db =
                    PubSub::create_or_open(Path::new("/inbox"), options(&memory, &clock)).unwrap();
                let config = Config::new().remember(Some(Duration::from_millis(50)));
                let broker = Broker::create_or_open(&db, config).unwrap();
                let publish = |longitude: f64| {
                    let new = Publication::new("a".parse().unwrap(), "{}");
                    let published = broker.publish(&new.at_point(longitude, 50.0)).unwrap();
                    (published.seq, published.matches.len())
                };
                let asked = Subscription::to("a".parse().unwrap())
                    .at_place(place(0.0))
                    .until(1_100)
                    .user(user);
                let id = broker.subscribe(&asked).unwrap().id;
                let mut inbox = broker.inbox(id, None).unwrap();
                let mut expected = Vec::new();
                let mut note = |(seq, matches): (Seq, usize)| {
                    expected.extend((matches == 1).then_some(seq));
                };
                note(publish(0.0));
                match change {
                    "moves" => assert!(broker.move_to(id, place(9.0)).unwrap()),
                    "is renewed" => assert!(broker.renew(id, 1_300).unwrap().is_some()),
                    _ => assert!(broker.renew(id, 1_010).unwrap().is_some()),
                }
                clock.fetch_add(20, Ordering::SeqCst);
                note(publish(0.0));
                note(publish(9.0));
                clock.fetch_add(100, Ordering::SeqCst);
                note(publish(0.0));
                note(publish(9.0));
                if expires {
                    clock.store(20_000, Ordering::SeqCst);
                } else {
                    // Some subscriptions have expired already.
                    _ = broker.unsubscribe(id).unwrap();
                }
                let got = all_of(&mut inbox);
                assert_eq!(got, expected, "{user}, {expires}, it {change}");
            }
        }
    }
}

/// The subscription is moved and ended while its consumer is behind.
#[test]
fn a_consumer_that_falls_behind_receives_matches_of_each_place() {
    let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
    let db = PubSub::create_or_open(Path::new("/inbox"), options(&memory, &clock)).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let place = |longitude: f64| {
        Place::Region(Region::Circle {
            longitude,
            latitude: 50.0,
            metres: 100_000.0,
        })
    };
    let asked = Subscription::to("a".parse().unwrap()).at_place(place(0.0));
    let id = broker.subscribe(&asked).unwrap().id;
    let mut inbox = broker.inbox(id, None).unwrap();
    assert!(inbox.next().unwrap().is_none());
    let mut expected = Vec::new();
    for n in 0..1_600 {
        if n == 500 {
            assert!(broker.move_to(id, place(9.0)).unwrap());
        }
        let at = [0.0, 9.0][n % 2];
        let new = Publication::new("a".parse().unwrap(), "{}").at_point(at, 50.0);
        let published = broker.publish(&new).unwrap();
        expected.extend(published.matches.iter().map(|_| published.seq));
    }
    for _ in 0..1_000 {
        let new = Publication::new("a".parse().unwrap(), "{}").at_point(9.0, 50.0);
        expected.push(broker.publish(&new).unwrap().seq);
    }
    assert!(broker.unsubscribe(id).unwrap());
    assert!(all_of(&mut inbox) == expected);
}

/// Time passes while a publisher waits for its turn: publisher and inbox agree whether a
/// subscription that ends in between receives the publication.
#[test]
fn publishers_and_inboxes_agree_on_subscriptions_that_end_during_a_write() {
    for step in [7, 60] {
        let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
        let time = clock.clone();
        // Each read of the clock advances it.
        let options = options(&memory, &clock)
            .clock(Arc::new(move || time.fetch_add(step, Ordering::SeqCst)));
        let db = PubSub::create_or_open(Path::new("/inbox"), options).unwrap();
        let broker = Broker::create_or_open(&db, Config::new()).unwrap();
        for ends_in in 1..60 {
            let until = clock.load(Ordering::SeqCst) + step * ends_in / 2 + 40 * step;
            let asked = Subscription::to("a".parse().unwrap()).until(until as i64);
            let id = broker.subscribe(&asked).unwrap().id;
            let mut inbox = broker.inbox(id, None).unwrap();
            // The subscription ends in the middle of the call.
            clock.store(until - step * ends_in / 4, Ordering::SeqCst);
            let new = Publication::new("a".parse().unwrap(), "{}");
            let published = broker.publish(&new).unwrap();
            let told: Vec<Seq> = published.matches.iter().map(|_| published.seq).collect();
            assert_eq!(all_of(&mut inbox), told, "{step}, {ends_in}");
            clock.fetch_add(step * 1_000, Ordering::SeqCst);
        }
    }
}

/// An open inbox returns a publication with a time of its own, long past or to come, exactly if its
/// publisher found the subscription: ended, forgotten, or remembered for its user.
#[test]
fn publishers_and_inboxes_agree_on_publications_with_their_own_times() {
    let mut late = 0;
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
        let db = PubSub::create_or_open(Path::new("/late"), options(&memory, &clock)).unwrap();
        let config = Config::new()
            .remember(Some(Duration::from_millis(40)))
            .resolution([1, 10][seed as usize % 2]);
        let broker = Broker::create_or_open(&db, config).unwrap();
        let unit = [1, 10][seed as usize % 2];
        let begin = broker.now();
        let mut open: Vec<(Seq, Inbox, Vec<Seq>)> = (0..12)
            .map(|n| {
                let asked = Subscription::to("a".parse().unwrap())
                    .from(begin)
                    .until(begin + unit * rng.i64(0..120))
                    .user(["", "", "ann"][n % 3]);
                let id = broker.subscribe(&asked).unwrap().id;
                let inbox = broker.inbox(id, None).unwrap();
                (id, inbox, Vec::new())
            })
            .collect();
        let mut told = BTreeMap::<Seq, Vec<Seq>>::new();
        for _ in 0..120 {
            clock.fetch_add(rng.u64(0..3), Ordering::SeqCst);
            let new = Publication::new("a".parse().unwrap(), "{}");
            let now = broker.now();
            let time = now - unit * [0, 0, 1, 2, 3, 5, 30, 100, -20][rng.usize(0..9)];
            let new = match rng.u8(0..4) {
                0 => new,
                _ => new.at_time(time),
            };
            let made = broker.publish(&new).unwrap();
            for one in made.matches {
                told.entry(one.subscription).or_default().push(made.seq);
            }
            let (id, inbox, got) = &mut open[rng.usize(0..12)];
            match rng.u8(0..12) {
                0..3 => got.extend(all_of(inbox)),
                3 => db.flush().unwrap(),
                4 => {
                    let until = broker.now() + unit * rng.i64(0..60);
                    _ = broker.renew(*id, until).unwrap();
                }
                5 => _ = broker.move_to(*id, Place::Anywhere).unwrap(),
                6 if rng.u8(0..8) == 0 => _ = broker.unsubscribe(*id).unwrap(),
                _ => {}
            }
            late += usize::from(time < now);
        }
        for (id, inbox, got) in &mut open {
            got.extend(all_of(inbox));
            let expected = told.remove(id).unwrap_or_default();
            assert_eq!(*got, expected, "seed {seed}: {id}");
        }
    }
    assert!(late > 1_000);
}
