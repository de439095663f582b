//! The check of the sequence numbers in a dataset's definition and obsolete set. A number above the
//! store's last write would be reused later, by a write that would look older than it is.

use esker_lsm::{Seq, Snapshot};

use crate::catalog::Layout;

/// The errors found, as texts.
pub(super) fn check(layout: &Layout, snapshot: &Snapshot) -> Vec<String> {
    let settings = &layout.stored.settings;
    let mut numbers = vec![NamedNumber::new(
        "the last migration of the strategy",
        settings.since,
    )];
    if let Some(seq) = settings.keys_after {
        let name = "the last write without a key in the primary-key index";
        numbers.push(NamedNumber::new(name, seq));
    }
    for (_, attribute) in layout.written() {
        let name = format!("the beginning of the index of {}", attribute.path);
        numbers.push(NamedNumber::new(name, attribute.since));
    }
    if let Some(building) = &layout.building {
        let name = format!("the change of the index of {}", building.attribute.path);
        numbers.push(NamedNumber::new(name, building.since));
    }
    if let Some(tree) = layout.superseded
        && let Some(tree) = snapshot.version().trees.get(&tree)
    {
        let watermark = tree.repair_watermark();
        numbers.push(NamedNumber::new("the repair watermark", watermark));
        if let Some(greatest) = tree.bitmap().last() {
            numbers.push(NamedNumber::new("an obsolete write", greatest));
        }
    }
    let last = snapshot.seq();
    let ahead = numbers.into_iter().filter(|number| number.seq > last);
    ahead
        .map(|NamedNumber { name, seq }| {
            format!("{name} has the number {seq}, but the store's last write is {last}")
        })
        .collect()
}

/// A sequence number in the definition or the obsolete set, and its meaning.
struct NamedNumber {
    name: String,
    seq: Seq,
}

impl NamedNumber {
    fn new(name: impl Into<String>, seq: Seq) -> NamedNumber {
        let name = name.into();
        NamedNumber { name, seq }
    }
}
