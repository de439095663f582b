//! The obsolete set as flushes and compactions probe it.

use std::sync::Arc;

use super::SeqSet;
use crate::entry::Seq;

/// The obsolete writes of a tree, as known to a flush or compaction: the bitmap tree of the tree's
/// [`crate::SupersededBy`]. Cheap to clone.
#[derive(Clone, Default)]
pub struct ObsoleteWrites(pub(crate) Option<Source>);

/// The source of the set.
#[derive(Clone)]
pub(crate) enum Source {
    /// As of the start of the compaction.
    Pinned(Arc<SeqSet>),
    /// The current one.
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
