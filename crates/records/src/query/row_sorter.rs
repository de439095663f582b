//! Sorts rows by rank within bounded memory: the first ones in a heap if few are wanted, otherwise
//! in runs in a file in the store's folder ([`esker_lsm::sort`]), which is unlinked when it is
//! created, so that no crash leaves it. A heap that outgrows its memory continues as such runs.

use std::vec;

use esker_lsm::coding::{Reader, put_bytes, put_varint};
use esker_lsm::sort::{Sorted, Sorter};
use esker_lsm::{Group, Seq};
use esker_model::query::First;

use crate::error::{Error, Result};

/// The approximate memory of a row in the heap, beside its bytes.
const ROW_OVERHEAD: usize = 96;

/// The rest of a row in the heap, beside its rank.
pub(super) struct Item {
    payload: Vec<u8>,
    /// The bytes of the row.
    bytes: usize,
}

/// Sorts rows by rank.
pub(super) struct RowSorter {
    /// The first rows, as long as these fit in memory.
    first: Option<First<Item>>,
    /// Bytes of the heap.
    held: usize,
    /// The most bytes that the heap may have.
    memory: usize,
    sorter: Sorter,
    /// The rows in the sorter. Their numbers there are of no use, since no ranks are equal.
    sorted: Seq,
    /// A buffer for an entry of the sorter.
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
            sorted: 0,
            entry: Vec::new(),
        }
    }

    /// True if a row of this rank may be among the first.
    pub(super) fn admits(&self, rank: &[u8]) -> bool {
        self.first.as_ref().is_none_or(|first| first.admits(rank))
    }

    /// Adds a row, whose rank no other row has.
    pub(super) fn add(&mut self, rank: &[u8], payload: &[u8]) -> Result<()> {
        let Some(first) = &mut self.first else {
            return self.sort(rank, payload);
        };
        let bytes = rank.len() + payload.len() + ROW_OVERHEAD;
        self.held += bytes;
        let item = Item {
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
                self.sort(&rank, &item.payload)?;
            }
        }
        Ok(())
    }

    /// Adds a row to the sorter: its rank, its payload and the length of the rank, so that entries
    /// are in the order of ranks.
    fn sort(&mut self, rank: &[u8], payload: &[u8]) -> Result<()> {
        self.entry.clear();
        self.entry.extend_from_slice(rank);
        self.entry.extend_from_slice(payload);
        let length = rank.len() as u32;
        self.entry.extend_from_slice(&length.to_be_bytes());
        self.sorted += 1;
        Ok(self.sorter.add(&self.entry, self.sorted)?)
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
    /// Those of the heap, each with its rank.
    Memory(vec::IntoIter<(Vec<u8>, Item)>),
    /// Those of the sorter.
    Sorted(Sorted),
}

/// A row: the payload is up to the caller.
pub(super) struct Row {
    pub(super) rank: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

/// The payload of a row that is a record.
pub(super) struct RecordPayload<'a> {
    pub(super) key: &'a [u8],
    pub(super) seq: Seq,
    /// The stored record; empty in an answer of keys.
    pub(super) stored: &'a [u8],
}

impl<'a> RecordPayload<'a> {
    /// Replaces `out` by the encoded payload.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        put_bytes(out, self.key);
        put_varint(out, self.seq);
        out.extend_from_slice(self.stored);
    }

    /// The payload in these bytes; `None` if they are malformed.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<RecordPayload<'a>> {
        let mut input = Reader::new(bytes);
        let (key, seq) = (input.bytes()?, input.varint()?);
        Some(RecordPayload {
            key,
            seq,
            stored: input.rest(),
        })
    }
}

impl SortedRows {
    /// The next row; `None` at the end.
    ///
    /// # Errors
    /// Any error of reading the file.
    pub(super) fn next(&mut self) -> Result<Option<Row>> {
        match self {
            SortedRows::Memory(rows) => Ok(rows.next().map(|(rank, item)| Row {
                rank,
                payload: item.payload,
            })),
            SortedRows::Sorted(sorted) => {
                let Some((entry, _)) = sorted.next()? else {
                    return Ok(None);
                };
                let damaged = || Error::damaged("a sorted row is malformed");
                let (entry, length) = entry.split_last_chunk::<4>().ok_or_else(damaged)?;
                let length = u32::from_be_bytes(*length) as usize;
                let (rank, payload) = entry.split_at_checked(length).ok_or_else(damaged)?;
                Ok(Some(Row {
                    rank: rank.to_vec(),
                    payload: payload.to_vec(),
                }))
            }
        }
    }
}
