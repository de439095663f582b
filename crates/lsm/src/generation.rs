//! Generations: the memtables of all trees that fill, and are flushed, together. A log segment
//! belongs to one generation and is removed when the generation is on disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};

use crate::batch::{Operation, TreeId};
use crate::entry::Seq;
use crate::memtable::Memtable;
use crate::stripe::Striped;
use crate::version::{ComponentId, Version};

/// One memtable per tree.
pub(crate) struct Generation {
    /// Indexed by tree number; `None` for numbers that are not (or no longer) trees.
    memtables: Vec<Option<Arc<Memtable>>>,
    /// The log segment that holds the generation's writes; 0 until there is one.
    log: AtomicU64,
    /// Rough bytes of what was written; compared with the exact number before anything is done.
    written: AtomicUsize,
    /// The last sequence number before the generation's first.
    after: Seq,
    last: AtomicU64,
}

impl Generation {
    /// An empty generation for the trees of `version`, whose writes come after sequence `after`.
    pub(crate) fn new(version: &Version, after: Seq) -> Arc<Generation> {
        let mut memtables = Vec::new();
        for tree in version.trees.values() {
            let slot = tree.id as usize;
            if memtables.len() <= slot {
                memtables.resize_with(slot + 1, || None);
            }
            if let Some(place) = memtables.get_mut(slot) {
                *place = Some(Arc::new(Memtable::new(tree.options.extractor.clone())));
            }
        }
        Arc::new(Generation {
            memtables,
            log: AtomicU64::new(0),
            written: AtomicUsize::new(0),
            after,
            last: AtomicU64::new(after),
        })
    }

    pub(crate) fn memtable(&self, tree: TreeId) -> Option<&Arc<Memtable>> {
        self.memtables.get(tree as usize)?.as_ref()
    }

    /// Applies one operation; false when its tree is unknown, or it was applied before.
    pub(crate) fn insert(&self, operation: &Operation<'_>) -> bool {
        match self.memtable(operation.tree) {
            Some(memtable) => memtable.insert(
                operation.key,
                operation.seq,
                operation.kind,
                operation.value,
            ),
            None => false,
        }
    }

    /// Notes that a batch of `bytes` that ends at `last` was applied.
    pub(crate) fn applied(&self, bytes: usize, last: Seq) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
        self.last.fetch_max(last, Ordering::Relaxed);
    }

    pub(crate) fn log(&self) -> Option<u64> {
        Some(self.log.load(Ordering::Acquire)).filter(|log| *log > 0)
    }

    pub(crate) fn set_log(&self, number: u64) {
        self.log.store(number, Ordering::Release);
    }

    /// A cheap lower bound of what the memtables hold.
    pub(crate) fn written(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }

    /// The memory that the memtables hold, exactly.
    pub(crate) fn memory(&self) -> usize {
        self.memtables
            .iter()
            .flatten()
            .map(|memtable| memtable.memory())
            .sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.memtables
            .iter()
            .flatten()
            .all(|memtable| memtable.is_empty())
    }

    pub(crate) fn component(&self) -> ComponentId {
        ComponentId {
            min: self.after + 1,
            max: self.last.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn last(&self) -> Seq {
        self.last.load(Ordering::Relaxed)
    }

    /// Tree numbers and memtables that hold something.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (TreeId, &Arc<Memtable>)> {
        let numbered = self.memtables.iter().enumerate();
        numbered.filter_map(|(id, memtable)| {
            memtable
                .as_ref()
                .filter(|memtable| !memtable.is_empty())
                .map(|memtable| (id as TreeId, memtable))
        })
    }
}

/// What readers pin: memtables and tables that belong together. Replaced whole, never changed.
///
/// Aligned, so that its reference count, which readers write to, lies on cache lines of its own.
#[derive(Clone)]
#[repr(align(128))]
pub(crate) struct View {
    pub(crate) active: Arc<Generation>,
    /// Full generations that are not on disk yet, newest first.
    pub(crate) full: Vec<Arc<Generation>>,
    pub(crate) version: Arc<Version>,
}

impl View {
    /// The memtables of a tree, newest first.
    pub(crate) fn memtables(&self, tree: TreeId) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active)
            .chain(&self.full)
            .filter_map(move |generation| generation.memtable(tree))
    }
}

/// The view of the moment. Each stripe has a copy of it with a reference count of its own, so that readers of
/// different stripes write to nothing in common.
///
/// No stripe keeps an old view: all of them are replaced before [`Views::store`] returns, whether their threads
/// read or not. So what an old view holds goes with the last snapshot of it. While `store` is under way some stripes
/// have the old view and others the new one, as readers have who come before and after it.
pub(crate) struct Views(Striped<ArcSwap<View>>);

impl Views {
    pub(crate) fn new(view: View) -> Views {
        Views(Striped::new(|| ArcSwap::from_pointee(view.clone())))
    }

    /// The calling thread's copy, for a moment: nothing is counted.
    pub(crate) fn load(&self) -> Guard<Arc<View>> {
        self.0.mine().load()
    }

    /// The calling thread's copy.
    pub(crate) fn load_full(&self) -> Arc<View> {
        self.0.mine().load_full()
    }

    /// Replaces the view. One thread at a time.
    pub(crate) fn store(&self, view: &View) {
        for stripe in self.0.iter() {
            stripe.store(Arc::new(view.clone()));
        }
    }
}
