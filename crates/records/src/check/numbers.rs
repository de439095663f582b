//! The check of the sequence numbers in a dataset's definition and obsolete set. A number above the
//! store's last write would be reused later, by a write that then passes for an older one.

use esker_lsm::{Seq, Snapshot};

use crate::catalog::Layout;

/// The errors found, as texts.
pub(super) fn check(layout: &Layout, snapshot: &Snapshot) -> Vec<String> {
    let settings = &layout.stored.settings;
    let mut numbers: Vec<(String, Seq)> = vec![
        ("the last change of strategy".to_string(), settings.since),
        (
            "the last write without a key in the primary-key index".to_string(),
            settings.keys_after.unwrap_or(0),
        ),
    ];
    for (_, attribute) in layout.written() {
        let name = format!("the beginning of the index of {}", attribute.path);
        numbers.push((name, attribute.since));
    }
    if let Some(building) = &layout.building {
        let name = format!("the change of the index of {}", building.attribute.path);
        numbers.push((name, building.since));
    }
    if let Some(tree) = layout.superseded
        && let Some(tree) = snapshot.version().trees.get(&tree)
    {
        numbers.push(("the repair watermark".to_string(), tree.repair_watermark()));
        let greatest = tree.bitmap().last().unwrap_or(0);
        numbers.push(("an obsolete write".to_string(), greatest));
    }
    let last = snapshot.seq();
    let ahead = numbers.into_iter().filter(|(_, number)| *number > last);
    ahead
        .map(|(name, number)| {
            format!("{name} has the number {number}, but the store's last write is {last}")
        })
        .collect()
}
