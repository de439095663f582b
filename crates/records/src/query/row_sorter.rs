//! Sorts rows by rank within bounded memory: the first ones in a heap if few are wanted, otherwise
//! in runs in a file in the store's folder ([`esker_lsm::sort`]), which is removed when it is
//! created.

use std::vec;

use esker_lsm::sort::{Sorted, Sorter};
use esker_lsm::{Group, Seq};
use esker_model::query::First;

use crate::error::{Error, Result};

/// The memory of a row in the heap beside its bytes, about.
const ROW: usize = 96;

/// What belongs to a rank.
pub(super) struct Item {
    seq: Seq,
    payload: Vec<u8>,
    /// The bytes of the row.
    bytes: usize,
}

/// Sorts rows by rank.
pub(super) struct RowSorter {
    /// The first rows, as long as these fit in memory.
    first: Option<First<Item>>,
    /// Bytes of the heap, and the most that it may have.
    held: usize,
    memory: usize,
    sorter: Sorter,
    entry: Vec<u8>,
}

impl RowSorter {
    /// A sorter that holds about `memory` bytes, for the first `most` rows.
    pub(super) fn new(group: &Group, memory: usize, most: Option<usize>) -> RowSorter {
        let fs = group.options().fs.clone();
        RowSorter {
            first: most.map(First::new),
            held: 0,
            memory: memory / 2,
            sorter: Sorter::new(fs, group.dir(), memory / 2),
            entry: Vec::new(),
        }
    }

    /// True if a row of this rank may be among the first.
    pub(super) fn admits(&self, rank: &[u8]) -> bool {
        self.first.as_ref().is_none_or(|first| first.admits(rank))
    }

    /// Adds a row, whose rank no other row has.
    pub(super) fn add(&mut self, rank: &[u8], payload: &[u8], seq: Seq) -> Result<()> {
        let Some(first) = &mut self.first else {
            return self.sort(rank, payload, seq);
        };
        let bytes = rank.len() + payload.len() + ROW;
        self.held += bytes;
        let item = Item {
            seq,
            payload: payload.to_vec(),
            bytes,
        };
        if let Some(dropped) = first.add(rank, item) {
            self.held -= dropped.bytes;
        }
        if self.held > self.memory
            && let Some(first) = self.first.take()
        {
            for (rank, item) in first.finish() {
                self.sort(&rank, &item.payload, item.seq)?;
            }
        }
        Ok(())
    }

    fn sort(&mut self, rank: &[u8], payload: &[u8], seq: Seq) -> Result<()> {
        self.entry.clear();
        self.entry.extend_from_slice(rank);
        self.entry.extend_from_slice(payload);
        let length = rank.len() as u32;
        self.entry.extend_from_slice(&length.to_be_bytes());
        Ok(self.sorter.add(&self.entry, seq)?)
    }

    /// The rows in order.
    pub(super) fn finish(self) -> Result<SortedRows> {
        Ok(match self.first {
            Some(first) => SortedRows::Memory(first.finish().into_iter()),
            None => SortedRows::Sorted(self.sorter.finish()?),
        })
    }
}

/// Sorted rows.
pub(super) enum SortedRows {
    Memory(vec::IntoIter<(Vec<u8>, Item)>),
    Sorted(Sorted),
}

/// A row.
pub(super) struct Row {
    pub(super) rank: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) seq: Seq,
}

impl SortedRows {
    /// The next row.
    pub(super) fn next(&mut self) -> Result<Option<Row>> {
        match self {
            SortedRows::Memory(rows) => Ok(rows.next().map(|(rank, item)| Row {
                rank,
                payload: item.payload,
                seq: item.seq,
            })),
            SortedRows::Sorted(sorted) => {
                let Some((entry, seq)) = sorted.next()? else {
                    return Ok(None);
                };
                let damaged = || Error::damaged("a sorted row is malformed");
                let (entry, length) = entry.split_last_chunk::<4>().ok_or_else(damaged)?;
                let length = u32::from_be_bytes(*length) as usize;
                let (rank, payload) = entry.split_at_checked(length).ok_or_else(damaged)?;
                Ok(Some(Row {
                    rank: rank.to_vec(),
                    payload: payload.to_vec(),
                    seq,
                }))
            }
        }
    }
}
