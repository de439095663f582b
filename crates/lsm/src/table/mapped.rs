//! A table whose file is mapped: blocks that are stored without compression are used where they
//! lie, without a copy, a system call, or a place in the block cache.
//!
//! **Verification.** A block's checksum is verified when the block is first touched, and then noted
//! in a bitmap ([`Verified`]): later touches trust it, as they trust a block in the cache. The
//! bitmap grows with what is touched, by half a KiB per half a MiB of the table. A block that is
//! compressed goes to the block cache as without a map, decompressed straight from the mapped
//! bytes; it is verified each time that it is decompressed.
//!
//! **The disk.** The map is advised that reads are random, so a page fault reads one page. A block
//! that is touched for the first time is announced, so that its pages are read at once, and so are
//! many blocks (`batch.rs`) and the next ones in order (`cursor.rs`). A block that was touched
//! before is not: a system call for pages that are there costs as much as reading the block.
//!
//! **What may still go wrong.** The kernel may drop a page and read it again: damage of the disk
//! that begins after the verification is not seen before the table is opened again, or checked.
//! Where the page cannot be read, the process gets SIGBUS ([`esker_fs::Mapped`]).
//!
//! **Lifetime.** The map lives as long as the open table and each value that was returned from it
//! ([`MappedBlock::slice`]), also when the table's file was removed meanwhile. Values share the map
//! through a reference count per thread, so that readers do not write to the same cache line.

use std::io;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use esker_coding::{Owner, Slice};

use super::format::Handle;
use crate::fs::Mapped;
use crate::stripe::LazyStriped;

/// The mapped bytes of a table, and which of its blocks were verified.
pub(super) struct TableMap {
    map: Arc<dyn Mapped>,
    verified: Verified,
    owners: LazyStriped<OnceLock<Owner>>,
}

/// A block in a mapped table.
#[derive(Clone)]
pub(super) struct MappedBlock<'t> {
    map: &'t TableMap,
    start: usize,
    bytes: &'t [u8],
}

impl TableMap {
    /// A map of a table of `size` bytes; `None` if it has another size.
    pub(super) fn new(map: Arc<dyn Mapped>, size: u64) -> Option<TableMap> {
        ((*map).as_ref().len() as u64 == size).then(|| TableMap {
            map,
            verified: Verified::new(size),
            owners: LazyStriped::default(),
        })
    }

    /// Bytes held beside the map.
    pub(super) fn memory(&self) -> usize {
        self.verified.memory()
    }

    /// The sealed bytes of a block that is about to be used.
    #[inline]
    pub(super) fn touch(&self, handle: Handle) -> io::Result<&[u8]> {
        self.map.touch(handle.offset..handle.end())
    }

    /// True when the block was touched and verified. One whose lengths say that it is stored
    /// without compression is so.
    #[inline]
    pub(super) fn is_verified(&self, handle: Handle) -> bool {
        self.verified.has(handle)
    }

    /// Notes that the block was verified: not one whose lengths say that it is stored without
    /// compression, and whose type does not.
    pub(super) fn note_verified(&self, handle: Handle) {
        self.verified.add(handle);
    }

    /// The payload of a sealed block, in place. `None` where the handle is longer than the bytes.
    #[inline]
    pub(super) fn in_place<'t>(
        &'t self,
        sealed: &'t [u8],
        handle: Handle,
    ) -> Option<MappedBlock<'t>> {
        Some(MappedBlock {
            map: self,
            start: usize::try_from(handle.offset).ok()?,
            bytes: sealed.get(..handle.raw as usize)?,
        })
    }

    /// The bytes of a block that was used before.
    #[inline]
    pub(super) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        let all = (*self.map).as_ref();
        let bytes = all.get(range.clone());
        debug_assert!(bytes.is_some(), "the range was used before");
        bytes.unwrap_or(&[])
    }

    /// Begins to read a range.
    pub(super) fn will_need(&self, range: Range<u64>) {
        self.map.will_need(range);
    }
}

impl<'t> MappedBlock<'t> {
    /// Where it lies in the table.
    pub(super) fn place(&self) -> Range<usize> {
        self.start..self.start + self.bytes.len()
    }

    /// A part of the block that keeps the map alive.
    #[inline]
    pub(super) fn slice(&self, part: Range<usize>) -> Slice {
        let owner = self.map.owners.mine();
        let owner = owner.get_or_init(|| Arc::new(self.map.map.clone()));
        let (start, end) = (self.start + part.start, self.start + part.end);
        Slice::within(Arc::clone(owner), start, end)
    }
}

impl Deref for MappedBlock<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// Bytes of a table per bit.
const GRAIN: u64 = 128;
/// Words of a chunk of the bitmap.
const WORDS: usize = 64;
/// Bytes of a table per chunk.
const SPAN: u64 = GRAIN * 64 * WORDS as u64;

type Chunk = [AtomicU64; WORDS];

/// The blocks that were verified: a bit for each [`GRAIN`] bytes stands for the block that begins
/// there. A shorter block has no bit, and is verified each time: so of two blocks that begin in the
/// same grain, the first has none.
///
/// Loads and stores are relaxed: the bytes of the table do not change, so nothing is published with
/// a bit.
struct Verified(Box<[OnceLock<Box<Chunk>>]>);

/// The chunk, the word in it, and the bit.
#[inline]
fn place_of(handle: Handle) -> Option<(usize, usize, u64)> {
    if (handle.sealed_len() as u64) < GRAIN {
        return None;
    }
    let bit = handle.offset / GRAIN;
    let word = (bit / 64) as usize;
    Some((word / WORDS, word % WORDS, 1 << (bit % 64)))
}

impl Verified {
    fn new(size: u64) -> Verified {
        Verified((0..size.div_ceil(SPAN)).map(|_| OnceLock::new()).collect())
    }

    #[inline]
    fn has(&self, handle: Handle) -> bool {
        let has = || {
            let (chunk, word, bit) = place_of(handle)?;
            let word = self.0.get(chunk)?.get()?.get(word)?;
            Some(word.load(Ordering::Relaxed) & bit != 0)
        };
        has().unwrap_or(false)
    }

    fn add(&self, handle: Handle) {
        let Some((chunk, word, bit)) = place_of(handle) else {
            return;
        };
        let chunk = self.0.get(chunk).map(|chunk| {
            chunk.get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))))
        });
        if let Some(word) = chunk.and_then(|chunk| chunk.get(word)) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn memory(&self) -> usize {
        let chunks = self.0.iter().filter(|chunk| chunk.get().is_some()).count();
        size_of_val(&*self.0) + chunks * size_of::<Chunk>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_stands_for_one_block() {
        let verified = Verified::new(2 * SPAN + 1);
        let block = |offset, sealed: u32| Handle {
            offset,
            stored: sealed - 5,
            raw: sealed - 5,
        };
        let few = verified.memory();
        // Two blocks in one grain: the first is shorter than it, and stays without a bit.
        verified.add(block(GRAIN, 100));
        assert!(!verified.has(block(GRAIN, 100)));
        assert!(!verified.has(block(GRAIN + 100, 5000)));
        assert_eq!(verified.memory(), few);
        let places = [GRAIN + 100, SPAN - 1, SPAN, 2 * SPAN];
        for (n, offset) in places.into_iter().enumerate() {
            let others = || places.into_iter().skip(n);
            assert!(others().all(|other| !verified.has(block(other, 128))));
            verified.add(block(offset, 128));
            assert!(verified.has(block(offset, 128)));
        }
        assert_eq!(verified.memory(), few + 3 * size_of::<Chunk>());
        // Outside of the table.
        verified.add(block(9 * SPAN, 128));
        assert!(!verified.has(block(9 * SPAN, 128)));
    }
}
