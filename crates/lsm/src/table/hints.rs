//! Block hints: the data blocks of a table that may hold the result of a lookup, by the fingerprint
//! map of an attribute, and by a range of keys.

use std::cmp::Ordering;
use std::ops::Range;

use super::found::BlockHint;
use super::index::Index;
use super::reader::Table;
use crate::cost::Cost;
use crate::entry::MAX_SEQ;
use crate::error::Result;
use crate::synopsis::{BlockSynopsis, MapPage, ValueRange, map_hash};

/// Keys from the first on, up to but without the second; `None` is past the last key.
pub type KeyRange<'a> = (&'a [u8], Option<&'a [u8]>);

/// Is shown a data block, its least and its greatest value, and whether it may hold what is sought.
pub type ShowSummary<'v> = dyn FnMut(BlockHint, Option<(&[u8], Option<&[u8]>)>, bool) + 'v;

impl Table {
    /// Appends the data blocks that may hold the one value of `range`, by the fingerprint map of
    /// the table: reads one page of it, however large the table. Their sequence bounds are those of
    /// their partitions. False, and nothing is appended, when the table has no such map or the
    /// range more than one value: then partitions have to be probed one by one.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of the page.
    ///
    /// [`Error::Io`]: crate::Error::Io
    /// [`Error::Corruption`]: crate::Error::Corruption
    pub fn mapped_blocks(
        &self,
        slot: usize,
        range: &ValueRange,
        cost: &Cost,
        out: &mut Vec<BlockHint>,
    ) -> Result<bool> {
        let (Some(map), Some(value)) = (self.top().map(slot), range.point()) else {
            return Ok(false);
        };
        Cost::add(&cost.synopses_probed, 1);
        let before = out.len();
        let hash = map_hash(BlockSynopsis::hash(value));
        if let Some(page) = map.page(hash) {
            let bytes = self.block(page.handle, true, cost)?;
            let mut blocks = Vec::new();
            MapPage::parse(&bytes)
                .and_then(|page| page.blocks(hash, &mut blocks))
                .ok_or_else(|| self.malformed(page.handle))?;
            blocks.sort_unstable();
            blocks.dedup();
            for number in blocks {
                let (partition, block) = (number >> map.shift, number & ((1 << map.shift) - 1));
                let part = self.top().get(partition);
                let part = part.ok_or_else(|| self.malformed(page.handle))?;
                if self.partition_may_match(partition, slot, range) {
                    out.push(BlockHint {
                        partition,
                        block,
                        min_seq: part.min_seq,
                        max_seq: part.max_seq,
                    });
                }
            }
        }
        Cost::add(&cost.synopses_negative, u64::from(out.len() == before));
        Ok(true)
    }

    /// Shows what partition `p` says of each of its data blocks: which it is, the least and the
    /// greatest value (`None` without any; a greatest of `None` is unbounded), and whether it may
    /// hold a value in `range`.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of the synopsis block.
    ///
    /// [`Error::Io`]: crate::Error::Io
    /// [`Error::Corruption`]: crate::Error::Corruption
    pub fn summaries(
        &self,
        p: usize,
        slot: usize,
        range: &ValueRange,
        cost: &Cost,
        show: &mut ShowSummary<'_>,
    ) -> Result<()> {
        let hash = range.point().map(BlockSynopsis::hash);
        self.with_synopsis(p, cost, |synopsis| {
            let mut records = synopsis.slot(slot)?;
            for (block, (min_seq, max_seq)) in synopsis.bounds().enumerate() {
                let record = records.next_block()?;
                let overlaps = |(min, max)| range.overlaps(min, max);
                let hint = BlockHint {
                    partition: p,
                    block,
                    min_seq,
                    max_seq,
                };
                let may_match = record.zone.is_some_and(overlaps)
                    && hash.is_none_or(|hash| record.may_hold(hash));
                show(hint, record.zone, may_match);
            }
            Cost::add(&cost.synopses_probed, synopsis.blocks() as u64);
            Some(())
        })
    }

    /// The number of entries in partition `p`.
    pub fn partition_entries(&self, p: usize) -> u64 {
        self.top().get(p).map_or(0, |part| part.entries)
    }

    /// Appends the first key of every so many data blocks. `passed` is how many blocks there were
    /// before, in other tables: it is counted on, so that a sample of many tables is as dense in
    /// the small ones as in the large ones. Does not fill the block cache.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of the index, the synopsis and the data blocks.
    ///
    /// [`Error::Io`]: crate::Error::Io
    /// [`Error::Corruption`]: crate::Error::Corruption
    pub(crate) fn sample_keys(
        &self,
        every: usize,
        passed: &mut usize,
        out: &mut Vec<Vec<u8>>,
    ) -> Result<()> {
        let (cost, mut hints) = (Cost::default(), Vec::new());
        for partition in 0..self.partitions() {
            self.all_blocks(partition, &cost, &mut hints)?;
        }
        for hint in hints {
            if passed.is_multiple_of(every.max(1)) {
                let handle = self.handle_of(&hint, &cost)?;
                let mut entries = self.entries_in(handle, self.block(handle, false, &cost)?)?;
                if entries.advance()? {
                    out.push(entries.key().to_vec());
                }
            }
            *passed += 1;
        }
        Ok(())
    }

    /// The partitions that can hold entries of the user keys in `[lo, hi)`; `hi` of `None` is past
    /// the last key. Of keys before the table there are none.
    pub fn partitions_between(&self, lo: &[u8], hi: Option<&[u8]>) -> Range<usize> {
        if hi.is_some_and(|hi| hi <= self.meta().smallest.as_slice()) {
            return 0..0;
        }
        let first = self.top().find(0, lo, MAX_SEQ);
        let end = match hi {
            Some(hi) => (self.top().find(first, hi, MAX_SEQ) + 1).min(self.partitions()),
            None => self.partitions(),
        };
        first..end.max(first)
    }

    /// True when partition `p` is one of those between two keys, without a search for these.
    fn partition_meets(&self, p: usize, lo: &[u8], hi: Option<&[u8]>) -> bool {
        let top = self.top();
        let ends_before = |p: usize, key: &[u8]| top.compare(p, key, MAX_SEQ) == Ordering::Less;
        let begins_before = |hi: &[u8]| match p.checked_sub(1) {
            Some(before) => ends_before(before, hi),
            None => self.meta().smallest.as_slice() < hi,
        };
        !ends_before(p, lo) && hi.is_none_or(begins_before)
    }

    /// Appends the data blocks of partition `p` that can hold entries of the user keys in some of
    /// `ranges`, which ascend and do not overlap: in key order, each once. A few blocks get the
    /// sequence bounds of the partition.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of the index and the synopsis block.
    ///
    /// [`Error::Io`]: crate::Error::Io
    /// [`Error::Corruption`]: crate::Error::Corruption
    pub fn blocks_between(
        &self,
        p: usize,
        ranges: &[KeyRange<'_>],
        cost: &Cost,
        out: &mut Vec<BlockHint>,
    ) -> Result<()> {
        let Some(part) = self.top().get(p) else {
            return Ok(());
        };
        let bytes = self.index_of(p, part, true, cost)?;
        let before = out.len();
        let hint = |block, (min_seq, max_seq)| BlockHint {
            partition: p,
            block,
            min_seq,
            max_seq,
        };
        // With the sequence bounds of the partition, for now.
        let mut name = || {
            let index = Index::parse(&bytes)?;
            // Where the range before ended: its last block may have entries of this one, too.
            let mut end = 0_usize;
            for (lo, hi) in ranges {
                // A range before the partition, or behind it, is not in its first block, nor in its
                // last.
                if !self.partition_meets(p, lo, *hi) {
                    continue;
                }
                let first = match end.checked_sub(1) {
                    Some(last) => index.find_near(last, lo, MAX_SEQ)?,
                    None => index.find(0, lo, MAX_SEQ)?,
                };
                if first == index.len() {
                    break;
                }
                let new = first.max(end);
                end = match hi {
                    Some(hi) => (index.find_near(first, hi, MAX_SEQ)? + 1).min(index.len()),
                    None => index.len(),
                };
                out.extend((new..end).map(|block| hint(block, (part.min_seq, part.max_seq))));
            }
            Some(())
        };
        name().ok_or_else(|| self.malformed(part.index))?;
        // For one or two, reading the synopsis does not pay.
        let Some(named @ [_, _, _, ..]) = out.get_mut(before..) else {
            return Ok(());
        };
        self.with_synopsis(p, cost, |synopsis| {
            let mut named = named.iter_mut().peekable();
            for (block, bounds) in synopsis.bounds().enumerate() {
                if let Some(named) = named.next_if(|named| named.block == block) {
                    *named = hint(block, bounds);
                }
            }
            Some(())
        })
    }
}
