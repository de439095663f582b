//! What has expired leaves the tables.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::extension::{Component, ExtensionStore};
use esker::{Durability, Options};
use esker_pubsub::{Broker, Config, PubSub, Subscription, Topic};
use esker_sim::memory::Memory;

/// The number of entries in the tables of the value lists.
fn stored(store: &ExtensionStore) -> u64 {
    let lists = store.tree("lists").unwrap();
    let components = store.snapshot().components(lists);
    let of = |component: Component| match component {
        Component::Memtable(_) => 0,
        Component::Run(run) => run.tables.iter().map(|table| table.meta().entries).sum(),
    };
    components.into_iter().map(of).sum()
}

/// Two subscriptions share a list, and one of them has no end. It is ended, so that only the other
/// is left in an entry that never expires.
#[test]
fn an_expired_element_leaves_an_entry_that_lives_on() {
    let clock = Arc::new(AtomicU64::new(1_000));
    let time = clock.clone();
    let options = PubSub::register(
        Options::new()
            .fs(Arc::new(Memory::new()))
            .background(false)
            .durability(Durability::Os)
            .clock(Arc::new(move || time.load(Ordering::SeqCst))),
    );
    let db = PubSub::create_or_open(Path::new("/expired"), options).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let subscribe = |name: &str, until| {
        let topic: Topic = name.parse().unwrap();
        let asked = Subscription::to(topic.into()).until(until);
        broker.subscribe(&asked).unwrap().id
    };
    let endless = subscribe("t", i64::MAX);
    subscribe("t", 60_000);
    assert!(broker.unsubscribe(endless).unwrap());
    db.compact(None).unwrap();
    let store = db.extension("pubsub").unwrap();
    assert_eq!(stored(&store), 1, "the other one, until it ends");
    clock.store(70_000, Ordering::SeqCst);
    // A second run: there is something to compact.
    subscribe("u", 200_000);
    db.compact(None).unwrap();
    assert_eq!(stored(&store), 1, "the last subscription only");
}
