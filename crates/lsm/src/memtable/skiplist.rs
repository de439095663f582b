//! Skip lists over one arena: one writer at a time, any number of readers that never wait.
//!
//! Invariants, on which the `unsafe` blocks here and in [`super::node`] rest:
//!
//! 1. Nodes are fully written before they are published, never change afterwards except for their
//!    links, are never removed, and are freed with the arena, that is, with the [`SkipLists`].
//! 2. A link on level `l` is null or leads to a node of the same list that is higher than `l`.
//! 3. A node is published bottom-up with release stores, so a reader that finds it on a level (with
//!    an acquire load) finds it on all levels below.
//! 4. Only the holder of the writer's lock stores links.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::arena::Arena;
use super::node::{self, Link, Node, NodeRef, Target, as_pointer};
use crate::cursor::Cursor;
use crate::entry::{Kind, MAX_SEQ, Seq};
use crate::error::Result;
use esker_coding::{Own, Slice};

/// With a quarter of the nodes of each level on the next: enough for 16 million entries.
const MAX_HEIGHT: usize = 12;

/// So many nodes of a level tell within an eighth or so how many there are on the lowest.
const ENOUGH: u64 = 64;

/// The start of a list. The head precedes every node, and has the maximum height; a predecessor of
/// `None` means the head.
struct Head([Link; MAX_HEIGHT]);

impl Head {
    fn new() -> Head {
        Head([const { Link::new(ptr::null_mut()) }; MAX_HEIGHT])
    }

    /// # Safety
    /// `prev` is of this list and higher than `level`.
    #[inline]
    unsafe fn link<'a>(&'a self, prev: Option<NodeRef<'a>>, level: usize) -> &'a Link {
        match prev {
            None => &self.0[level],
            // SAFETY: guaranteed by the caller.
            Some(node) => unsafe { node.link(level) },
        }
    }

    /// # Safety
    /// `prev` is of this list and higher than `level`.
    #[inline]
    unsafe fn next<'a>(&'a self, prev: Option<NodeRef<'a>>, level: usize) -> Option<NodeRef<'a>> {
        // SAFETY: guaranteed by the caller; by invariant 2 the link leads to a node of this list,
        // and the borrow of the head keeps the lists alive.
        unsafe { NodeRef::new(self.link(prev, level).load(Ordering::Acquire)) }
    }

    /// The neighbours on `level` between which `is_before` turns false, starting at `prev` and
    /// given that it is false for `bound`, which was compared on a higher level.
    ///
    /// # Safety
    /// `prev` and `bound` are of this list, and `prev` is higher than `level`.
    #[inline(always)]
    unsafe fn split_level<'a>(
        &'a self,
        mut prev: Option<NodeRef<'a>>,
        bound: Option<NodeRef<'a>>,
        level: usize,
        is_before: impl Fn(NodeRef<'a>) -> bool,
    ) -> (Option<NodeRef<'a>>, Option<NodeRef<'a>>) {
        loop {
            // SAFETY: `prev` was given by the caller, or reached on this level (invariant 2).
            match unsafe { self.next(prev, level) } {
                Some(next) if Some(next) != bound && is_before(next) => prev = Some(next),
                next => return (prev, next),
            }
        }
    }

    /// The neighbours between which `is_before` turns false. O(log n).
    #[inline(always)]
    fn split<'a>(
        &'a self,
        is_before: impl Fn(NodeRef<'a>) -> bool,
    ) -> (Option<NodeRef<'a>>, Option<NodeRef<'a>>) {
        let (mut prev, mut next) = (None, None);
        for level in (0..MAX_HEIGHT).rev() {
            // SAFETY: `prev` was reached on a higher level, so it is higher than this one.
            (prev, next) = unsafe { self.split_level(prev, next, level, &is_before) };
        }
        (prev, next)
    }

    #[inline]
    fn seek(&self, key: &[u8], seq: Seq) -> Option<NodeRef<'_>> {
        let target = Target::new(key, seq);
        self.split(|node| node.is_before(&target)).1
    }

    /// About how many nodes are neither before `lo` nor behind what is before `hi`; of few, how
    /// many. Counts those of the highest level that has enough of them, each of which stands for as
    /// many as its level leaves out: O(log n).
    fn between(&self, lo: &Target<'_>, hi: Option<&Target<'_>>) -> u64 {
        let (mut prev, mut next) = (None, None);
        for level in (0..MAX_HEIGHT).rev() {
            // SAFETY: `prev` was reached on a higher level, so it is higher than this one.
            (prev, next) =
                unsafe { self.split_level(prev, next, level, |node| node.is_before(lo)) };
            let (mut counted, mut at) = (0, next);
            while let Some(node) = at.filter(|node| hi.is_none_or(|hi| node.is_before(hi))) {
                counted += 1;
                // SAFETY: `node` was reached on this level, so it is higher than it.
                at = unsafe { self.next(Some(node), level) };
            }
            if counted >= ENOUGH || level == 0 {
                return counted << (2 * level);
            }
        }
        0
    }

    fn first(&self) -> Option<NodeRef<'_>> {
        // SAFETY: the head is of this list and has the maximum height.
        unsafe { self.next(None, 0) }
    }
}

/// The neighbours of the last insert on each level: null stands for the head as a predecessor and
/// for the end as a successor. On every level `prev` and `next` are linked to each other, and the
/// gap of a level lies within the gap of the level above. An insert into the lowest gap, as for
/// each ascending key, needs no search.
struct Splice {
    prev: [*mut Node; MAX_HEIGHT],
    next: [*mut Node; MAX_HEIGHT],
}

impl Splice {
    fn new() -> Splice {
        Splice {
            prev: [ptr::null_mut(); MAX_HEIGHT],
            next: [ptr::null_mut(); MAX_HEIGHT],
        }
    }
}

/// State of the lock holder.
struct Writer {
    arena: Arena,
    random: u64,
    splices: Box<[Splice]>,
    /// Deferred nodes, oldest first, and how many of them were resumed.
    deferred: Vec<*mut Node>,
    resumed: usize,
}

// SAFETY: the splices and the deferred nodes point to nodes of the arena beside them, and nodes are
// not bound to a thread.
unsafe impl Send for Writer {}

impl Writer {
    /// 1 with a probability of 3/4, 2 with 3/16, and so on.
    fn random_height(&mut self) -> usize {
        // Marsaglia's xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (1 + self.random.leading_zeros() as usize / 2).min(MAX_HEIGHT)
    }
}

/// Skip lists in one arena, behind one writer's lock.
pub(super) struct SkipLists {
    heads: Box<[Head]>,
    memory: AtomicUsize,
    /// Memory counted beside the arena.
    beside: AtomicUsize,
    /// The total memory of all memtables that share it.
    total: Arc<AtomicUsize>,
    writer: Mutex<Writer>,
}

impl SkipLists {
    pub(super) fn new(lists: usize, total: Arc<AtomicUsize>) -> SkipLists {
        SkipLists {
            heads: (0..lists).map(|_| Head::new()).collect(),
            memory: AtomicUsize::new(0),
            beside: AtomicUsize::new(0),
            total,
            writer: Mutex::new(Writer {
                arena: Arena::new(),
                random: 0x9e37_79b9_7f4a_7c15,
                splices: (0..lists).map(|_| Splice::new()).collect(),
                deferred: Vec::new(),
                resumed: 0,
            }),
        }
    }

    /// Bytes allocated by the arena, and those counted beside it.
    pub(super) fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Counts memory outside of the arena. Called by the holder of the writer's lock.
    pub(super) fn count(&self, bytes: usize) {
        if bytes > 0 {
            self.beside.fetch_add(bytes, Ordering::Relaxed);
            self.memory.fetch_add(bytes, Ordering::Relaxed);
            self.total.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The first node of `list` at or after `(key, seq)`. O(log n).
    #[inline]
    pub(super) fn seek(&self, list: usize, key: &[u8], seq: Seq) -> Option<NodeRef<'_>> {
        self.heads.get(list)?.seek(key, seq)
    }

    /// Locks the lists for insertion, until the value is dropped.
    #[inline]
    pub(super) fn lock(&self) -> Inserter<'_> {
        Inserter {
            lists: self,
            writer: self.writer.lock(),
        }
    }
}

/// The holder of the writer's lock.
pub(super) struct Inserter<'a> {
    lists: &'a SkipLists,
    writer: MutexGuard<'a, Writer>,
}

impl<'a> Inserter<'a> {
    /// Inserts an entry, or returns false when the list has `(key, seq)` already. O(log n), and
    /// O(1) for a key that follows the last one of the list. With `defer`, [`Inserter::resume`]
    /// returns its node later.
    ///
    /// # Panics
    /// When there is no such list, or the key or the value is longer than [`node::MAX_LEN`].
    pub(super) fn insert(
        &mut self,
        list: usize,
        key: &[u8],
        seq: Seq,
        kind: Kind,
        value: &[u8],
        defer: bool,
    ) -> bool {
        let head = &self.lists.heads[list];
        let target = Target::new(key, seq);
        let height = self.writer.random_height();
        let Writer {
            arena,
            splices,
            deferred,
            ..
        } = &mut *self.writer;
        let splice = &mut splices[list];
        // SAFETY: the splice holds nodes of this list.
        unsafe { find(head, splice, &target) };
        // SAFETY: as before.
        if unsafe { NodeRef::new(splice.next[0]) }.is_some_and(|next| next.is(&target)) {
            return false;
        }

        let node = node::create(arena, &target, kind, value, &splice.next[..height]);
        if defer {
            deferred.push(node);
        }
        let beside = self.lists.beside.load(Ordering::Relaxed);
        let memory = beside + arena.memory() + deferred.capacity() * size_of::<*mut Node>();
        let before = self.lists.memory.load(Ordering::Relaxed);
        if memory != before {
            self.lists.memory.store(memory, Ordering::Relaxed);
            let more = memory.wrapping_sub(before);
            self.lists.total.fetch_add(more, Ordering::Relaxed);
        }
        for (level, prev) in splice.prev.iter_mut().enumerate().take(height) {
            // SAFETY: the splice's predecessor on a level is of this list and higher than it.
            let link = unsafe { head.link(NodeRef::new(*prev), level) };
            link.store(node, Ordering::Release);
            *prev = node;
        }
        true
    }

    /// The next deferred nodes, at most `most`, oldest first, each once.
    pub(super) fn resume(&mut self, most: usize) -> Vec<NodeRef<'a>> {
        let Writer {
            deferred, resumed, ..
        } = &mut *self.writer;
        let rest = deferred.own(*resumed..);
        // SAFETY: they are nodes of the lists, which are borrowed for `'a`.
        let nodes = rest
            .iter()
            .take(most)
            .filter_map(|node| unsafe { NodeRef::new(*node) });
        let nodes: Vec<NodeRef<'a>> = nodes.collect();
        *resumed += nodes.len();
        if *resumed == deferred.len() {
            deferred.clear();
            *resumed = 0;
        }
        nodes
    }
}

/// Makes `splice` the neighbours of `target` on all levels. Climbs to the lowest level where the
/// target falls between the remembered neighbours, and searches downwards from there.
///
/// # Safety
/// The splice is one of this list, and the caller holds the writer's lock.
#[inline]
unsafe fn find(head: &Head, splice: &mut Splice, target: &Target<'_>) {
    let mut level = 0;
    // SAFETY: the splice's pointers are null or nodes of this list (by the caller), which `head`
    // keeps alive; its predecessor on a level is higher than that level, and so than the ones
    // below.
    unsafe {
        let (mut prev, mut next) = (None, None);
        while level < MAX_HEIGHT {
            prev = NodeRef::new(splice.prev[level]);
            next = NodeRef::new(splice.next[level]);
            if prev.is_none_or(|prev| prev.is_before(target))
                && !next.is_some_and(|next| next.is_before(target))
            {
                break;
            }
            level += 1;
        }
        if level == MAX_HEIGHT {
            (prev, next) = (None, None);
        }
        while level > 0 {
            level -= 1;
            (prev, next) = head.split_level(prev, next, level, |node| node.is_before(target));
            splice.prev[level] = as_pointer(prev);
            splice.next[level] = as_pointer(next);
        }
    }
}

/// A cursor over one list of a memtable. It keeps the memtable's entries alive, and sees entries
/// inserted ahead of it. Moves cost O(log n), `next` O(1); none can fail.
pub struct MemCursor {
    lists: Arc<SkipLists>,
    list: usize,
    /// Null while the cursor is invalid.
    node: *mut Node,
}

// SAFETY: the node is of the lists that the cursor shares, which may be read on any thread.
unsafe impl Send for MemCursor {}
// SAFETY: as above; and a shared cursor does not move.
unsafe impl Sync for MemCursor {}

impl MemCursor {
    /// A cursor over `list`; empty when there is no such list.
    pub(super) fn new(lists: Arc<SkipLists>, list: usize) -> MemCursor {
        MemCursor {
            lists,
            list,
            node: ptr::null_mut(),
        }
    }

    #[inline]
    fn node(&self) -> Option<NodeRef<'_>> {
        // SAFETY: `node` is null or of `lists`, which live as long as the cursor.
        unsafe { NodeRef::new(self.node) }
    }

    fn head(&self) -> Option<&Head> {
        self.lists.heads.get(self.list)
    }

    /// About how many entries have keys from `lo` on, up to but without `hi` (`None` is past the
    /// last): within a quarter or so, and exact for few. O(log n), wherever the cursor stands.
    pub fn between(&self, lo: &[u8], hi: Option<&[u8]>) -> u64 {
        let (lo, hi) = (
            Target::new(lo, MAX_SEQ),
            hi.map(|hi| Target::new(hi, MAX_SEQ)),
        );
        self.head().map_or(0, |head| head.between(&lo, hi.as_ref()))
    }
}

impl Cursor for MemCursor {
    #[inline]
    fn valid(&self) -> bool {
        !self.node.is_null()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.node().map(NodeRef::key).unwrap_or_default()
    }

    #[inline]
    fn seq(&self) -> Seq {
        self.node().map_or(0, NodeRef::seq)
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.node().map_or(Kind::Delete, NodeRef::kind)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.node().map(NodeRef::value).unwrap_or_default()
    }

    fn value_slice(&self) -> Slice {
        Slice::from(self.value())
    }

    fn seek_first(&mut self) -> Result<()> {
        self.node = as_pointer(self.head().and_then(Head::first));
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.node = as_pointer(self.head().and_then(|head| head.split(|_| true).0));
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.node = as_pointer(self.lists.seek(self.list, key, seq));
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.node = match (self.head(), self.node()) {
            // SAFETY: the node is of this list, and every node is higher than level 0.
            (Some(head), node @ Some(_)) => as_pointer(unsafe { head.next(node, 0) }),
            _ => ptr::null_mut(),
        };
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.node = match (self.head(), self.node()) {
            (Some(head), Some(node)) => {
                let here = Target::new(node.key(), node.seq());
                as_pointer(head.split(|other| other.is_before(&here)).0)
            }
            _ => ptr::null_mut(),
        };
        Ok(())
    }
}
