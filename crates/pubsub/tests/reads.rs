//! What publications and subscriptions read follows what is alive.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::fs::memory::Memory;
use esker::{Durability, Options};
use esker_pubsub::{Broker, Config, PubSub, Publication, Subscription, Topic};

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
    let db = PubSub::open(Path::new("/reads"), options).unwrap();
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
