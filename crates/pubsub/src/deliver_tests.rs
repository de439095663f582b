//! What publishers know of consumers that are gone.

use std::path::Path;
use std::sync::Arc;

use esker::Options;
use esker::fs::memory::Memory;

use crate::{Broker, Config, PubSub, Subscription};

#[test]
fn nothing_is_left_of_consumers_that_are_gone() {
    let options = PubSub::with(Options {
        fs: Arc::new(Memory::new()),
        ..Options::default()
    });
    let db = PubSub::create_or_open(Path::new("/gone"), options).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let id = broker
        .subscribe(&Subscription::to("a".parse().unwrap()))
        .unwrap()
        .id;
    let deliveries = &broker.inner.deliveries;
    let known = || {
        deliveries
            .queues
            .lock()
            .values()
            .map(Vec::len)
            .sum::<usize>()
    };
    let (first, second) = (
        broker.inbox(id, None).unwrap(),
        broker.inbox(id, None).unwrap(),
    );
    let notifier = broker.notify(id, None, |_| {}).unwrap();
    assert_eq!(known(), 3);
    drop(first);
    assert_eq!(known(), 2);
    drop(notifier);
    assert_eq!(known(), 1);
    drop(second);
    assert_eq!(known(), 0);
    assert!(deliveries.queues.lock().is_empty());
}
