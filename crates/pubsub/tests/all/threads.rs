//! Publishers and subscribers on separate threads: each publication meets each matching
//! subscription exactly once, beside flushes and compactions. Followers return everything in order,
//! however slow, and resume after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use esker::options::KeepLog;
use esker::{Durability, ErrorKind, Options, Seq};
use esker_pubsub::{Broker, Config, PubSub, Publication, Subscription};
use esker_sim::memory::Memory;

fn options(memory: &Memory) -> Options {
    PubSub::register(
        Options::new()
            .fs(Arc::new(memory.clone()))
            .memory_budget(1 << 20)
            .table_size(64 << 10)
            .durability(Durability::Os),
    )
}

#[test]
fn racing_publications_and_subscriptions_meet_exactly_once() {
    const EACH: usize = 400;
    let memory = Memory::new();
    let db = PubSub::create_or_open(Path::new("/race"), options(&memory)).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let met = Mutex::new(Vec::<(Seq, Seq)>::new());
    let (published, subscribed) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (broker, met, published) = (&broker, &met, &published);
            scope.spawn(move || {
                for n in 0..EACH {
                    let topic = format!("t/{}", (n + thread) % 5);
                    let body = format!("{{\"n\":{}}}", n % 7);
                    let new = Publication::new(topic.parse().unwrap(), body);
                    let made = broker.publish(&new).unwrap();
                    published.lock().unwrap().push((made.seq, topic, n % 7));
                    let pairs = made.matches.iter().map(|m| (m.subscription, made.seq));
                    met.lock().unwrap().extend(pairs);
                }
            });
        }
        for thread in 0..3 {
            let (broker, met, subscribed) = (&broker, &met, &subscribed);
            scope.spawn(move || {
                for n in 0..EACH / 8 {
                    let topic = ["t/1", "t/3", "t", "t/#", "t/+"][(n + thread) % 5];
                    let wanted = n % 7;
                    let subscription = Subscription::to(topic.parse().unwrap())
                        .since(Duration::from_secs(3600))
                        .matching(format!("n = {wanted}").parse().unwrap());
                    let made = broker.subscribe(&subscription).unwrap();
                    subscribed.lock().unwrap().push((made.id, topic, wanted));
                    let pairs = made.past.iter().map(|p| (made.id, p.seq));
                    met.lock().unwrap().extend(pairs);
                }
            });
        }
    });
    let mut met = met.into_inner().unwrap();
    met.sort_unstable();
    let once: BTreeSet<(Seq, Seq)> = met.iter().copied().collect();
    assert_eq!(once.len(), met.len(), "some pairs met twice");
    let mut expected = BTreeSet::new();
    let published = published.into_inner().unwrap();
    for (id, filter, wanted) in subscribed.into_inner().unwrap() {
        for (seq, topic, n) in &published {
            if *n == wanted
                && (filter.len() != 3 || filter.ends_with(['#', '+']) || filter == topic)
            {
                expected.insert((id, *seq));
            }
        }
    }
    assert!(
        once == expected,
        "{} met, not {}",
        once.len(),
        expected.len()
    );
}

/// Consumers receive the matches of publishers, beside moves, renewals, ends and withdrawals.
#[test]
fn consumers_receive_each_match_once_beside_changes() {
    for seed in 0..8 {
        let memory = Memory::new();
        let db = PubSub::create_or_open(Path::new("/all"), options(&memory)).unwrap();
        let broker = Broker::create_or_open(&db, Config::new()).unwrap();
        let near = |n: u8| {
            esker_pubsub::Place::Region(esker_pubsub::Region::Circle {
                longitude: f64::from(n),
                latitude: 50.0,
                metres: 100_000.0,
            })
        };
        let ids: Vec<Seq> = (0..6)
            .map(|n| {
                let asked = Subscription::to("a".parse().unwrap())
                    .at_place(near(n % 3))
                    .lasting(Duration::from_secs(3600))
                    .user(["", "ann"][usize::from(n % 2)]);
                let asked = if n == 3 { asked.join() } else { asked };
                broker.subscribe(&asked).unwrap().id
            })
            .collect();
        let told = Mutex::new(BTreeSet::new());
        let withdrawn = Mutex::new(BTreeSet::new());
        let left = AtomicUsize::new(3);
        let got: Vec<(Seq, Vec<Seq>)> = std::thread::scope(|scope| {
            for thread in 0..3 {
                let (broker, told, withdrawn, left) = (&broker, &told, &withdrawn, &left);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed << 4 | thread);
                    for _ in 0..250 {
                        let new = Publication::new("a/b".parse().unwrap(), "{}");
                        let new = new.at_point(f64::from(rng.u8(0..4)), 50.0);
                        let made = broker.publish(&new).unwrap();
                        let pairs = made.matches.iter().map(|m| (m.subscription, made.seq));
                        told.lock().unwrap().extend(pairs);
                        if rng.u8(0..20) == 0 {
                            let all = Subscription::to("a".parse().unwrap()).from(0);
                            let found = broker.query(&all).unwrap();
                            if let Some(one) = found.iter().find(|one| one.seq == made.seq) {
                                withdrawn.lock().unwrap().insert(one.seq);
                                broker.retract(one).unwrap();
                            }
                        }
                    }
                    left.fetch_sub(1, Ordering::SeqCst);
                });
            }
            let (broker, ids, db, left) = (&broker, &ids, &db, &left);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let (mut moves, mut n) = (0, 0);
                while left.load(Ordering::SeqCst) > 0 {
                    let id = ids[rng.usize(..5)];
                    n += 1;
                    match rng.u8(0..12) {
                        // The directory keeps this many places.
                        0..4 if moves < 12 => {
                            broker.move_to(id, near(rng.u8(0..3))).unwrap();
                            moves += 1;
                        }
                        4..6 => {
                            let until = broker.now() + rng.i64(100_000..1_000_000);
                            broker.renew(id, until).unwrap();
                        }
                        6 if n > 400 => {
                            broker.unsubscribe(ids[5]).unwrap();
                        }
                        7 => db.flush().unwrap(),
                        _ => std::thread::yield_now(),
                    }
                }
            });
            let consume = |id: Seq, most: u64| {
                let mut inbox = broker.inbox(id, None).unwrap();
                let mut got = Vec::new();
                loop {
                    let is_last = left.load(Ordering::SeqCst) == 0;
                    match inbox.wait(Duration::from_millis(most)).unwrap() {
                        Some(next) => got.push(next.seq),
                        None if is_last => return (id, got),
                        // Now and then the inbox is opened again at its last number.
                        None => inbox = broker.inbox(id, Some(inbox.seen())).unwrap(),
                    }
                }
            };
            let threads: Vec<_> = ids
                .iter()
                .map(|id| scope.spawn(move || consume(*id, 1)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let (told, withdrawn) = (told.into_inner().unwrap(), withdrawn.into_inner().unwrap());
        assert!(told.len() > 100, "{}", told.len());
        for (id, got) in got {
            let once: BTreeSet<Seq> = got.iter().copied().collect();
            assert!(got.is_sorted() && once.len() == got.len(), "{id}: {got:?}");
            let all = told.iter().filter(|(of, _)| *of == id).map(|(_, seq)| *seq);
            let all: BTreeSet<Seq> = all.collect();
            let strange: Vec<&Seq> = once.difference(&all).collect();
            assert!(strange.is_empty(), "seed {seed}: {id} got {strange:?}");
            let missed: Vec<&Seq> = all.difference(&once).collect();
            let is_gone = missed.iter().all(|seq| withdrawn.contains(seq));
            assert!(
                is_gone,
                "seed {seed}: {id} missed {missed:?} of {withdrawn:?}"
            );
        }
    }
}

/// Consumers that read only after their subscriptions have ended, or that lag behind, receive the
/// matches of publishers, beside moves, renewals and ends. Publications withdrawn before the read
/// are not returned.
#[test]
fn late_readers_receive_all_matches_except_withdrawn_ones() {
    for seed in 0..12 {
        let memory = Memory::new();
        let db = PubSub::create_or_open(Path::new("/late"), options(&memory)).unwrap();
        let broker = Broker::create_or_open(&db, Config::new()).unwrap();
        let near = |n: u8| {
            esker_pubsub::Place::Region(esker_pubsub::Region::Circle {
                longitude: f64::from(n),
                latitude: 50.0,
                metres: 100_000.0,
            })
        };
        let ids: Vec<Seq> = (0..8)
            .map(|n| {
                let asked = Subscription::to("a".parse().unwrap())
                    .at_place(near(n % 3))
                    .lasting(Duration::from_secs(3600))
                    .user(["", "ann", "bob"][usize::from(n % 3)]);
                broker.subscribe(&asked).unwrap().id
            })
            .collect();
        let mut late: Vec<_> = ids
            .iter()
            .map(|id| broker.inbox(*id, None).unwrap())
            .collect();
        // Some have read the lists once, and have a queue.
        for inbox in late.iter_mut().step_by(2) {
            assert!(inbox.next().unwrap().is_none());
        }
        let told = Mutex::new(BTreeSet::new());
        let withdrawn = Mutex::new(BTreeMap::<Seq, usize>::new());
        let (left, steps) = (AtomicUsize::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let (broker, ids, db) = (&broker, &ids, &db);
            let (told, withdrawn, left, steps) = (&told, &withdrawn, &left, &steps);
            for thread in 0..3 {
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed << 4 | thread);
                    let mut own = broker.inbox(ids[thread as usize], None).unwrap();
                    for _ in 0..600 {
                        let new = Publication::new("a/b".parse().unwrap(), "{}");
                        let new = new.at_point(f64::from(rng.u8(0..3)), 50.0);
                        let made = broker.publish(&new).unwrap();
                        let pairs = made.matches.iter().map(|m| (m.subscription, made.seq));
                        told.lock().unwrap().extend(pairs);
                        let begun = steps.fetch_add(1, Ordering::SeqCst);
                        let Some(next) = own.next().unwrap() else {
                            continue;
                        };
                        let gone = withdrawn.lock().unwrap().get(&next.seq).copied();
                        assert!(
                            gone.is_none_or(|gone| gone > begun),
                            "seed {seed}: {} was withdrawn, but is returned",
                            next.seq
                        );
                        if rng.u8(0..6) == 0 {
                            assert!(broker.retract(&next).unwrap());
                            let done = steps.fetch_add(1, Ordering::SeqCst);
                            withdrawn.lock().unwrap().entry(next.seq).or_insert(done);
                        }
                    }
                    left.fetch_sub(1, Ordering::SeqCst);
                });
            }
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut moves = BTreeMap::<Seq, usize>::new();
                while left.load(Ordering::SeqCst) > 0 {
                    let id = ids[rng.usize(..ids.len())];
                    let moved = moves.entry(id).or_default();
                    match rng.u8(0..40) {
                        // The directory keeps this many places.
                        0..8 if *moved < 10 => {
                            *moved += usize::from(broker.move_to(id, near(rng.u8(0..3))).unwrap());
                        }
                        8..12 if *moved < 10 => {
                            let until = broker.now() + rng.i64(100_000..1_000_000);
                            *moved += usize::from(broker.renew(id, until).unwrap().is_some());
                        }
                        12 => _ = broker.unsubscribe(id).unwrap(),
                        13 => db.flush().unwrap(),
                        _ => std::thread::yield_now(),
                    }
                }
                for id in ids {
                    broker.unsubscribe(*id).unwrap();
                }
            });
        });
        let (told, withdrawn) = (told.into_inner().unwrap(), withdrawn.into_inner().unwrap());
        for (id, inbox) in ids.iter().zip(&mut late) {
            let got: Vec<Seq> = std::iter::from_fn(|| inbox.next().unwrap())
                .map(|next| next.seq)
                .collect();
            let of_it = told.iter().filter(|(of, _)| of == id).map(|(_, seq)| *seq);
            let expected: Vec<Seq> = of_it.filter(|seq| !withdrawn.contains_key(seq)).collect();
            assert!(
                got == expected,
                "seed {seed}: {id} got {} of {}",
                got.len(),
                expected.len()
            );
        }
    }
}

#[test]
fn a_follower_returns_everything_in_order_and_resumes() {
    let memory = Memory::new();
    let keep = KeepLog {
        bytes: 16 << 10,
        ..KeepLog::default()
    };
    let open = || {
        let options = options(&memory).keep_log(keep);
        PubSub::create_or_open(Path::new("/follow"), options).unwrap()
    };
    let mut db = open();
    let mut broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let subscription = Subscription::to("a".parse().unwrap()).from(0);
    let mut follow = broker.follow(&subscription, None).unwrap();
    let mut sent = Vec::new();
    let mut got = Vec::new();
    let mut rng = fastrand::Rng::with_seed(7);
    for n in 0..3000 {
        let topic = ["a", "a/b", "b"][n % 3];
        let body = format!("{{\"n\":{n},\"filler\":\"{}\"}}", "x".repeat(200));
        let new = Publication::new(topic.parse().unwrap(), body.clone());
        let made = broker.publish(&new).unwrap();
        if topic != "b" {
            sent.push((made.seq, body.into_bytes()));
        }
        match rng.u32(0..400) {
            // The follower falls so far behind that the log no longer has its place.
            0 => {}
            1 | 2 => {
                while let Some(next) = follow.next().unwrap() {
                    got.push((next.seq, next.body));
                }
            }
            3 => db.flush().unwrap(),
            4 => {
                // The follower resumes from its number alone.
                let seen = follow.seen();
                drop((follow, broker));
                db.close().unwrap();
                db = open();
                broker = Broker::open(&db).unwrap();
                follow = broker.follow(&subscription, Some(seen)).unwrap();
            }
            _ => {}
        }
    }
    while let Some(next) = follow.wait(Duration::from_millis(10)).unwrap() {
        got.push((next.seq, next.body));
    }
    assert!(got == sent, "{} got of {} sent", got.len(), sent.len());
    let joins = subscription.user("ann").join();
    let refused = broker.follow(&joins, None).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::BadInput);
}

/// However many publications do not match.
#[test]
fn a_follower_waits_no_longer_than_requested() {
    let memory = Memory::new();
    let db = PubSub::create_or_open(Path::new("/busy"), options(&memory)).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let asked = Subscription::to("a".parse().unwrap());
    let mut follow = broker.follow(&asked, None).unwrap();
    let has_waited = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while !has_waited.load(Ordering::SeqCst) {
                // Long enough for the slowest machine.
                assert!(
                    begun.elapsed() < Duration::from_secs(60),
                    "the follower still waits"
                );
                let other = Publication::new("b".parse().unwrap(), "{}");
                broker.publish(&other).unwrap();
            }
        });
        assert!(follow.wait(Duration::from_millis(20)).unwrap().is_none());
        has_waited.store(true, Ordering::SeqCst);
    });
}

#[test]
fn threads_that_create_a_broker_at_once_share_it() {
    for _ in 0..50 {
        let memory = Memory::new();
        let db = PubSub::create_or_open(Path::new("/made"), options(&memory)).unwrap();
        let begin = std::sync::Barrier::new(3);
        let make = || {
            begin.wait();
            let broker = Broker::create_or_open(&db, Config::new()).unwrap();
            let asked = Subscription::to("a".parse().unwrap());
            broker.subscribe(&asked).unwrap().id
        };
        let mut made: Vec<Seq> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(make)).collect();
            threads
                .into_iter()
                .map(|made| made.join().unwrap())
                .collect()
        });
        let new = Publication::new("a".parse().unwrap(), "{}");
        let published = Broker::open(&db).unwrap().publish(&new).unwrap();
        made.sort_unstable();
        let told: Vec<Seq> = published.matches.iter().map(|m| m.subscription).collect();
        assert_eq!(told, made);
    }
}

#[test]
fn all_handles_of_a_store_are_one_broker_and_readers_keep_up() {
    let memory = Memory::new();
    let keep = KeepLog {
        bytes: 4 << 10,
        ..KeepLog::default()
    };
    let options = || options(&memory).keep_log(keep);
    let db = PubSub::create_or_open(Path::new("/one"), options()).unwrap();
    let first = Broker::create_or_open(&db, Config::new()).unwrap();
    let second = Broker::open(&db).unwrap();
    let made = first
        .subscribe(&Subscription::to("x/y/z".parse().unwrap()))
        .unwrap();
    let seen = second
        .publish(&Publication::new("x/y/z".parse().unwrap(), "{}"))
        .unwrap();
    assert_eq!(seen.matches.len(), 1);
    assert_eq!(seen.matches[0].subscription, made.id);

    // A reader that falls behind the log finds topics of other depths in the lists.
    let reader = esker::Database::open_reader(Path::new("/one"), options()).unwrap();
    let there = Broker::open(&reader).unwrap();
    let all = Subscription::to("#".parse().unwrap()).from(0);
    let mut follow = there.follow(&all, None).unwrap();
    let mut sent = vec![seen.seq];
    for n in 0..600 {
        let topic = ["a", "a/b", "a/b/c/d"][n % 3].parse().unwrap();
        let new = Publication::new(topic, "x".repeat(300));
        sent.push(first.publish(&new).unwrap().seq);
        if n % 100 == 99 {
            db.flush().unwrap();
        }
    }
    let got: Vec<Seq> =
        std::iter::from_fn(|| follow.next().unwrap().map(|next| next.seq)).collect();
    assert!(got == sent, "{} of {}", got.len(), sent.len());
}
