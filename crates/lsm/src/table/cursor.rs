//! Cursors over a table.

use std::cmp::Ordering;
use std::sync::Arc;

use super::block::BlockCursor;
use super::bytes::Kept;
use super::format::{FOOTER_LEN, HEADER_LEN, Handle, expand, unseal};
use super::index::Index;
use super::options::ReadOptions;
use super::reader::Table;
use crate::cost::Cost;
use crate::cursor::Cursor;
use crate::entry::{Kind, Seq};
use crate::error::{Error, Result};
use crate::stop::Stop;
use esker_coding::{Own, Slice};

/// A cursor over a table's entries. Keeps its current data block and index block, so that a seek to
/// a nearby key, as in batched lookups of sorted keys, needs no search from the top. After an error
/// it is invalid until the next seek.
pub struct TableCursor {
    table: Arc<Table>,
    options: ReadOptions,
    cost: Cost,
    partition: usize,
    /// The index block of `partition`.
    index: Option<Kept>,
    /// The data block in `block`, by its index in the partition.
    loaded: Option<usize>,
    block: BlockCursor,
    valid: bool,
    ahead: Readahead,
    /// In a mapped file: the end of the last block, and of the range that was announced.
    passed: u64,
    announced: u64,
}

/// Bytes of a mapped file that are announced at a time.
const ANNOUNCED: u64 = 256 << 10;
/// The most bytes between two data blocks in order: the blocks that describe a partition.
const GAP: u64 = 64 << 10;

/// A range of the file that was read ahead.
#[derive(Default)]
struct Readahead {
    start: u64,
    bytes: Vec<u8>,
}

impl Table {
    /// A cursor over all entries. It counts its own cost.
    pub fn cursor(self: &Arc<Self>, options: ReadOptions) -> TableCursor {
        TableCursor::new(Arc::clone(self), options)
    }
}

impl TableCursor {
    fn new(table: Arc<Table>, options: ReadOptions) -> TableCursor {
        TableCursor {
            table,
            options,
            cost: Cost::default(),
            partition: 0,
            index: None,
            loaded: None,
            block: BlockCursor::new(),
            valid: false,
            ahead: Readahead::default(),
            passed: u64::MAX,
            announced: 0,
        }
    }

    /// The same cursor, whose moves `stop` stops.
    pub(crate) fn until(mut self, stop: Option<&Stop>) -> TableCursor {
        self.cost = Cost::until(stop);
        self
    }

    /// The cost of the cursor's moves so far.
    pub fn cost(&self) -> &Cost {
        &self.cost
    }

    /// Enters partition `p`; returns its number of data blocks.
    fn enter(&mut self, p: usize) -> Result<usize> {
        if self.partition != p || self.index.is_none() {
            self.loaded = None;
            self.index = None;
            let part = self.table.top().get(p).ok_or_else(|| lost(&self.table))?;
            let (fill, cost) = (self.options.fill_cache, &self.cost);
            let index = self.table.index_of(p, part, fill, cost)?;
            self.index = Some(index.into_kept());
            self.partition = p;
        }
        self.with_index(|index| Some(index.len()))
    }

    fn with_index<T>(&self, read: impl FnOnce(Index<'_>) -> Option<T>) -> Result<T> {
        self.index
            .as_ref()
            .and_then(|kept| read(Index::parse(kept.bytes(self.table.map()))?))
            .ok_or_else(|| {
                let handle = self.table.top().get(self.partition).map(|part| part.index);
                self.table.malformed(handle.unwrap_or(Handle::NONE))
            })
    }

    /// Loads data block `b` of the current partition.
    fn load(&mut self, b: usize) -> Result<()> {
        if self.loaded == Some(b) {
            return Ok(());
        }
        self.loaded = None;
        let handle = self.with_index(|index| Some(index.entry(b)?.handle))?;
        Cost::add(&self.cost.data_blocks, 1);
        let bytes = if self.options.readahead > 0 {
            let mut bytes = self.block.recycle();
            self.read_ahead(handle, &mut bytes)?;
            Arc::new(bytes)
        } else {
            self.announce(handle);
            let table = &self.table;
            let block = table.block(handle, self.options.fill_cache, &self.cost)?;
            let recycled = &mut self.block;
            // What is mapped is copied: a move within the block then costs what it costs in a
            // cached one, and values share no reference count with other threads.
            block.into_shared_with(|| recycled.recycle())
        };
        self.block
            .load(bytes)
            .ok_or_else(|| self.table.malformed(handle))?;
        self.loaded = Some(b);
        Ok(())
    }

    /// In a mapped file, where blocks are touched in order for the first time, lets the system read
    /// the next ones meanwhile: it reads single pages otherwise.
    fn announce(&mut self, handle: Handle) {
        let Some(map) = self.table.map() else {
            return;
        };
        let is_next = (self.passed..self.passed.saturating_add(GAP)).contains(&handle.offset);
        self.passed = handle.end();
        if is_next && handle.end() > self.announced && !map.is_verified(handle) {
            self.announced = handle.offset.saturating_add(ANNOUNCED);
            map.will_need(handle.offset..self.announced);
        }
    }

    /// Reads a block from a large range of the file: the one in memory, or the next in the
    /// direction of travel.
    fn read_ahead(&mut self, handle: Handle, out: &mut Vec<u8>) -> Result<()> {
        self.cost.check()?;
        let table = &self.table;
        let size = table.meta().size;
        let damaged = |what| table.damaged(handle.offset, what);
        handle.check(size).map_err(damaged)?;
        let ahead = &mut self.ahead;
        let end = ahead.start + ahead.bytes.len() as u64;
        if handle.offset < ahead.start || handle.end() > end {
            let len = (self.options.readahead as u64).max(handle.sealed_len() as u64);
            let backward = handle.offset < ahead.start && handle.end() >= ahead.start;
            let start = if backward {
                handle.end().saturating_sub(len).max(HEADER_LEN as u64)
            } else {
                handle.offset
            };
            let len = len.min(size.saturating_sub(FOOTER_LEN as u64).saturating_sub(start));
            self.cost.check_clock()?;
            ahead.start = start;
            ahead.bytes.clear();
            ahead.bytes.resize(len as usize, 0);
            if let Err(e) = table.read_at(start, &mut ahead.bytes) {
                ahead.bytes.clear();
                return Err(e);
            }
            Cost::add(&self.cost.bytes_read, len);
        }
        let at = (handle.offset - ahead.start) as usize;
        let sealed = ahead.bytes.part(at..at + handle.sealed_len())?;
        Cost::add(&self.cost.blocks_read, 1);
        let packing = unseal(sealed, handle, table.meta().number).map_err(damaged)?;
        expand(sealed, handle, packing, out).map_err(damaged)
    }

    /// The partition and data block that can hold the first entry at or after `(key, seq)`,
    /// searched near the current block first.
    fn locate(&mut self, key: &[u8], seq: Seq) -> Result<Option<(usize, usize)>> {
        let p = self.partition;
        let mut from = 0;
        if let Some(b) = self.loaded {
            let behind = self.with_index(|index| index.compare(b, key, seq))?;
            if behind == Ordering::Less {
                // Past the current block, and thereby past the earlier partitions.
                let (len, next) = self.with_index(|index| {
                    let len = index.len();
                    let inside = b + 1 < len;
                    let next = if inside {
                        index.compare(b + 1, key, seq)?
                    } else {
                        Ordering::Less
                    };
                    Some((len, next))
                })?;
                if next != Ordering::Less {
                    return Ok(Some((p, b + 1)));
                }
                if b + 2 < len && self.table.top().compare(p, key, seq) != Ordering::Less {
                    let b = self.with_index(|index| index.find(b + 2, key, seq))?;
                    return Ok(Some((p, b)));
                }
                from = p + 1;
            } else {
                let before = match b.checked_sub(1) {
                    Some(before) => self.with_index(|index| index.compare(before, key, seq))?,
                    None if p == 0 => Ordering::Less,
                    None => self.table.top().compare(p - 1, key, seq),
                };
                if before == Ordering::Less {
                    return Ok(Some((p, b)));
                }
            }
        }
        let p = self.table.top().find(from, key, seq);
        if p >= self.table.top().len() {
            return Ok(None);
        }
        self.enter(p)?;
        let b = self.with_index(|index| index.find(0, key, seq))?;
        Ok(Some((p, b)))
    }

    /// Handles the result of a block move: `None` is malformed.
    #[inline]
    fn land(&mut self, arrived: Option<bool>) -> Result<bool> {
        match arrived {
            Some(arrived) => {
                self.valid = arrived;
                Ok(arrived)
            }
            None => {
                let b = self.loaded.take().unwrap_or(0);
                let handle = self.with_index(|index| Some(index.entry(b)?.handle))?;
                Err(self.table.malformed(handle))
            }
        }
    }

    /// Moves to the first entry of the next block.
    fn next_block(&mut self) -> Result<()> {
        let (mut p, mut b) = (self.partition, self.loaded.map_or(0, |b| b + 1));
        if b >= self.enter(p)? {
            (p, b) = (p + 1, 0);
            if p >= self.table.top().len() {
                return Ok(());
            }
            self.enter(p)?;
        }
        self.load(b)?;
        let arrived = self.block.first();
        self.land(arrived)?;
        Ok(())
    }

    /// Moves to the last entry of the previous block.
    fn prev_block(&mut self) -> Result<()> {
        let b = match self.loaded {
            Some(b) if b > 0 => b - 1,
            _ if self.partition == 0 => return Ok(()),
            _ => self.enter(self.partition - 1)?.saturating_sub(1),
        };
        self.load(b)?;
        let arrived = self.block.last();
        self.land(arrived)?;
        Ok(())
    }
}

fn lost(table: &Table) -> Error {
    Error::Invalid(format!("{} has no such partition", table.path().display()))
}

impl Cursor for TableCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    fn key(&self) -> &[u8] {
        if self.valid { self.block.key() } else { &[] }
    }

    #[inline]
    fn seq(&self) -> Seq {
        if self.valid { self.block.seq() } else { 0 }
    }

    #[inline]
    fn kind(&self) -> Kind {
        if self.valid {
            self.block.kind()
        } else {
            Kind::Delete
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        if self.valid { self.block.value() } else { &[] }
    }

    fn value_slice(&self) -> Slice {
        if self.valid {
            self.block.value_slice()
        } else {
            Slice::from(Vec::new())
        }
    }

    fn seek_first(&mut self) -> Result<()> {
        self.valid = false;
        if self.table.top().len() == 0 {
            return Ok(());
        }
        self.enter(0)?;
        self.load(0)?;
        let arrived = self.block.first();
        self.land(arrived)?;
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.valid = false;
        let Some(p) = self.table.top().len().checked_sub(1) else {
            return Ok(());
        };
        let last = self.enter(p)?.saturating_sub(1);
        self.load(last)?;
        let arrived = self.block.last();
        self.land(arrived)?;
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.valid = false;
        let Some((p, b)) = self.locate(key, seq)? else {
            return Ok(());
        };
        self.enter(p)?;
        self.load(b)?;
        let arrived = self.block.seek(key, seq);
        // A separator may be greater than the last entry of its block.
        if self.land(arrived)? {
            Ok(())
        } else {
            self.next_block()
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.valid = false;
        let arrived = self.block.next();
        if self.land(arrived)? {
            Ok(())
        } else {
            self.next_block()
        }
    }

    fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.valid = false;
        let arrived = self.block.prev();
        if self.land(arrived)? {
            Ok(())
        } else {
            self.prev_block()
        }
    }
}
