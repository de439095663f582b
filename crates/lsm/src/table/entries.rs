//! The entries of one block.

use std::path::Path;
use std::sync::Arc;

use super::block::BlockCursor;
use crate::entry::{Kind, MAX_SEQ, Seq, TIMED_LEN, Time, Timed};
use crate::error::{Error, Result};
use esker_coding::Slice;

/// The entries of one data block, first to last. Initially it is before the first.
pub struct BlockEntries {
    path: Arc<Path>,
    offset: u64,
    block: BlockCursor,
}

impl BlockEntries {
    pub(super) fn new(path: Arc<Path>, offset: u64, bytes: Arc<Vec<u8>>) -> Option<BlockEntries> {
        let mut block = BlockCursor::new();
        block.load(bytes)?;
        Some(BlockEntries {
            path,
            offset,
            block,
        })
    }

    /// Moves to the next entry; false at the end.
    ///
    /// # Errors
    /// [`Error::Corruption`] when the block is malformed.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.block
            .next()
            .ok_or_else(|| Error::corruption(&self.path, self.offset, "malformed block"))
    }

    /// Moves to the first entry at or after `key`; false when there is none.
    ///
    /// # Errors
    /// [`Error::Corruption`] when the block is malformed.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.block
            .seek(key, MAX_SEQ)
            .ok_or_else(|| Error::corruption(&self.path, self.offset, "malformed block"))
    }

    /// The entry's user key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.block.key()
    }

    /// The entry's sequence number.
    #[inline]
    pub fn seq(&self) -> Seq {
        self.block.seq()
    }

    /// The entry's kind, expired or not.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self.block.kind() {
            Kind::Timed => Timed::of(Kind::Timed, self.block.value()).0,
            kind => kind,
        }
    }

    /// The entry's expiry time, if any.
    pub fn expires(&self) -> Option<Time> {
        Timed::of(self.block.kind(), self.block.value()).1
    }

    /// The entry's value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        Timed::of(self.block.kind(), self.block.value()).2
    }

    /// The entry's value, sharing the block.
    pub fn value_slice(&self) -> Slice {
        match self.block.kind() {
            Kind::Timed => self.block.value_slice().skip(TIMED_LEN),
            _ => self.block.value_slice(),
        }
    }
}
