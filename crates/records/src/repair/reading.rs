//! The components that the methods of repair read.

use esker_lsm::{Component, TreeId};

use super::work::RepairRun;

/// Read-ahead of scans.
pub(super) const READAHEAD: usize = 256 << 10;

/// A batched lookup of an existing key takes as long as scanning this many entries. Measured with a
/// million keys of twelve bytes: looking up a tenth of them was faster than a scan, looking up a
/// third slower.
pub(super) const ENTRIES_PER_LOOKUP: u64 = 8;

/// The runs of a tree, newest first, without memtables.
pub(super) fn runs(work: &RepairRun<'_>, tree: TreeId) -> Vec<Component> {
    let mut components = work.snapshot.components(tree);
    components.retain(|component| matches!(component, Component::Run(_)));
    components
}

/// The number of entries in components.
pub(super) fn entries(components: &[Component]) -> u64 {
    components.iter().map(Component::entries).sum()
}
