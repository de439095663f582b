//! How much of a table lies between two keys, as far as its index tells: without a look at data
//! blocks.

use super::block::common_prefix;
use super::bytes::IndexBytes;
use super::format::Handle;
use super::found::BlockHint;
use super::index::{Index, IndexEntry, Partition};
use super::reader::Table;
use crate::coding::{Own, head};
use crate::cost::Cost;
use crate::entry::{MAX_SEQ, Seq};
use crate::error::Result;

/// Entries, and the bytes of their blocks before compression.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of entries.
    pub entries: u64,
    /// Bytes of their blocks.
    pub bytes: u64,
}

impl Amount {
    fn of(entry: &IndexEntry<'_>) -> Amount {
        Amount {
            entries: u64::from(entry.entries),
            bytes: u64::from(entry.handle.raw),
        }
    }

    /// Adds another amount.
    pub fn add(&mut self, more: Amount) {
        self.entries = self.entries.saturating_add(more.entries);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// A data block in which a range begins or ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// Which block.
    pub hint: BlockHint,
    /// All of it.
    pub amount: Amount,
    /// The share of it that is in the range if its keys, read as numbers, lie evenly: from 0 to 1.
    pub share: f64,
}

/// What a table has between two keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extent {
    /// The blocks that are in the range from end to end. A block of one entry at an end is taken
    /// for one where that seems so.
    pub whole: Amount,
    /// The first of all blocks that have something of the range.
    pub first: Option<BlockHint>,
    /// The blocks that are not: at most two.
    pub edges: Vec<Edge>,
    /// Of a range that lies in two blocks and fills neither: the key and the sequence number
    /// between them.
    pub middle: Option<(Vec<u8>, Seq)>,
}

impl Extent {
    /// True when the table has nothing of the range.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

/// Where `at` lies between two keys, read as numbers: 0 at the first and before it, 1 at the second
/// and behind it.
pub fn part_before(lo: &[u8], hi: &[u8], at: &[u8]) -> f64 {
    if at <= lo {
        return 0.0;
    }
    if at >= hi {
        return 1.0;
    }
    let common = common_prefix(lo, hi);
    let number = |key: &[u8]| head(key.own(common..)) as f64;
    let width = number(hi) - number(lo);
    if width > 0.0 {
        ((number(at) - number(lo)) / width).clamp(0.0, 1.0)
    } else {
        0.5
    }
}

/// A data block, and the index block that knows it.
struct Place<'t> {
    p: usize,
    part: &'t Partition,
    bytes: IndexBytes<'t>,
    block: usize,
}

/// The keys around a block: what it has lies behind the first, and not behind the second.
struct Around {
    before: Vec<u8>,
    last: Vec<u8>,
    last_seq: Seq,
}

impl Table {
    /// What the table has of the user keys in `[lo, hi)`; `hi` of `None` is past the last key.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corruption`] of up to two index blocks.
    ///
    /// [`Error::Io`]: crate::Error::Io
    /// [`Error::Corruption`]: crate::Error::Corruption
    pub fn extent(&self, lo: &[u8], hi: Option<&[u8]>, cost: &Cost) -> Result<Extent> {
        let meta = self.meta();
        let (smallest, largest) = (meta.smallest.as_slice(), meta.largest.as_slice());
        if hi.is_some_and(|hi| hi <= lo || hi <= smallest) || lo > largest {
            return Ok(Extent::default());
        }
        // Where the table begins, or ends, inside of the range, its block there is no edge.
        let (begins, ends) = (lo <= smallest, hi.is_none_or(|hi| hi > largest));
        let Some(first) = self.place_of(Some(lo).filter(|_| !begins), !begins, cost)? else {
            return Ok(Extent::default());
        };
        let Some(last) = self.place_of(hi.filter(|_| !ends), true, cost)? else {
            return Ok(Extent::default());
        };
        self.between(&first, &last, begins, ends, lo, hi)
            .ok_or_else(|| self.malformed(first.part.index))
    }

    /// The block in which `key` would be; without a key the last, or the first.
    fn place_of(
        &self,
        key: Option<&[u8]>,
        or_last: bool,
        cost: &Cost,
    ) -> Result<Option<Place<'_>>> {
        let top = self.top();
        let last = top.len().saturating_sub(1);
        let p = match (key, or_last) {
            (Some(key), _) => top.find(0, key, MAX_SEQ).min(last),
            (None, true) => last,
            (None, false) => 0,
        };
        let Some(part) = top.get(p) else {
            return Ok(None);
        };
        let bytes = self.index_of(p, part, true, cost)?;
        let block = || {
            let index = Index::parse(&bytes)?;
            let last = index.len().checked_sub(1)?;
            match (key, or_last) {
                (Some(key), _) => Some(index.find(0, key, MAX_SEQ)?.min(last)),
                (None, true) => Some(last),
                (None, false) => Some(0),
            }
        };
        let block = block().ok_or_else(|| self.malformed(part.index))?;
        Ok(Some(Place {
            p,
            part,
            bytes,
            block,
        }))
    }

    fn between(
        &self,
        first: &Place<'_>,
        last: &Place<'_>,
        begins: bool,
        ends: bool,
        lo: &[u8],
        hi: Option<&[u8]>,
    ) -> Option<Extent> {
        let (from, to) = (Index::parse(&first.bytes)?, Index::parse(&last.bytes)?);
        let mut extent = Extent {
            first: Some(hint(first)),
            ..Extent::default()
        };
        let is_one = (first.p, first.block) == (last.p, last.block);
        let mut ended = Vec::new();
        for (place, index, is_whole) in [
            (first, &from, begins && (!is_one || ends)),
            (last, &to, ends),
        ] {
            if is_one && !ended.is_empty() {
                break;
            }
            let entry = index.entry(place.block)?;
            let around = self.around(place, index, &entry)?;
            let is_inside = |key: &[u8]| lo <= key && hi.is_none_or(|hi| key < hi);
            // A large entry is a block, and in the range or not: by the separator behind it, or, as
            // separators are as short as they can be, by the one before it.
            let is_large = entry.entries == 1
                && (is_inside(&around.last)
                    || !ended.is_empty()
                        && around.before.len() > lo.len()
                        && is_inside(&around.before));
            if is_whole || is_large {
                extent.whole.add(Amount::of(&entry))
            } else {
                let below = |key: &[u8]| part_before(&around.before, &around.last, key);
                extent.edges.push(Edge {
                    hint: hint(place),
                    amount: Amount::of(&entry),
                    share: (hi.map_or(1.0, below) - below(lo)).clamp(0.0, 1.0),
                });
            }
            ended.push(around);
        }
        if is_one {
            return Some(extent);
        }
        self.add_between(first, last, &from, &to, &mut extent.whole)?;
        if let ([_, _], Some(middle)) = (extent.edges.as_slice(), ended.into_iter().next())
            && extent.whole.entries == 0
        {
            extent.middle = Some((middle.last, middle.last_seq));
        }
        Some(extent)
    }

    fn around(
        &self,
        place: &Place<'_>,
        index: &Index<'_>,
        entry: &IndexEntry<'_>,
    ) -> Option<Around> {
        let before = match (place.block.checked_sub(1), place.p.checked_sub(1)) {
            (Some(block), _) => index.key_of(&index.entry(block)?),
            (None, Some(p)) => self.top().key(p).to_vec(),
            (None, None) => self.meta().smallest.clone(),
        };
        let is_last = place.block + 1 == index.len() && place.p + 1 == self.partitions();
        let last = if is_last {
            self.meta().largest.clone()
        } else {
            index.key_of(entry)
        };
        Some(Around {
            before,
            last,
            last_seq: entry.seq,
        })
    }

    /// Adds the blocks behind the first and before the last. Of partitions between, whose indexes
    /// are not read, the bytes are as the others' are compressed.
    fn add_between(
        &self,
        first: &Place<'_>,
        last: &Place<'_>,
        from: &Index<'_>,
        to: &Index<'_>,
        sum: &mut Amount,
    ) -> Option<()> {
        let mut add = |index: &Index<'_>, blocks: std::ops::Range<usize>| {
            for block in blocks {
                sum.add(Amount::of(&index.entry(block)?));
            }
            Some(())
        };
        if first.p == last.p {
            return add(from, first.block + 1..last.block);
        }
        add(from, first.block + 1..from.len())?;
        add(to, 0..last.block)?;
        if first.p + 1 == last.p {
            return Some(());
        }
        let (mut raw, mut sealed) = (0, 0);
        for index in [from, to] {
            for block in 0..index.len() {
                let handle = index.entry(block)?.handle;
                raw += u64::from(handle.raw);
                sealed += handle.sealed_len() as u64;
            }
        }
        let mut between = Amount::default();
        let mut before = first.part;
        for p in first.p + 1..last.p {
            let part = self.top().get(p)?;
            between.add(Amount {
                entries: part.entries,
                bytes: part.index.offset.saturating_sub(end_of(before)),
            });
            before = part;
        }
        let bytes = between.bytes as f64 * raw as f64 / sealed.max(1) as f64;
        sum.add(Amount {
            bytes: bytes as u64,
            ..between
        });
        Some(())
    }
}

fn hint(place: &Place<'_>) -> BlockHint {
    BlockHint {
        partition: place.p,
        block: place.block,
        min_seq: place.part.min_seq,
        max_seq: place.part.max_seq,
    }
}

/// Where the blocks of the next partition begin.
fn end_of(part: &Partition) -> u64 {
    let filter = match part.filter {
        Handle::NONE => 0,
        filter => filter.end(),
    };
    part.index.end().max(part.synopsis.end()).max(filter)
}
