//! Lookups of many keys: first locates the blocks of the keys, without reading data; then reads all
//! data blocks at once, neighbours in one read and the reads together; then searches the blocks.

use std::sync::Arc;

use super::block::{Layout, Near};
use super::bytes::{Block, IndexBytes};
use super::entries::BlockEntries;
use super::format::Handle;
use super::found::{BlockHint, Found};
use super::index::Index;
use super::reader::Table;
use crate::coding::Own;
use crate::cost::Cost;
use crate::entry::{MAX_SEQ, Seq};
use crate::error::Result;
use crate::fs::{ReadRequest, read_many};

/// Blocks with at most this many bytes between them are read together.
const GAP: u64 = 8 << 10;
/// The most bytes of a read, unless a single block is longer.
const PIECE: u64 = 256 << 10;
/// Blocks of a read with more of them than this are not cached: they were cheap to read, and would
/// evict more expensive ones.
const CACHED_TOGETHER: usize = 4;

/// A data block to read, and after [`fetch`] its contents.
pub(crate) struct WantedBlock<'t> {
    table: &'t Arc<Table>,
    handle: Handle,
    bytes: Option<(Block<'t>, Layout)>,
}

/// Finds the blocks of ascending keys in a table. The first search is from the top; each further
/// one continues from the position of the one before, in steps that double, so a key near the one
/// before it costs a few comparisons.
pub(crate) struct Locator<'t> {
    table: &'t Arc<Table>,
    /// The partition of the last block found, and its index; `None` before the first search.
    partition: usize,
    index: Option<IndexBytes<'t>>,
    /// The last block found, by its index in the partition.
    block: usize,
}

/// True when two ranges of sequence numbers, both inclusive, overlap.
#[inline]
pub(crate) fn meet(a: (Seq, Seq), b: (Seq, Seq)) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

impl<'t> Locator<'t> {
    pub(crate) fn new(table: &'t Arc<Table>) -> Locator<'t> {
        Locator {
            table,
            partition: 0,
            index: None,
            block: 0,
        }
    }

    /// Resets the position: the next search is from the top again.
    pub(crate) fn rewind(&mut self) {
        (self.partition, self.index, self.block) = (0, None, 0);
    }

    /// Adds the one block that can hold an entry of `key` to `wanted`, unless it is the last there;
    /// false when the key filter, if it is to be probed, excludes `key`, or the newest entry of
    /// `key` in the table can have no sequence number in `seqs`.
    ///
    /// # Errors
    /// Those of reading the filter and the index block.
    pub(crate) fn locate(
        &mut self,
        key: &[u8],
        seqs: (Seq, Seq),
        filtered: bool,
        wanted: &mut Vec<WantedBlock<'t>>,
        cost: &Cost,
    ) -> Result<bool> {
        let table = self.table;
        let p = match &self.index {
            Some(_) => table.top().find_near(self.partition, key, MAX_SEQ),
            None => table.top().find(0, key, MAX_SEQ),
        };
        let Some(part) = table.top().get(p) else {
            return Ok(false);
        };
        if !meet((part.min_seq, part.max_seq), seqs) {
            return Ok(false);
        }
        // The first probe pins the filter, and the index with it.
        if (filtered || !table.is_pinned(p)) && !table.filter_admits(p, part, key, cost)? {
            return Ok(false);
        }
        let near = self.partition == p && self.index.is_some();
        if !near {
            self.index = Some(table.index_of(p, part, true, cost)?);
            self.partition = p;
        }
        let malformed = || table.malformed(part.index);
        let bytes = self.index.as_deref().ok_or_else(malformed)?;
        let index = Index::parse(bytes).ok_or_else(malformed)?;
        let block = if near {
            index.find_near(self.block, key, MAX_SEQ)
        } else {
            index.find(0, key, MAX_SEQ)
        };
        self.block = block.ok_or_else(malformed)?;
        let handle = self.handle()?;
        let is_last = wanted
            .last()
            .is_some_and(|last| Arc::ptr_eq(last.table, table) && last.handle == handle);
        if !is_last {
            wanted.push(WantedBlock::new(table, handle));
        }
        Ok(true)
    }

    fn handle(&self) -> Result<Handle> {
        let entry = self
            .index
            .as_deref()
            .and_then(|bytes| Index::parse(bytes)?.entry(self.block));
        entry.map(|entry| entry.handle).ok_or_else(|| {
            let part = self.table.top().get(self.partition);
            self.table
                .malformed(part.map_or(Handle::NONE, |part| part.index))
        })
    }
}

impl<'t> WantedBlock<'t> {
    pub(super) fn new(table: &'t Arc<Table>, handle: Handle) -> WantedBlock<'t> {
        WantedBlock {
            table,
            handle,
            bytes: None,
        }
    }

    /// Bytes of the fetched block.
    pub(crate) fn len(&self) -> usize {
        self.handle.raw as usize
    }

    fn set(&mut self, bytes: Block<'t>) -> Result<()> {
        let layout = Layout::parse(&bytes).ok_or_else(|| self.table.malformed(self.handle))?;
        self.bytes = Some((bytes, layout));
        Ok(())
    }

    /// The newest entry of `key` in the fetched block. `near` is the end position of the search for
    /// an earlier key in this block, and is updated by this one; `None` searches from the top.
    pub(crate) fn get<'k>(
        &self,
        key: &'k [u8],
        near: &mut Option<Near<'k>>,
    ) -> Result<Option<Found>> {
        let malformed = || self.table.malformed(self.handle);
        let (bytes, layout) = self.bytes.as_ref().ok_or_else(malformed)?;
        let place = layout.seek_near(bytes, near, key).ok_or_else(malformed)?;
        let place = place.filter(|place| place.is_of(bytes, key));
        Ok(place.map(|place| Found {
            seq: place.seq,
            kind: place.kind,
            value: bytes.clone().into_slice(place.value_range()),
        }))
    }
}

/// Fetches the blocks: from the cache, or from the disk, all together.
///
/// # Errors
/// Read errors or damage; other blocks may have been fetched then.
pub(crate) fn fetch(wanted: &mut [WantedBlock<'_>], cost: &Cost) -> Result<()> {
    Cost::add(&cost.data_blocks, wanted.len() as u64);
    if let [only] = wanted {
        let bytes = only.table.block(only.handle, true, cost)?;
        return only.set(bytes);
    }
    let mut missing: Vec<usize> = Vec::new();
    for (at, block) in wanted.iter_mut().enumerate() {
        match block.table.at_hand(block.handle) {
            Some(bytes) => {
                Cost::add(&cost.blocks_cached, 1);
                block.set(bytes)?;
            }
            None => missing.push(at),
        }
    }
    if let [only] = missing.as_slice() {
        // A single block is a plain read.
        let block = wanted.own_mut(*only);
        let bytes = block.table.block(block.handle, true, cost)?;
        return block.set(bytes);
    }
    if !missing.is_empty() {
        cost.check_clock()?;
    }
    let is_mapped = |at: &usize| wanted.own(*at).table.map().is_some();
    let (mapped, missing): (Vec<usize>, Vec<usize>) = missing.into_iter().partition(is_mapped);
    touch(wanted, &mapped, cost)?;
    let pieces = pieces(wanted, &missing)?;
    let requests: Vec<ReadRequest<'_>> = pieces
        .iter()
        .map(|piece| ReadRequest {
            file: piece.table.file(),
            offset: piece.offset,
            len: (piece.end - piece.offset) as usize,
        })
        .collect();
    let mut failed = None;
    read_many(&requests, &mut |at, read| {
        let piece = pieces.own(at);
        let members = missing.own(piece.first..piece.last);
        let taken = match read {
            Ok(bytes) => take(wanted, members, piece, bytes, cost),
            Err(error) => Err(piece.table.read_error(piece.offset, error)),
        };
        if let Err(error) = taken {
            failed.get_or_insert(error);
        }
    });
    failed.map_or(Ok(()), Err)
}

/// Fetches blocks of mapped files: first the system begins to read all of them, then each is
/// touched, so that the disk is waited for about once.
fn touch(wanted: &mut [WantedBlock<'_>], missing: &[usize], cost: &Cost) -> Result<()> {
    let pieces = pieces(wanted, missing)?;
    for piece in &pieces {
        if let Some(map) = piece.table.map() {
            map.will_need(piece.offset..piece.end);
        }
    }
    for piece in &pieces {
        let members = missing.own(piece.first..piece.last);
        for at in members {
            let block = wanted.own_mut(*at);
            let fill = members.len() <= CACHED_TOGETHER;
            let bytes = block.table.block(block.handle, fill, cost)?;
            block.set(bytes)?;
        }
    }
    Ok(())
}

/// The entries of many data blocks, in the order of `hints`. Blocks that are not cached are read
/// together; pass them in file order where possible, so that neighbours are read in one piece.
///
/// # Errors
/// [`Error::Io`] and [`Error::Corruption`] of the indexes and the data blocks;
/// [`Error::Invalid`] when a table has no such block.
///
/// [`Error::Io`]: crate::Error::Io
/// [`Error::Corruption`]: crate::Error::Corruption
/// [`Error::Invalid`]: crate::Error::Invalid
pub fn entries_of_blocks(
    hints: &[(Arc<Table>, BlockHint)],
    cost: &Cost,
) -> Result<Vec<BlockEntries>> {
    let mut wanted = Vec::with_capacity(hints.len());
    for (table, hint) in hints {
        wanted.push(WantedBlock::new(table, table.handle_of(hint, cost)?));
    }
    fetch(&mut wanted, cost)?;
    let entries = wanted.into_iter().map(|block| {
        let malformed = || block.table.malformed(block.handle);
        let (bytes, _) = block.bytes.ok_or_else(malformed)?;
        block.table.entries_in(block.handle, bytes)
    });
    entries.collect()
}

/// Blocks of a table that are read together.
struct Piece<'t> {
    table: &'t Arc<Table>,
    offset: u64,
    end: u64,
    /// Its first block, by index in the missing ones.
    first: usize,
    last: usize,
}

fn pieces<'t>(wanted: &[WantedBlock<'t>], missing: &[usize]) -> Result<Vec<Piece<'t>>> {
    let mut pieces: Vec<Piece<'t>> = Vec::new();
    for (n, at) in missing.iter().enumerate() {
        let block = wanted.item(*at)?;
        let (table, handle) = (block.table, block.handle);
        table.check_handle(handle)?;
        if let Some(piece) = pieces.last_mut()
            && Arc::ptr_eq(piece.table, table)
            && handle.offset >= piece.end
            && handle.offset - piece.end <= GAP
            && handle.end() - piece.offset <= PIECE
        {
            piece.end = handle.end();
            piece.last = n + 1;
            continue;
        }
        pieces.push(Piece {
            table,
            offset: handle.offset,
            end: handle.end(),
            first: n,
            last: n + 1,
        });
    }
    Ok(pieces)
}

/// Extracts the blocks from the bytes of a read.
fn take(
    wanted: &mut [WantedBlock<'_>],
    members: &[usize],
    piece: &Piece<'_>,
    bytes: &[u8],
    cost: &Cost,
) -> Result<()> {
    Cost::add(&cost.bytes_read, bytes.len() as u64);
    for at in members {
        let block = wanted.own_mut(*at);
        let (table, handle) = (block.table, block.handle);
        Cost::add(&cost.blocks_read, 1);
        let start = (handle.offset - piece.offset) as usize;
        let sealed = bytes.part(start..start + handle.sealed_len())?;
        let expanded = Arc::new(table.unpack(sealed, handle)?);
        if members.len() <= CACHED_TOGETHER {
            table.keep(handle, &expanded);
        }
        block.set(Block::Loaded(expanded))?;
    }
    Ok(())
}
