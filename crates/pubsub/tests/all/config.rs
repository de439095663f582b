//! The configuration of a broker: what is refused, and what a store with one that cannot be read
//! says.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::extension::{Extension, TreeOptions};
use esker::{Database, ErrorKind, Options};
use esker_pubsub::{Broker, Config, PubSub};
use esker_sim::memory::Memory;

fn options(memory: &Memory) -> Options {
    Options::new()
        .fs(Arc::new(memory.clone()))
        .memory_budget(1 << 20)
        .background(false)
}

#[test]
fn users_are_remembered_for_whole_milliseconds() {
    let folder = Path::new("/store");
    let db = PubSub::create_or_open(folder, options(&Memory::new())).unwrap();
    for refused in [
        Duration::from_nanos(1),
        Duration::from_micros(1500),
        Duration::from_millis(u64::MAX),
        Duration::MAX,
    ] {
        let made = Broker::create_or_open(&db, Config::new().remember(Some(refused)));
        let error = made
            .err()
            .unwrap_or_else(|| panic!("{refused:?} is stored"));
        assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
    }
    let config = Config::new().remember(Some(Duration::from_millis(u64::MAX - 1)));
    let broker = Broker::create_or_open(&db, config.clone()).unwrap();
    assert_eq!(*broker.config(), config);
}

/// Publish/subscribe of a version that stores anything.
struct Other;

impl Extension for Other {
    fn name(&self) -> &'static str {
        "pubsub"
    }

    fn tree_options(&self, _: &str, _: &[u8]) -> esker::Result<TreeOptions> {
        Ok(TreeOptions::default())
    }
}

#[test]
fn a_store_with_a_broker_that_cannot_be_read_says_why() {
    let folder = Path::new("/store");
    for (tree, config, expected) in [
        ("directory", &[2, 1, 1, 12][..], ErrorKind::Unsupported),
        ("directory", &[1, 9][..], ErrorKind::Damaged),
        ("directory", &[][..], ErrorKind::Damaged),
        ("unknown", &[][..], ErrorKind::Unsupported),
    ] {
        let memory = Memory::new();
        let other = options(&memory).extension(Arc::new(Other));
        let db = Database::create_or_open(folder, other).unwrap();
        let store = db.extension("pubsub").unwrap();
        store.create_trees(&[(tree, config)]).unwrap();
        db.close().unwrap();
        let error = PubSub::create_or_open(folder, options(&memory))
            .err()
            .unwrap();
        assert_eq!(error.kind(), expected, "{tree} {config:?}: {error}");
    }
}
