//! The key filter that a query builds and later queries of the dataset reuse: the keys of the
//! newest components of the primary-key index (`maintenance/validity.rs`). Only the last one is
//! kept.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use esker_lsm::table::KeyFilter;
use esker_lsm::{Seq, TreeId};

/// Identifies a component of a tree in its present state: sequence numbers are never reused, and
/// writes to a memtable change `max` and `entries`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ComponentState {
    pub(crate) min: Seq,
    pub(crate) max: Seq,
    pub(crate) entries: u64,
}

/// The last key filter that a query of the dataset built.
#[derive(Default)]
pub(crate) struct KeptFilter(ArcSwapOption<CachedFilter>);

/// A key filter, with the tree and components that it covers.
pub(crate) struct CachedFilter {
    pub(crate) tree: TreeId,
    /// The newest components of the tree, newest first: the filter has all their keys.
    pub(crate) components: Vec<ComponentState>,
    pub(crate) filter: Arc<KeyFilter>,
}

impl KeptFilter {
    /// The kept filter, with the number of components that it covers, if it fits a tree with these
    /// components, newest first, and covers at least the `wanted` newest of them.
    pub(crate) fn get(
        &self,
        tree: TreeId,
        components: &[ComponentState],
        wanted: usize,
    ) -> Option<(usize, Arc<KeyFilter>)> {
        let kept = self.0.load();
        let kept = kept.as_ref().filter(|kept| kept.tree == tree)?;
        let covered = &kept.components;
        let fits = covered.len() >= wanted && components.starts_with(covered);
        fits.then(|| (covered.len(), kept.filter.clone()))
    }

    /// Keeps a filter in place of the one before.
    pub(crate) fn put(&self, kept: CachedFilter) {
        self.0.store(Some(Arc::new(kept)));
    }
}
