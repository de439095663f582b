//! A publisher that is delayed between writing and matching.

use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::Options;
use esker_sim::memory::Memory;

use super::PreparedPublication;
use crate::matching::PublicationParts;
use crate::search::subscribers::Matcher;
use crate::{Broker, Config, PubSub, Publication, Subscription};

/// A publication matches the subscriptions that were alive when it was written, however late they
/// are read.
#[test]
fn a_subscription_that_ends_after_the_write_is_matched() {
    let clock = Arc::new(AtomicU64::new(1_000));
    let time = clock.clone();
    let options = PubSub::register(
        Options::new()
            .fs(Arc::new(Memory::new()))
            .background(false)
            .clock(Arc::new(move || time.load(Ordering::SeqCst))),
    );
    let db = PubSub::create_or_open(Path::new("/held"), options).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let inner = &*broker.inner;
    let brief = Subscription::to("a/b".parse().unwrap()).until(1_010);
    let id = broker.subscribe(&brief).unwrap().id;
    let publication = Publication::new("a/b".parse().unwrap(), "{}");
    let prepared = PreparedPublication::new(inner, &publication).unwrap();
    let stored = inner
        .store_publications(slice::from_ref(&prepared))
        .unwrap();
    assert_eq!(stored.written[0].time, 1_000);
    // The write of another subscription forgets shapes that have ended.
    clock.store(5_000, Ordering::SeqCst);
    let other = Subscription::to("x/y/z".parse().unwrap());
    broker.subscribe(&other).unwrap();
    let parts = PublicationParts {
        time: 1_000,
        place: &prepared.extent,
        body: &publication.body,
    };
    let topic = &publication.topic;
    let matcher = Matcher::new(
        inner,
        &stored.before,
        topic,
        &prepared.cells,
        &prepared.lists,
        parts,
    );
    let matches = matcher.subscribers().unwrap();
    let matches: Vec<_> = matches.iter().map(|found| found.subscription).collect();
    assert_eq!(matches, [id]);
}
