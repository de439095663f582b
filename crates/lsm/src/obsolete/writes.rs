//! The obsolete set as a flush or merge asks it.

use std::sync::Arc;

use super::SeqSet;
use crate::entry::Seq;

/// Which writes to a tree are obsolete, as a flush or merge knows it: the bitmap tree of the tree's
/// [`crate::SupersededBy`]. Cheap to clone.
#[derive(Clone, Default)]
pub struct ObsoleteWrites(pub(crate) Option<Source>);

/// Where it looks.
#[derive(Clone)]
pub(crate) enum Source {
    /// As it was when the merge began.
    Pinned(Arc<SeqSet>),
    /// As it is.
    Live(Arc<dyn Fn() -> Arc<SeqSet> + Send + Sync>),
}

impl ObsoleteWrites {
    /// True when the write `seq` is known to be obsolete.
    #[inline]
    pub fn contains(&self, seq: Seq) -> bool {
        match &self.0 {
            None => false,
            Some(Source::Pinned(set)) => set.contains(seq),
            Some(Source::Live(set)) => set().contains(seq),
        }
    }

    /// True when nothing is known to be obsolete.
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            None => true,
            Some(Source::Pinned(set)) => set.is_empty(),
            Some(Source::Live(_)) => false,
        }
    }
}
