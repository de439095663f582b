//! Queues of dropped consumers, and withdrawals before delivery.

use std::path::Path;
use std::sync::Arc;

use esker::{Options, Seq};
use esker_sim::memory::Memory;

use super::{Deliveries, Queue};
use crate::forms::message::Notification;
use crate::{Broker, Config, PubSub, Subscription};

#[test]
fn dropped_consumers_leave_no_queues() {
    let options = PubSub::with(Options::new().fs(Arc::new(Memory::new())));
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

/// The publication waits behind one that is not matched yet.
#[test]
fn a_publication_withdrawn_while_it_waits_is_not_delivered() {
    let deliveries = Deliveries::default();
    let queue = Arc::<Queue>::default();
    deliveries.add(1, &queue);
    let notification = |seq| Notification {
        seq,
        topic: "a".parse().unwrap(),
        time: 0,
        expires: None,
        place: crate::Place::Anywhere,
        body: Vec::new(),
    };
    let mut first = deliveries.begin(10).unwrap();
    let found = |seq| {
        let mut matching = deliveries.begin(seq).unwrap();
        matching.found([1].into_iter(), || notification(seq));
    };
    found(11);
    found(12);
    deliveries.retract(11);
    first.found([1].into_iter(), || notification(10));
    drop(first);
    let waiting = &queue.state.lock().waiting;
    let waiting: Vec<Seq> = waiting.iter().map(|waiting| waiting.seq).collect();
    assert_eq!(waiting, [10, 12]);
}
