//! The bytes of a block in memory: shared with the block cache, or in the map of its table; and
//! what an open table holds of a partition.

use std::ops::{Deref, Range};
use std::sync::Arc;

use esker_coding::Slice;

use super::mapped::{MappedBlock, TableMap};

/// A block.
#[derive(Clone)]
pub(super) enum Block<'t> {
    /// Decompressed or read, and shared with the cache.
    Loaded(Arc<Vec<u8>>),
    /// In the table's map.
    Mapped(MappedBlock<'t>),
}

impl Block<'_> {
    /// For callers that keep it beyond the borrow of the table: what is mapped is copied.
    pub(super) fn into_shared(self) -> Arc<Vec<u8>> {
        match self {
            Block::Loaded(bytes) => bytes,
            Block::Mapped(block) => Arc::new(block.to_vec()),
        }
    }

    /// As [`Block::into_shared`]; a copy takes the memory of `buffer`.
    pub(super) fn into_shared_with(self, buffer: impl FnOnce() -> Vec<u8>) -> Arc<Vec<u8>> {
        match self {
            Block::Loaded(bytes) => bytes,
            Block::Mapped(block) => {
                let mut bytes = buffer();
                bytes.clear();
                bytes.extend_from_slice(&block);
                Arc::new(bytes)
            }
        }
    }

    /// A part that keeps the block alive.
    #[inline]
    pub(super) fn into_slice(self, part: Range<usize>) -> Slice {
        match self {
            Block::Loaded(bytes) => Slice::shared(bytes, part.start, part.end),
            Block::Mapped(block) => block.slice(part),
        }
    }
}

impl Deref for Block<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Block::Loaded(bytes) => bytes,
            Block::Mapped(block) => block,
        }
    }
}

/// The bytes of a block that are kept without a borrow of the table: of a mapped one, where it
/// lies.
#[derive(Clone)]
pub(super) enum Kept {
    Shared(Arc<Vec<u8>>),
    Mapped(Range<usize>),
}

impl Kept {
    /// The bytes; `map` is that of the table.
    #[inline]
    pub(super) fn bytes<'t>(&'t self, map: Option<&'t TableMap>) -> &'t [u8] {
        match self {
            Kept::Shared(bytes) => bytes,
            Kept::Mapped(range) => map.map_or(&[], |map| map.bytes(range)),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Kept::Shared(bytes) => bytes.capacity(),
            Kept::Mapped(_) => 0,
        }
    }
}

impl From<Block<'_>> for Kept {
    fn from(block: Block<'_>) -> Kept {
        match block {
            Block::Loaded(bytes) => Kept::Shared(bytes),
            Block::Mapped(block) => Kept::Mapped(block.place()),
        }
    }
}

/// The bytes of an index block: those of a pinned one are borrowed, without a reference count that
/// readers would share.
pub(super) enum IndexBytes<'t> {
    Pinned(&'t Kept, &'t [u8]),
    Loaded(Block<'t>),
}

impl IndexBytes<'_> {
    /// For callers that keep them beyond the borrow of the table.
    pub(super) fn into_kept(self) -> Kept {
        match self {
            IndexBytes::Pinned(kept, _) => kept.clone(),
            IndexBytes::Loaded(block) => block.into(),
        }
    }
}

impl Deref for IndexBytes<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            IndexBytes::Pinned(_, bytes) => bytes,
            IndexBytes::Loaded(block) => block,
        }
    }
}

/// The pinned blocks of a partition.
pub(super) struct Pinned {
    pub(super) index: Kept,
    pub(super) filter: Option<PinnedFilter>,
}

/// A key filter laid out so that a probe touches one further cache line: the byte with the probe
/// count is here.
pub(super) struct PinnedFilter {
    bits: FilterBits,
    pub(super) form: u8,
}

enum FilterBits {
    Copied(Box<[u8]>),
    Mapped(Range<usize>),
}

impl PinnedFilter {
    /// `None` for a block without bytes.
    pub(super) fn of(block: &Block<'_>) -> Option<PinnedFilter> {
        let (form, bits) = block.split_last()?;
        let bits = match block {
            Block::Loaded(_) => FilterBits::Copied(bits.into()),
            Block::Mapped(block) => {
                let place = block.place();
                FilterBits::Mapped(place.start..place.start + bits.len())
            }
        };
        Some(PinnedFilter { bits, form: *form })
    }

    /// The bits; `map` is that of the table.
    #[inline]
    pub(super) fn bits<'t>(&'t self, map: Option<&'t TableMap>) -> &'t [u8] {
        match &self.bits {
            FilterBits::Copied(bits) => bits,
            FilterBits::Mapped(range) => map.map_or(&[], |map| map.bytes(range)),
        }
    }

    fn memory(&self) -> usize {
        match &self.bits {
            FilterBits::Copied(bits) => bits.len(),
            FilterBits::Mapped(_) => 0,
        }
    }
}

impl Pinned {
    /// Bytes of memory that it holds.
    pub(super) fn memory(&self) -> u64 {
        let filter = self.filter.as_ref().map_or(0, PinnedFilter::memory);
        (self.index.memory() + filter) as u64
    }
}
