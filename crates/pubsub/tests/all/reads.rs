//! The reads of publications and subscriptions depend on live elements, not on all stored ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::{Durability, Options};
use esker_pubsub::{
    Architecture, Broker, Config, PubSub, Publication, Subscription, Threshold, Topic,
};
use esker_sim::memory::Memory;

/// The paper's Table 3: the blocks that a publication and a subscription read, before the cache, in
/// a tree of `L + l0` runs each of which has every list. It is one for each run; self-joins read
/// both lists, one for each run with DualDB and two with TwoDB. (The write of each is one more,
/// which goes to the log.)
#[test]
fn blocks_read_are_those_of_the_cost_analysis() {
    const RUNS: u64 = 3;
    const LISTS: u64 = 1500;
    const ASKED: u64 = 300;
    for architecture in [Architecture::DualDb, Architecture::TwoDb] {
        for joins in [false, true] {
            let options = PubSub::register(
                Options::new()
                    .fs(Arc::new(Memory::new()))
                    .background(false)
                    .durability(Durability::Os),
            );
            let db = PubSub::create_or_open(Path::new("/table3"), options).unwrap();
            let config = Config::new().architecture(architecture).remember(None);
            let broker = Broker::create_or_open(&db, config).unwrap();
            let topic = |n: u64| Topic::dewey(&[n]).unwrap();
            let subscription = |n: u64| {
                let new = Subscription::to(topic(n).into()).tag([7; 40]);
                if joins {
                    new.user(format!("user {n}"))
                        .join()
                        .on_change("v".parse().unwrap(), Threshold::Absolute(1.0))
                } else {
                    new
                }
            };
            let publication = |n: u64, v: u64| {
                let body = format!("{{\"v\":{v},\"text\":\"{}\"}}", "x".repeat(40));
                Publication::new(topic(n), body)
            };
            for round in 0..RUNS {
                for n in 0..LISTS {
                    broker.publish(&publication(n, 5 * round)).unwrap();
                    broker.subscribe(&subscription(n)).unwrap();
                }
                db.flush().unwrap();
            }
            let blocks = |ask: &dyn Fn(u64)| {
                let before = broker.read_stats().data_blocks;
                (0..ASKED).for_each(|n| ask(n * (LISTS / ASKED)));
                (broker.read_stats().data_blocks - before) as f64 / ASKED as f64
            };
            let publish = blocks(&|n| {
                let made = broker.publish(&publication(n, 100)).unwrap();
                assert_eq!(made.matches.len() as u64, RUNS);
            });
            // With earlier publications.
            let subscribe = blocks(&|n| {
                let past = subscription(n).since(Duration::from_secs(3600));
                let made = broker.subscribe(&past).unwrap();
                assert!(!made.past.is_empty());
            });
            let what =
                format!("{architecture:?}, self-joins {joins}: {publish} and {subscribe} blocks");
            println!("{what}");
            let both = match (joins, architecture) {
                (true, Architecture::TwoDb) => 2 * RUNS,
                _ => RUNS,
            };
            // The lists of a node lie in two blocks if one ends between them.
            let most = both as f64 * 1.2;
            assert!(publish >= RUNS as f64 && publish <= most, "{what}");
            assert!(subscribe >= RUNS as f64 && subscribe <= most, "{what}");
        }
    }
}

/// Subscriptions that expired together fill a stretch of a component, too small for a compaction to
/// be due. A publication among them must not read through to the next live one.
#[test]
fn expired_neighbours_of_a_list_are_not_read() {
    let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
    let time = clock.clone();
    let options = PubSub::register(
        Options::new()
            .fs(Arc::new(memory.clone()))
            .durability(Durability::Os)
            .clock(Arc::new(move || time.load(Ordering::SeqCst))),
    );
    let db = PubSub::create_or_open(Path::new("/reads"), options).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let topic = |n: u64| Topic::dewey(&[n]).unwrap();
    let subscribe = |n: u64, lasts: Option<Duration>| {
        let new = Subscription::to(topic(n).into()).tag([7; 200]);
        let new = match lasts {
            Some(lasts) => new.lasting(lasts),
            None => new,
        };
        broker.subscribe(&new).unwrap();
    };
    for n in 0..20_000 {
        subscribe(n, (n < 2_000).then_some(Duration::from_secs(1)));
    }
    db.flush().unwrap();
    clock.store(10_000, Ordering::SeqCst);
    for (n, matches) in [(0, 0), (10, 0), (1_000, 0), (5_000, 1)] {
        let before = broker.read_stats().data_blocks;
        let made = broker.publish(&Publication::new(topic(n), "{}")).unwrap();
        assert_eq!(made.matches.len(), matches, "topic {n}");
        let read = broker.read_stats().data_blocks - before;
        assert!(read <= 4, "topic {n}: {read} blocks");
    }
}

/// A publication reads the previous one for subscriptions to changes: once, however many these are.
/// If it matches none, it does not read components that have only publications.
#[test]
fn the_previous_publication_is_read_once_and_only_if_needed() {
    for architecture in [Architecture::DualDb, Architecture::TwoDb] {
        let options = PubSub::register(
            Options::new()
                .fs(Arc::new(Memory::new()))
                .background(false)
                .durability(Durability::Os),
        );
        let db = PubSub::create_or_open(Path::new("/before"), options).unwrap();
        let config = Config::new().architecture(architecture).remember(None);
        let broker = Broker::create_or_open(&db, config).unwrap();
        let topic = |n: u64| Topic::dewey(&[n]).unwrap();
        let publish = |n: u64, v: u64| {
            let before = broker.read_stats();
            let new = Publication::new(topic(n), format!("{{\"v\":{v}}}"));
            let told = broker.publish(&new).unwrap().matches.len();
            let after = broker.read_stats();
            let (walks, blocks) = (
                after.walks - before.walks,
                after.data_blocks - before.data_blocks,
            );
            (told, walks, blocks)
        };
        for _ in 0..5 {
            let change = Threshold::Absolute(1.0);
            let new = Subscription::to(topic(1).into()).on_change("v".parse().unwrap(), change);
            broker.subscribe(&new).unwrap();
        }
        db.flush().unwrap();
        assert_eq!(publish(1, 10).0, 0, "there is no previous publication");
        assert_eq!(publish(2, 10).0, 0, "no subscription matches");
        db.flush().unwrap();
        let (told, walks, blocks) = publish(1, 20);
        // The subscriptions are in one component, the previous publication in another.
        assert_eq!((told, walks, blocks), (5, 2, 2), "{architecture:?}");
        let (told, walks, blocks) = publish(2, 20);
        assert_eq!((told, walks, blocks), (0, 1, 0), "{architecture:?}");
    }
}

fn open(config: Config) -> (esker::Database, Broker, Arc<AtomicU64>) {
    let clock = Arc::new(AtomicU64::new(1_000));
    let time = clock.clone();
    let options = PubSub::register(
        Options::new()
            .fs(Arc::new(Memory::new()))
            .background(false)
            .durability(Durability::Os)
            .clock(Arc::new(move || time.load(Ordering::SeqCst))),
    );
    let db = PubSub::create_or_open(Path::new("/times"), options).unwrap();
    let broker = Broker::create_or_open(&db, config).unwrap();
    (db, broker, clock)
}

/// The blocks that an operation read, and the tables that it skipped by their times.
fn read(broker: &Broker, operation: &mut dyn FnMut()) -> (u64, u64) {
    let before = broker.read_stats();
    operation();
    let after = broker.read_stats();
    (
        after.data_blocks - before.data_blocks,
        after.tables_skipped - before.tables_skipped,
    )
}

/// Every table has the list. A subscription skips tables whose publications have other times, even
/// though some clocks were behind and no publication expires.
#[test]
fn tables_of_other_times_are_skipped() {
    for architecture in [Architecture::DualDb, Architecture::TwoDb] {
        let (db, broker, _) = open(Config::new().architecture(architecture));
        for time in [100, 900, 300, 200] {
            for n in 0..40 {
                let topic = format!("a/{n}").parse().unwrap();
                let new = Publication::new(topic, format!("{{\"v\":{time}}}"));
                broker.publish(&new.at_time(time + n)).unwrap();
            }
            db.flush().unwrap();
        }
        let ask = |filter: &str, from, to, found: usize| {
            let asked = Subscription::to(filter.parse().unwrap());
            let asked = asked.from(from).until(to);
            read(&broker, &mut || {
                assert_eq!(
                    broker.query(&asked).unwrap().len(),
                    found,
                    "{filter} {from}"
                );
            })
        };
        assert_eq!(ask("a/7", 0, 2000, 4), (4, 0), "{architecture:?}");
        assert_eq!(ask("a/7", 800, 2000, 1), (1, 3), "{architecture:?}");
        assert_eq!(ask("a/7", 150, 320, 2), (2, 2), "{architecture:?}");
        assert_eq!(ask("a/7", 400, 800, 0), (0, 4), "{architecture:?}");
        let (all, none) = ask("a/+", 0, 2000, 160);
        assert!(all >= 4 && none == 0, "{architecture:?}: {all}");
        let (some, skipped) = ask("a/+", 800, 2000, 40);
        assert!(
            some <= all.div_ceil(3) && skipped == 3,
            "{architecture:?}: {some}"
        );
        // A merged table has the times of its inputs.
        db.compact(None).unwrap();
        assert_eq!(ask("a/7", 800, 2000, 1), (1, 0), "{architecture:?}");
        assert_eq!(ask("a/7", 0, 50, 0), (0, 1), "{architecture:?}");
    }
}

/// A publication skips tables whose subscriptions have all ended, even if they are remembered, and
/// tables whose subscriptions all begin later. Skipped tables bring back no subscription that was
/// ended or cut short.
#[test]
fn tables_with_subscriptions_to_other_times_are_skipped() {
    for architecture in [Architecture::DualDb, Architecture::TwoDb] {
        let (db, broker, clock) = open(Config::new().architecture(architecture).remember(None));
        let subscribe = |from, to| {
            let new = Subscription::to("a".parse().unwrap()).user("ann");
            broker.subscribe(&new.from(from).until(to)).unwrap().id
        };
        let publish = |matches: &[u64]| {
            let new = Publication::new("a".parse().unwrap(), "{}");
            let mut made = Vec::new();
            let cost = read(&broker, &mut || {
                made = broker.publish(&new).unwrap().matches
            });
            let mut made: Vec<u64> = made.iter().map(|m| m.subscription).collect();
            made.sort_unstable();
            assert_eq!(made, matches, "{architecture:?}");
            cost
        };
        let at = |time| clock.store(time, Ordering::SeqCst);
        let (short, long) = (subscribe(1_000, 1_010), subscribe(1_000, 5_000));
        db.flush().unwrap();
        let middle = subscribe(1_000, 1_020);
        db.flush().unwrap();
        let later = subscribe(3_000, 6_000);
        db.flush().unwrap();
        assert_eq!(publish(&[short, long, middle]), (2, 1));
        at(1_015);
        assert_eq!(publish(&[long, middle]), (2, 1));
        at(2_000);
        assert_eq!(publish(&[long]), (1, 2));
        // Every read of the longer form also reads the shorter one, which voids it.
        assert!(broker.renew(long, 2_100).unwrap().is_some());
        db.flush().unwrap();
        at(2_050);
        assert_eq!(publish(&[long]), (2, 2));
        at(2_200);
        assert_eq!(publish(&[]), (2, 2));
        assert!(broker.unsubscribe(later).unwrap());
        db.flush().unwrap();
        at(3_500);
        assert_eq!(publish(&[]), (4, 1));
        at(5_500);
        assert_eq!(publish(&[]), (2, 3));
        db.compact(None).unwrap();
        assert_eq!(publish(&[]).1, 0);
    }
}

/// In one tree, a publication that reads both lists of its topic reads no table for publications
/// alone: it reads tables that may have subscriptions, and the previous publication if one of these
/// is to changes.
#[test]
fn tables_with_publications_are_skipped_where_their_subscriptions_have_ended() {
    let (db, broker, clock) = open(Config::new().remember(None));
    let subscribe = |until| {
        let change = Threshold::Absolute(1.0);
        let new = Subscription::to("a".parse().unwrap()).user(format!("until {until}"));
        let new = new.until(until).on_change("v".parse().unwrap(), change);
        broker.subscribe(&new).unwrap();
    };
    let publish = |v: u64| {
        let mut told = 0;
        let new = Publication::new("a".parse().unwrap(), format!("{{\"v\":{v}}}"));
        let (blocks, skipped) = read(&broker, &mut || {
            told = broker.publish(&new).unwrap().matches.len();
        });
        (told, blocks, skipped)
    };
    subscribe(1_010);
    assert_eq!(publish(10), (0, 0, 0));
    db.flush().unwrap();
    assert_eq!(publish(20), (1, 1, 0));
    clock.store(2_000, Ordering::SeqCst);
    assert_eq!(publish(30), (0, 0, 1));
    db.flush().unwrap();
    subscribe(5_000);
    db.flush().unwrap();
    // It reads the newest publication in the table.
    assert_eq!(publish(40).0, 1);
    assert_eq!(publish(40).0, 0, "the number has not changed");
}
