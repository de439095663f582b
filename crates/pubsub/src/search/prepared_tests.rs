//! Stored subscriptions that are damaged.

use std::path::Path;
use std::sync::Arc;

use esker::{ErrorKind, Options};
use esker_sim::memory::Memory;

use crate::{Broker, Config, PubSub, Subscription};

/// No list would have it, and no publication would meet it.
#[test]
fn a_subscription_that_is_filed_under_nothing_is_damage() {
    let options = PubSub::register(Options::new().fs(Arc::new(Memory::new())).background(false));
    let db = PubSub::create_or_open(Path::new("/filed"), options).unwrap();
    let broker = Broker::create_or_open(&db, Config::new()).unwrap();
    let inner = &*broker.inner;
    let filed = Subscription::to("a".parse().unwrap()).matching("n = 1".parse().unwrap());
    let mut prepared = inner.prepare(&filed).unwrap();
    assert!(prepared.is_filed);
    assert!(!inner.lists(&prepared).unwrap().keys.is_empty());
    for condition in [None, Some("not n = 1".to_owned())] {
        prepared.condition = condition;
        let error = inner.lists(&prepared).map(|lists| lists.keys.len());
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Damaged);
    }
}
