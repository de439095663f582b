//! The key filter that a query builds and later queries reuse.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use esker_lsm::table::KeyFilter;
use esker_lsm::{Seq, TreeId};

/// Identifies a component of a tree in its present state: sequence numbers are never reused, and
/// writes to a memtable change `max` and `entries`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
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
    pub(crate) names: Vec<Name>,
    pub(crate) filter: Arc<KeyFilter>,
}

impl KeptFilter {
    /// The kept filter and the number of the newest components that it covers, if these are at
    /// least `wanted`.
    pub(crate) fn get(
        &self,
        tree: TreeId,
        names: &[Name],
        wanted: usize,
    ) -> Option<(usize, Arc<KeyFilter>)> {
        let kept = self.0.load();
        let kept = kept.as_ref().filter(|kept| kept.tree == tree)?;
        let fits = kept.names.len() >= wanted && names.starts_with(&kept.names);
        fits.then(|| (kept.names.len(), kept.filter.clone()))
    }

    pub(crate) fn put(&self, kept: CachedFilter) {
        self.0.store(Some(Arc::new(kept)));
    }
}
