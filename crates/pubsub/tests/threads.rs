//! Publishers and subscribers on threads of their own: each publication and each subscription that it is for meet
//! exactly once, while memtables are flushed and merged; followers get everything in order, however slow, and after a
//! restart go on where they were.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esker::fs::memory::Memory;
use esker::{Durability, ErrorKind, KeepLog, Options, Seq};
use esker_pubsub::{Broker, Config, PubSub, Publication, Subscription};

fn options(memory: &Memory) -> Options {
    PubSub::with(Options {
        fs: Arc::new(memory.clone()),
        memory_budget: 1 << 20,
        table_size: 64 << 10,
        durability: Durability::Os,
        ..Options::default()
    })
}

#[test]
fn those_that_race_meet_exactly_once() {
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
    assert_eq!(once.len(), met.len(), "some met twice");
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

#[test]
fn a_follower_gets_everything_in_order_and_goes_on_where_it_was() {
    let memory = Memory::new();
    let keep = KeepLog {
        bytes: 16 << 10,
        ..KeepLog::default()
    };
    let open = || {
        let options = Options {
            keep_log: keep,
            ..options(&memory)
        };
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
            // So far behind that the log has forgotten its place.
            0 => {}
            1 | 2 => {
                while let Some(next) = follow.next().unwrap() {
                    got.push((next.seq, next.body));
                }
            }
            3 => db.flush().unwrap(),
            4 => {
                // What it has seen is all that it keeps.
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

/// However much goes on that it does not ask for.
#[test]
fn a_follower_waits_no_longer_than_it_was_told() {
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
                // So long that no machine is too slow.
                assert!(begun.elapsed() < Duration::from_secs(60), "it waits on");
                let other = Publication::new("b".parse().unwrap(), "{}");
                broker.publish(&other).unwrap();
            }
        });
        assert!(follow.wait(Duration::from_millis(20)).unwrap().is_none());
        has_waited.store(true, Ordering::SeqCst);
    });
}

#[test]
fn those_who_make_a_broker_at_once_get_the_same() {
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
    let options = || Options {
        keep_log: keep,
        ..options(&memory)
    };
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
