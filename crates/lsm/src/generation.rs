//! Generations: the memtables of all trees that fill, and are flushed, together. A log segment
//! belongs to one generation and is removed when the generation is on disk.
//!
//! A memtable is created with the first write to its tree. A change of trees ends the generation,
//! since a memtable keeps the options that its tree had.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};

use crate::batch::{Operation, TreeId};
use crate::budget::{Account, Budget, Held};
use crate::entry::{Kind, Seq};
use crate::error::{Error, Result};
use crate::memtable::Memtable;
use crate::stripe::Striped;
use crate::version::{ComponentId, MAX_TREE, Version};

/// The slot of a memtable.
type Slot = OnceLock<Arc<Memtable>>;

/// Memtables by tree number, each created with the first write to its tree: a generation costs what
/// is written to it, not the number of trees. Piece `n` has the slots of the `2^n` numbers from
/// `2^n - 1` on.
#[derive(Default)]
struct Memtables {
    pieces: [OnceLock<Box<[Slot]>>; PIECES],
}

/// The number of pieces for the largest tree number.
const PIECES: usize = MAX_TREE.ilog2() as usize + 1;

impl Memtables {
    /// The piece of a tree and its slot there.
    fn place(tree: TreeId) -> (usize, usize) {
        let n = tree as usize + 1;
        let piece = n.ilog2() as usize;
        (piece, n - (1 << piece))
    }

    fn get(&self, tree: TreeId) -> Option<&Arc<Memtable>> {
        let (piece, at) = Memtables::place(tree);
        self.pieces.get(piece)?.get()?.get(at)?.get()
    }

    fn get_or_make(&self, tree: TreeId, make: impl FnOnce() -> Memtable) -> Option<&Arc<Memtable>> {
        let (piece, at) = Memtables::place(tree);
        let places = self.pieces.get(piece)?;
        let places = places.get_or_init(|| (0..1 << piece).map(|_| OnceLock::new()).collect());
        Some(places.get(at)?.get_or_init(|| Arc::new(make())))
    }

    /// All memtables, by tree number.
    fn iter(&self) -> impl Iterator<Item = (TreeId, &Arc<Memtable>)> {
        self.pieces.iter().enumerate().flat_map(|(piece, places)| {
            let places = places.get().map_or(&[][..], |places| places);
            let numbered = places.iter().zip((1 << piece) - 1..);
            numbered.filter_map(|(place, tree)| Some((tree, place.get()?)))
        })
    }
}

/// One memtable per tree that was written to.
pub(crate) struct Generation {
    memtables: Memtables,
    /// The memory of the memtables.
    memory: Arc<AtomicUsize>,
    /// Whether they hold an entry that expires.
    timed: AtomicBool,
    /// The log segment that holds the generation's writes; 0 until there is one.
    log: AtomicU64,
    /// Approximate bytes written; the exact number is compared before a flush.
    written: AtomicUsize,
    /// The last sequence number before the generation's first.
    after: Seq,
    last: AtomicU64,
    /// The generation's memory in the store's budget.
    held: OnceLock<Held>,
}

impl Generation {
    /// An empty generation, whose writes come after sequence `after`.
    pub(crate) fn new(after: Seq) -> Arc<Generation> {
        Arc::new(Generation {
            memtables: Memtables::default(),
            memory: Arc::default(),
            timed: AtomicBool::new(false),
            log: AtomicU64::new(0),
            written: AtomicUsize::new(0),
            after,
            last: AtomicU64::new(after),
            held: OnceLock::new(),
        })
    }

    /// Counts the generation's memory in a budget, initially as much as it may become.
    pub(crate) fn count_in(&self, budget: &Arc<Budget>, bytes: usize) {
        let hold = || budget.hold(Account::Memtables, bytes.max(self.memory()));
        self.held.get_or_init(hold);
    }

    /// Marks the generation as full: its memory is final.
    pub(crate) fn mark_full(&self) {
        self.count_as(Account::Memtables);
    }

    /// Marks the generation as flushed: from now on only snapshots hold it.
    pub(crate) fn mark_flushed(&self) {
        self.count_as(Account::PinnedMemtables);
    }

    fn count_as(&self, account: Account) {
        if let Some(held) = self.held.get() {
            held.set(account, self.memory());
        }
    }

    /// The memtable of a tree; none before the first write to it.
    pub(crate) fn memtable(&self, tree: TreeId) -> Option<&Arc<Memtable>> {
        self.memtables.get(tree)
    }

    /// Applies one operation; false when `version` has no such tree, or it was applied before.
    /// While a generation is active the options of the trees written to must not change.
    pub(crate) fn insert(&self, version: &Version, operation: &Operation<'_>) -> bool {
        let memtable = match self.memtable(operation.tree) {
            Some(memtable) => memtable,
            None => {
                let Some(tree) = version.trees.get(&operation.tree) else {
                    return false;
                };
                if tree.options.log_only {
                    return true;
                }
                let make = || {
                    let options = &tree.options;
                    let filtered = options.filter_bits_per_key > 0;
                    Memtable::counted(options.extractor.clone(), filtered, self.memory.clone())
                };
                match self.memtables.get_or_make(operation.tree, make) {
                    Some(memtable) => memtable,
                    None => return false,
                }
            }
        };
        if operation.kind == Kind::Timed {
            self.timed.store(true, Ordering::Release);
        }
        memtable.insert(
            operation.key,
            operation.seq,
            operation.kind,
            operation.value,
        )
    }

    /// True when it holds an entry that expires.
    pub(crate) fn is_timed(&self) -> bool {
        self.timed.load(Ordering::Acquire)
    }

    /// Records that a batch of `bytes` that ends at `last` was applied. One thread at a time, so no
    /// read-modify-write is needed.
    pub(crate) fn applied(&self, bytes: usize, last: Seq) {
        let written = self.written.load(Ordering::Relaxed) + bytes;
        self.written.store(written, Ordering::Relaxed);
        let last = last.max(self.last.load(Ordering::Relaxed));
        self.last.store(last, Ordering::Relaxed);
    }

    pub(crate) fn log(&self) -> Option<u64> {
        Some(self.log.load(Ordering::Acquire)).filter(|log| *log > 0)
    }

    pub(crate) fn set_log(&self, number: u64) {
        self.log.store(number, Ordering::Release);
    }

    /// A cheap lower bound of the memory of the memtables.
    pub(crate) fn written(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }

    /// The memory of the memtables, exactly.
    pub(crate) fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filled().next().is_none()
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

    /// Tree numbers and memtables that are not empty.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (TreeId, &Arc<Memtable>)> {
        let memtables = self.memtables.iter();
        memtables.filter(|(_, memtable)| !memtable.is_empty())
    }
}

/// Memtables and tables that belong together, as readers pin them. Replaced as a whole, never
/// changed.
///
/// Aligned, so that its reference count, which readers write to, lies on cache lines of its own.
#[derive(Clone)]
#[repr(align(128))]
pub(crate) struct View {
    pub(crate) active: Arc<Generation>,
    /// Full generations that are not on disk yet, newest first.
    pub(crate) full: Vec<Arc<Generation>>,
    pub(crate) version: Arc<Version>,
    /// Set when the group is closed: reads that begin later are refused.
    pub(crate) closed: Arc<AtomicBool>,
}

impl View {
    /// The same memtables beside another version.
    pub(crate) fn with(&self, version: Arc<Version>) -> View {
        View {
            active: self.active.clone(),
            full: self.full.clone(),
            version,
            closed: self.closed.clone(),
        }
    }

    /// Refuses reads after the group was closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    /// True when it holds an entry that expires.
    pub(crate) fn is_timed(&self) -> bool {
        let mut generations = std::iter::once(&self.active).chain(&self.full);
        self.version.is_timed() || generations.any(|generation| generation.is_timed())
    }

    /// The memtables of a tree, newest first.
    pub(crate) fn memtables(&self, tree: TreeId) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active)
            .chain(&self.full)
            .filter_map(move |generation| generation.memtable(tree))
    }
}

/// The current view. Each stripe has a copy of it with a reference count of its own, so that
/// readers of different stripes write to nothing in common.
///
/// No stripe keeps an old view: all are replaced before [`Views::store`] returns, whether their
/// threads read or not. So what an old view holds is released with its last snapshot. During
/// `store` some stripes have the old view and others the new one, as for readers before and after
/// it.
pub(crate) struct Views(Striped<ArcSwap<View>>);

impl Views {
    pub(crate) fn new(view: View) -> Views {
        Views(Striped::new(|| ArcSwap::from_pointee(view.clone())))
    }

    /// The calling thread's copy, borrowed: no reference is counted.
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
