//! What has expired leaves the tables with the next compaction.

use std::sync::atomic::Ordering;

use esker::extension::{Cursor, ExtensionStore, TreeId};
use esker_coding::Reader;
use esker_pubsub::{Publication, Subscription, Topic};

use crate::run::Run;

/// Longer than most of what a run writes lives.
const LATER: u64 = 1_000;

impl Run {
    /// Compacts everything at a later time. Checks that no table has an element which can be
    /// dropped by then.
    pub(crate) fn expire(&mut self) {
        self.clock_is_kept();
        self.clock.fetch_add(LATER, Ordering::SeqCst);
        let now = self.clock.load(Ordering::SeqCst);
        let store = self.db().extension("pubsub").unwrap();
        // Each tree gets another run: there is something to compact.
        let topic: Topic = "later".parse().unwrap();
        self.broker()
            .publish(&Publication::new(topic.clone(), "{}"))
            .unwrap();
        self.broker()
            .subscribe(&Subscription::to(topic.into()))
            .unwrap();
        self.db().compact(None).unwrap();
        for (name, tree) in store.trees() {
            if name == "directory" {
                continue;
            }
            for drop_time in drop_times(&store, tree) {
                assert!(
                    drop_time > now,
                    "{name}: dropped at {drop_time}, it is {now}"
                );
            }
        }
    }
}

/// The drop times of all elements of a tree, as `forms/element.rs` stores them: behind a length, a
/// kind and a sequence number.
fn drop_times(store: &ExtensionStore, tree: TreeId) -> Vec<u64> {
    let snapshot = store.snapshot();
    let mut found = Vec::new();
    let mut cursor = snapshot.entries_in(&snapshot.components(tree), 0);
    cursor.seek_first().unwrap();
    while cursor.valid() {
        let mut elements = Reader::new(cursor.value());
        while let Some(element) = elements.bytes() {
            found.push(u64::from_le_bytes(element[9..17].try_into().unwrap()));
        }
        assert!(elements.is_empty(), "an element is malformed");
        cursor.next().unwrap();
    }
    found
}
