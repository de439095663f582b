//! What publications and subscriptions read follows what is alive.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::fs::memory::Memory;
use esker::{Durability, Options};
use esker_pubsub::{
    Architecture, Broker, Config, PubSub, Publication, Subscription, Threshold, Topic,
};

/// The paper's Table 3: the blocks that a publication and a subscription read, before the cache, in a tree of `L + l0` runs
/// each of which has every list: one a run, and with self-joins, which look at both lists, one a run with DualDB and two with
/// TwoDB. (The write of each is one more, which goes to the log.)
#[test]
fn blocks_read_are_those_of_the_cost_analysis() {
    const RUNS: u64 = 3;
    const LISTS: u64 = 1500;
    const ASKED: u64 = 300;
    for architecture in [Architecture::DualDb, Architecture::TwoDb] {
        for joins in [false, true] {
            let options = PubSub::with(Options {
                fs: Arc::new(Memory::new()),
                background: false,
                durability: Durability::Os,
                ..Options::default()
            });
            let db = PubSub::create_or_open(Path::new("/table3"), options).unwrap();
            let config = Config::new().architecture(architecture).remember(None);
            let broker = Broker::create_or_open(&db, config).unwrap();
            let topic = |n: u64| Topic::dewey(&[n]).unwrap();
            let subscription = |n: u64| {
                let new = Subscription::to(topic(n).into()).tag([7; 40]);
                match joins {
                    true => new
                        .user(format!("user {n}"))
                        .join()
                        .on_change("v".parse().unwrap(), Threshold::Absolute(1.0)),
                    false => new,
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
            // Of what was published before, too.
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
            // The lists of a node lie in two blocks where one ends between them.
            let most = both as f64 * 1.2;
            assert!(publish >= RUNS as f64 && publish <= most, "{what}");
            assert!(subscribe >= RUNS as f64 && subscribe <= most, "{what}");
        }
    }
}

/// Subscriptions that expired together fill a stretch of a component; too little of it for a compaction to be worth
/// while. A publication among them must not read through to the next one that lives.
#[test]
fn what_has_expired_beside_a_list_is_not_read() {
    let (memory, clock) = (Memory::new(), Arc::new(AtomicU64::new(1_000)));
    let time = clock.clone();
    let options = PubSub::with(Options {
        fs: Arc::new(memory.clone()),
        durability: Durability::Os,
        clock: Arc::new(move || time.load(Ordering::SeqCst)),
        ..Options::default()
    });
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

/// A publication needs the one before it when somebody asks for changes: once, however many do. Where nobody is told, it does
/// not read components that have nothing but publications.
#[test]
fn the_publication_before_is_looked_for_once_and_where_it_is_needed() {
    for architecture in [Architecture::DualDb, Architecture::TwoDb] {
        let options = PubSub::with(Options {
            fs: Arc::new(Memory::new()),
            background: false,
            durability: Durability::Os,
            ..Options::default()
        });
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
        assert_eq!(publish(1, 10).0, 0, "there was none before");
        assert_eq!(publish(2, 10).0, 0, "nobody asks");
        db.flush().unwrap();
        let (told, walks, blocks) = publish(1, 20);
        // The subscriptions are in one component, the publication before in another.
        assert_eq!((told, walks, blocks), (5, 2, 2), "{architecture:?}");
        let (told, walks, blocks) = publish(2, 20);
        assert_eq!((told, walks, blocks), (0, 1, 0), "{architecture:?}");
    }
}
