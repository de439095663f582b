//! Queues of dropped consumers, and withdrawals before delivery.

use std::path::Path;
use std::sync::Arc;

use esker::{Options, Seq};
use esker_sim::memory::Memory;

use super::{Deliveries, Outcome, Queue};
use crate::forms::message::Notification;
use crate::{Broker, Config, PubSub, Subscription};

fn notification(seq: Seq) -> Notification {
    Notification {
        seq,
        topic: "a".parse().unwrap(),
        time: 0,
        expires: None,
        place: crate::Place::Anywhere,
        tag: Vec::new(),
        body: Vec::new(),
    }
}

#[test]
fn dropped_consumers_leave_no_queues() {
    let options = PubSub::register(Options::new().fs(Arc::new(Memory::new())));
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
    let mut first = deliveries.begin(10).unwrap();
    let found = |seq| {
        let mut matching = deliveries.begin(seq).unwrap();
        matching.set_matches([1].into_iter(), || notification(seq));
    };
    found(11);
    found(12);
    deliveries.retract(11);
    first.set_matches([1].into_iter(), || notification(10));
    drop(first);
    let waiting = &queue.state.lock().waiting;
    let waiting: Vec<Seq> = waiting.iter().map(|waiting| waiting.seq).collect();
    assert_eq!(waiting, [10, 12]);
}

/// The next publication gets the number of a failed write, whose guard may be dropped later.
#[test]
fn a_failed_write_holds_up_no_publication() {
    let deliveries = Deliveries::default();
    let queue = Arc::<Queue>::default();
    deliveries.add(1, &queue);
    let first = deliveries.begin(10).unwrap();
    let failed = deliveries.begin(11).unwrap();
    let mut second = deliveries.begin(11).unwrap();
    second.set_matches([1].into_iter(), || notification(11));
    drop(second);
    drop(failed);
    drop(first);
    // The consumer of an unknown publication reads the lists.
    assert!(queue.state.lock().is_behind);
    assert!(deliveries.order.lock().is_empty());
}

/// A withdrawal concerns the publication, and not the failed write before it.
#[test]
fn a_publication_behind_a_failed_write_can_be_withdrawn() {
    let deliveries = Deliveries::default();
    let queue = Arc::<Queue>::default();
    deliveries.add(1, &queue);
    let mut first = deliveries.begin(10).unwrap();
    let mut failed = deliveries.begin(11).unwrap();
    let mut second = deliveries.begin(11).unwrap();
    second.set_matches([1].into_iter(), || notification(11));
    deliveries.retract(11);
    failed.outcome = Outcome::NoConsumer;
    drop(failed);
    drop(second);
    first.set_matches([1].into_iter(), || notification(10));
    drop(first);
    let waiting = &queue.state.lock().waiting;
    let waiting: Vec<Seq> = waiting.iter().map(|waiting| waiting.seq).collect();
    assert_eq!(waiting, [10]);
}
