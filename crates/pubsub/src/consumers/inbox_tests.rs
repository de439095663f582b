//! Consumers that read the lists while publications are withdrawn.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use esker::{Options, Seq};
use esker_sim::memory::Memory;

use crate::broker::Inner;
use crate::{Broker, Config, PubSub, Publication, Subscription};

/// A page is read once, however many publications are withdrawn during the read, and has none of
/// them.
#[test]
fn withdrawals_hold_up_no_consumer() {
    // The publications to withdraw when the clock is read, which each page does.
    let during = Arc::new(Mutex::new((Weak::<Inner>::new(), Vec::<Seq>::new())));
    let looks = Arc::new(AtomicU64::new(0));
    let (withdrawn, looked) = (during.clone(), looks.clone());
    let clock = move || {
        let (inner, seqs) = &*withdrawn.lock().unwrap();
        let looks = looked.fetch_add(1, Ordering::SeqCst);
        // Bounded, in case the page is read until nothing is withdrawn.
        if let Some(inner) = inner.upgrade().filter(|_| looks < 1_000) {
            for seq in seqs {
                inner.deliveries.retract(*seq);
            }
        }
        1_000
    };
    let options = PubSub::register(
        Options::new()
            .fs(Arc::new(Memory::new()))
            .background(false)
            .clock(Arc::new(clock)),
    );
    let db = PubSub::create_or_open(Path::new("/starved"), options).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let subscription = Subscription::to("a".parse().unwrap());
    let id = broker.subscribe(&subscription).unwrap().id;
    let mut inbox = broker.inbox(id, None).unwrap();
    let made: Vec<Seq> = (0..3_000)
        .map(|_| {
            let new = Publication::new("a".parse().unwrap(), "{}");
            broker.publish(&new).unwrap().seq
        })
        .collect();
    // A whole page, some publications of later pages, and a number that does not exist.
    let mut gone: Vec<Seq> = made[..1_024].to_vec();
    gone.extend([made[1_500], made[2_999], Seq::MAX]);
    looks.store(0, Ordering::SeqCst);
    *during.lock().unwrap() = (Arc::downgrade(&broker.inner), gone.clone());
    let first = inbox.next().unwrap().map(|next| next.seq);
    assert_eq!(first, Some(made[1_024]));
    assert!(looks.load(Ordering::SeqCst) < 100, "the page is read again");
    looks.store(0, Ordering::SeqCst);
    let rest: Vec<Seq> = std::iter::from_fn(|| inbox.next().unwrap())
        .map(|next| next.seq)
        .collect();
    let mut expected = made[1_025..].to_vec();
    expected.retain(|seq| !gone.contains(seq));
    assert!(rest == expected, "{} of {}", rest.len(), expected.len());
}
