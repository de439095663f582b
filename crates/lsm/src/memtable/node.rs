//! The nodes of skip lists: their layout in the arena, and their comparison.
//!
//! A node is one allocation of the arena:
//!
//! ```text
//! link[height-1] .. link[1] link[0] | prefix, seq and kind, lengths, value | key bytes
//!                                   ^ a pointer to the node points here
//! ```
//!
//! Links grow downwards (as in RocksDB's InlineSkipList), so that a node need not know its height,
//! and the lowest links, the header and the key share a cache line or two. `prefix` is the first
//! eight bytes of the key, big-endian and padded with zeros: it decides most comparisons. The value
//! lies elsewhere, unless it is short, so that the nodes visited by a search lie close together.
//! "Invariant" below means those of [`super::skiplist`].

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicPtr;

use super::arena::{ALIGN, Arena};
use crate::entry::{Kind, MAX_SEQ, MAX_VALUE_LEN, Seq};

/// Longest key and longest value of a node: enough for an attribute that is a whole record, and
/// within a `u32` and a 32-bit allocation.
pub(super) const MAX_LEN: usize = 2 * MAX_VALUE_LEN;

/// Longest value stored behind the key: cheaper there than in a cache line of its own.
const MAX_INLINE_VALUE: usize = 16;

pub(super) type Link = AtomicPtr<Node>;

/// The fixed part of a node. References to it must not be used to reach links, key or value: they
/// lie outside of it. Those are reached from pointers of the arena.
#[repr(C)]
pub(super) struct Node {
    prefix: u64,
    /// `seq << 8 | kind`
    seq_and_kind: u64,
    key_len: u32,
    value_len: u32,
    value: NonNull<u8>,
}

const _: () = assert!(align_of::<Node>() <= ALIGN && align_of::<Link>() <= ALIGN);

/// The first eight bytes of `key`, as a number with the same order.
#[inline]
fn prefix_of(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            for (to, from) in padded.iter_mut().zip(key) {
                *to = *from;
            }
            u64::from_be_bytes(padded)
        }
    }
}

/// The target of a search.
#[derive(Clone, Copy)]
pub(super) struct Target<'k> {
    prefix: u64,
    key: &'k [u8],
    seq: Seq,
}

impl<'k> Target<'k> {
    #[inline]
    pub(super) fn new(key: &'k [u8], seq: Seq) -> Target<'k> {
        Target {
            prefix: prefix_of(key),
            key,
            seq,
        }
    }
}

/// A published node of lists that live at least as long as `'a`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeRef<'a>(NonNull<Node>, PhantomData<&'a Node>);

impl<'a> NodeRef<'a> {
    /// # Safety
    /// `node` is null or a node of lists that are not dropped during `'a`, as the arena gave it.
    #[inline]
    pub(super) unsafe fn new(node: *mut Node) -> Option<NodeRef<'a>> {
        NonNull::new(node).map(|node| NodeRef(node, PhantomData))
    }

    #[inline]
    fn header(self) -> &'a Node {
        // SAFETY: invariant 1; the header holds no links, so it is never written again.
        unsafe { self.0.as_ref() }
    }

    /// The link to the next node on `level`.
    ///
    /// # Safety
    /// The node is higher than `level`.
    #[inline]
    pub(super) unsafe fn link(self, level: usize) -> &'a Link {
        // SAFETY: `level + 1` links lie before the header, in the same allocation, and were
        // initialised before the node was published.
        unsafe { self.0.cast::<Link>().sub(level + 1).as_ref() }
    }

    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        // SAFETY: `key_len` initialised bytes follow the header, and never change (invariant 1).
        unsafe {
            let start = self.0.add(1).cast::<u8>();
            std::slice::from_raw_parts(start.as_ptr(), self.header().key_len as usize)
        }
    }

    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        let header = self.header();
        // SAFETY: `value` starts `value_len` initialised bytes that never change (invariant 1).
        unsafe { std::slice::from_raw_parts(header.value.as_ptr(), header.value_len as usize) }
    }

    #[inline]
    pub(super) fn seq(self) -> Seq {
        self.header().seq_and_kind >> 8
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        Kind::from_byte(self.header().seq_and_kind as u8).unwrap_or(Kind::Delete)
    }

    /// True when this node precedes the target: [`crate::entry::compare`] by way of the prefix.
    #[inline(always)]
    pub(super) fn is_before(self, target: &Target<'_>) -> bool {
        let prefix = self.header().prefix;
        if prefix != target.prefix {
            return prefix < target.prefix;
        }
        self.compare_behind_prefix(target) == Ordering::Less
    }

    pub(super) fn is(self, target: &Target<'_>) -> bool {
        self.header().prefix == target.prefix
            && self.compare_behind_prefix(target) == Ordering::Equal
    }

    /// Compares nodes with equal prefixes. Keys of up to eight bytes end with the prefix; they can
    /// only differ in trailing zeros, which the lengths show.
    #[inline]
    fn compare_behind_prefix(self, target: &Target<'_>) -> Ordering {
        let (mine, theirs) = (self.key(), target.key);
        let behind_mine = mine.get(8..).unwrap_or(&[]);
        let behind_theirs = theirs.get(8..).unwrap_or(&[]);
        // Eight more bytes at once: many keys (digits behind zeros) then need no memcmp.
        if let (Some(mine), Some(theirs)) = (behind_mine.first_chunk(), behind_theirs.first_chunk())
        {
            let (mine, theirs) = (u64::from_be_bytes(*mine), u64::from_be_bytes(*theirs));
            if mine != theirs {
                return mine.cmp(&theirs);
            }
        }
        behind_mine
            .cmp(behind_theirs)
            .then(mine.len().cmp(&theirs.len()))
            .then_with(|| target.seq.cmp(&self.seq()))
    }
}

/// The pointer stored in a link or a cursor: null for no node.
#[inline]
pub(super) fn as_pointer(node: Option<NodeRef<'_>>) -> *mut Node {
    node.map_or(ptr::null_mut(), |node| node.0.as_ptr())
}

/// Creates an unpublished node with the height of `next`.
///
/// # Panics
/// When the key or the value is longer than [`MAX_LEN`].
#[inline]
pub(super) fn create(
    arena: &mut Arena,
    entry: &Target<'_>,
    kind: Kind,
    value: &[u8],
    next: &[*mut Node],
) -> *mut Node {
    let key = entry.key;
    assert!(key.len() <= MAX_LEN && value.len() <= MAX_LEN);
    debug_assert!(entry.seq <= MAX_SEQ);
    let links = size_of_val(next).next_multiple_of(ALIGN);
    let fixed = links + size_of::<Node>() + key.len();
    let (piece, value_at) = if value.len() <= MAX_INLINE_VALUE {
        let piece = arena.front(fixed + value.len());
        // SAFETY: the allocation is `fixed + value.len()` bytes long.
        (piece, unsafe { piece.add(fixed) })
    } else {
        (arena.front(fixed), arena.back(value.len()))
    };
    // SAFETY: the allocations are exclusive; the first is aligned for nodes and links, and as large
    // as the links (of a pointer's size), the header and the key together, which are laid out one
    // after another; `value_at` starts as many bytes as the value has.
    unsafe {
        let node = piece.add(links).cast::<Node>();
        node.write(Node {
            prefix: entry.prefix,
            seq_and_kind: entry.seq << 8 | kind as u64,
            key_len: key.len() as u32,
            value_len: value.len() as u32,
            value: value_at,
        });
        let key_at = node.add(1).cast::<u8>();
        ptr::copy_nonoverlapping(key.as_ptr(), key_at.as_ptr(), key.len());
        ptr::copy_nonoverlapping(value.as_ptr(), value_at.as_ptr(), value.len());
        for (level, next) in next.iter().enumerate() {
            node.cast::<Link>().sub(level + 1).write(Link::new(*next));
        }
        node.as_ptr()
    }
}
