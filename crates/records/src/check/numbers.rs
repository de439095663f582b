//! The sequence numbers in a dataset's definition and its set, against those that were given out: a number that is ahead of
//! them would be given out again, to a write that is taken for an older one then.

use esker_lsm::{Seq, Snapshot};

use crate::catalog::Layout;

/// What is wrong, in words.
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
        let what = format!("the beginning of the index of {}", attribute.path);
        numbers.push((what, attribute.since));
    }
    if let Some(building) = &layout.building {
        let what = format!("the change of the index of {}", building.attribute.path);
        numbers.push((what, building.since));
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
        .map(|(what, number)| {
            format!("{what} has the number {number}, but the store's last write is {last}")
        })
        .collect()
}
