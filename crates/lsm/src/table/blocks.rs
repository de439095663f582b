//! The blocks of an open table: from the block cache, in place where the file is mapped
//! (`mapped.rs`), or from the file.

use std::io;
use std::sync::Arc;

use super::bytes::Block;
use super::format::{Handle, Packing, expand, unseal};
use super::mapped::TableMap;
use super::reader::Table;
use crate::cache;
use crate::cost::Cost;
use crate::error::{Error, Result};
use crate::fs::ReadFile;

impl Table {
    /// The map of the file, if there is one.
    #[inline]
    pub(super) fn map(&self) -> Option<&TableMap> {
        self.map.as_ref()
    }

    /// Fetches a block: in place, from the cache, or from the file.
    #[inline]
    pub(super) fn block(&self, handle: Handle, fill: bool, cost: &Cost) -> Result<Block<'_>> {
        cost.check()?;
        if let Some(map) = &self.map
            && handle.is_stored_raw()
        {
            return self.mapped_block(map, handle, cost);
        }
        if let Some(block) = self.cached(handle) {
            Cost::add(&cost.blocks_cached, 1);
            return Ok(Block::Loaded(block));
        }
        let block = Arc::new(self.load_block(handle, cost)?);
        if fill {
            self.keep(handle, &block);
        }
        Ok(Block::Loaded(block))
    }

    /// A block that costs no reading and no decompression: from the cache, or in place if it was
    /// verified.
    pub(super) fn at_hand(&self, handle: Handle) -> Option<Block<'_>> {
        match &self.map {
            Some(map) if handle.is_stored_raw() => {
                let sealed = Some(handle).filter(|handle| map.is_verified(*handle));
                let sealed = map.touch(sealed?).ok()?;
                Some(Block::Mapped(map.in_place(sealed, handle)?))
            }
            _ => self.cached(handle).map(Block::Loaded),
        }
    }

    /// A block of the mapped file, verified when it is touched first.
    #[inline]
    fn mapped_block<'t>(
        &'t self,
        map: &'t TableMap,
        handle: Handle,
        cost: &Cost,
    ) -> Result<Block<'t>> {
        if !map.is_verified(handle) {
            return self.verify_mapped(map, handle, cost);
        }
        let sealed = map.touch(handle);
        let sealed = sealed.map_err(|e| self.read_error(handle.offset, e))?;
        Cost::add(&cost.blocks_cached, 1);
        let block = map.in_place(sealed, handle);
        block
            .map(Block::Mapped)
            .ok_or_else(|| self.malformed(handle))
    }

    fn verify_mapped<'t>(
        &'t self,
        map: &'t TableMap,
        handle: Handle,
        cost: &Cost,
    ) -> Result<Block<'t>> {
        let sealed = self.touch(map, handle, cost)?;
        let damaged = |what| self.damaged(handle.offset, what);
        let packing = unseal(sealed, handle, self.meta.number).map_err(damaged)?;
        if packing != Packing::Raw {
            // Its length says that it is not compressed, and its type that it is.
            return Ok(Block::Loaded(Arc::new(self.unpack(sealed, handle)?)));
        }
        map.note_verified(handle);
        let block = map.in_place(sealed, handle);
        block
            .map(Block::Mapped)
            .ok_or_else(|| self.malformed(handle))
    }

    /// The sealed bytes of a block that is to be verified, in the mapped file.
    fn touch<'t>(&self, map: &'t TableMap, handle: Handle, cost: &Cost) -> Result<&'t [u8]> {
        cost.check_clock()?;
        self.check_handle(handle)?;
        if !map.is_verified(handle) {
            // Its pages are read at once, not by a fault each.
            map.will_need(handle.offset..handle.end());
        }
        let sealed = map.touch(handle);
        let sealed = sealed.map_err(|e| self.read_error(handle.offset, e))?;
        Cost::add(&cost.blocks_read, 1);
        Cost::add(&cost.bytes_read, sealed.len() as u64);
        Ok(sealed)
    }

    /// A block, if the cache has it.
    #[inline]
    pub(super) fn cached(&self, handle: Handle) -> Option<Arc<Vec<u8>>> {
        self.cache.get(self.cache_id, handle.offset)
    }

    /// Offers a block to the cache.
    pub(super) fn keep(&self, handle: Handle, block: &Arc<Vec<u8>>) {
        self.cache.insert(self.cache_id, handle.offset, block);
    }

    /// Reads a block, past the cache: from the mapped file, or from the file.
    fn load_block(&self, handle: Handle, cost: &Cost) -> Result<Vec<u8>> {
        match &self.map {
            Some(map) => {
                // A block with the lengths of a raw one would be noted as such.
                debug_assert!(!handle.is_stored_raw());
                let block = self.unpack(self.touch(map, handle, cost)?, handle)?;
                map.note_verified(handle);
                Ok(block)
            }
            None => self.read_block(handle, cost),
        }
    }

    /// Reads a block from the file, past the cache and the map.
    pub(super) fn read_block(&self, handle: Handle, cost: &Cost) -> Result<Vec<u8>> {
        cost.check_clock()?;
        self.check_handle(handle)?;
        let mut sealed = cache::buffer(handle.sealed_len());
        sealed.resize(handle.sealed_len(), 0);
        self.read_at(handle.offset, &mut sealed)?;
        Cost::add(&cost.blocks_read, 1);
        Cost::add(&cost.bytes_read, sealed.len() as u64);
        let block = self.unpack(&sealed, handle);
        cache::reuse(sealed);
        block
    }

    /// Refuses a handle that is invalid for this file.
    pub(super) fn check_handle(&self, handle: Handle) -> Result<()> {
        handle
            .check(self.meta.size)
            .map_err(|what| self.damaged(handle.offset, what))
    }

    /// Decompresses and verifies a sealed block.
    pub(super) fn unpack(&self, sealed: &[u8], handle: Handle) -> Result<Vec<u8>> {
        let damaged = |what| self.damaged(handle.offset, what);
        let packing = unseal(sealed, handle, self.meta.number).map_err(damaged)?;
        let mut block = cache::buffer(handle.raw as usize);
        expand(sealed, handle, packing, &mut block).map_err(damaged)?;
        Ok(block)
    }

    /// The file itself.
    pub(super) fn file(&self) -> &dyn ReadFile {
        &*self.file
    }

    /// Fills `buf` from the file.
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file
            .read_at(offset, buf)
            .map_err(|e| self.read_error(offset, e))
    }

    /// The error for a failed read at `offset`.
    pub(super) fn read_error(&self, offset: u64, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(offset, "the file ends too soon"),
            _ => Error::io(&self.path, "read", error),
        }
    }

    pub(super) fn damaged(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, self.base.saturating_add(offset), what)
    }

    /// The error for a block whose checksum is right and whose contents are not.
    pub(super) fn malformed(&self, handle: Handle) -> Error {
        self.damaged(handle.offset, "malformed block")
    }
}
