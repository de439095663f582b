//! The key filter that one query gathers and the next ones use.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use esker_lsm::table::KeyFilter;
use esker_lsm::{Seq, TreeId};

/// What tells a component of a tree from others, and from itself before more was written to it: sequence
/// numbers are given out once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) min: Seq,
    pub(crate) max: Seq,
    pub(crate) entries: u64,
}

/// The filter of the last query that gathered one, for the next: of which components of which tree.
#[derive(Default)]
pub(crate) struct KeptFilter(ArcSwapOption<Kept>);

/// Such a filter.
pub(crate) struct Kept {
    pub(crate) tree: TreeId,
    pub(crate) names: Vec<Name>,
    pub(crate) filter: Arc<KeyFilter>,
}

impl KeptFilter {
    /// A filter of at least so many of the newest components, and of how many.
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

    pub(crate) fn put(&self, kept: Kept) {
        self.0.store(Some(Arc::new(kept)));
    }
}
