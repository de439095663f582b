//! Building an index of existing records. Their index entries are collected in a tree of the engine
//! (the *staging tree*), in sorted pieces, which the tree merges. Then one pass over it writes the
//! oldest tables of the index.
//!
//! ```text
//! staging tree, key       value
//! 00                      progress of the collection: see `StagingProgress`
//! 01 head key             sequence numbers (8 bytes each, big-endian),    types built by key
//!                         newest first: one per version with the value
//! 01 head inverted key    empty; `inverted` is the number complemented   types built by age
//! ```
//!
//! `head` is the beginning of the index's keys for a value; for all built-in types it is the value
//! (`IndexType::head`).

use std::cmp::Reverse;
use std::sync::Arc;

use esker_lsm::coding::{Misplaced, Own, Reader, put_bytes, put_varint};
use esker_lsm::{Cost, Cursor, Kind, RunSink, Seq, Snapshot, TreeId};
use esker_model::range::after_prefix;

use super::kind::{Attribute, IndexType};
use crate::error::{Error, Result};

/// The key of the progress.
const PROGRESS: u8 = 0;
/// The first byte of the keys of index entries.
const ENTRY: u8 = 1;

/// The progress of collecting index entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StagingProgress {
    /// Pieces in the staging tree. They use the sequence numbers from 1 on.
    pub(crate) pieces: Seq,
    /// Records read, and index entries found in them.
    pub(crate) records: u64,
    pub(crate) index_entries: u64,
    /// True if all records were read.
    pub(crate) complete: bool,
    /// The key of the last record read, at which the collection resumes: `None` at the beginning
    /// and once all records were read.
    pub(crate) last: Option<Vec<u8>>,
}

impl StagingProgress {
    /// Reads the progress from the staging tree.
    pub(crate) fn read(snapshot: &Snapshot, staging: TreeId) -> Result<StagingProgress> {
        match snapshot.get(staging, &[PROGRESS], &Cost::default())? {
            Some(stored) => {
                StagingProgress::decode(stored.seq, &stored.value).ok_or_else(malformed)
            }
            None => Ok(StagingProgress::default()),
        }
    }

    /// Reads the value of [`StagingProgress::encode`], which the piece `pieces` wrote; `None` if it
    /// is malformed.
    fn decode(pieces: Seq, value: &[u8]) -> Option<StagingProgress> {
        let mut input = Reader::new(value);
        let (records, index_entries) = (input.varint()?, input.varint()?);
        let complete = match input.varint()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let last = input.bytes()?;
        input.is_empty().then(|| StagingProgress {
            pieces,
            records,
            index_entries,
            complete,
            last: (!complete).then(|| last.to_vec()),
        })
    }

    /// The value under the key [`PROGRESS`].
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.records);
        put_varint(&mut out, self.index_entries);
        put_varint(&mut out, u64::from(self.complete));
        // Empty at the end, where nothing is left to resume.
        put_bytes(&mut out, self.last.as_deref().unwrap_or(&[]));
        out
    }
}

/// The error for a malformed staging tree.
fn malformed() -> Error {
    Error::damaged("the entries of an index that is being built are malformed")
}

/// Index entries that are sorted together.
pub(crate) struct StagedPiece {
    index: Arc<dyn IndexType>,
    /// [`IndexType::is_built_by_key`].
    by_key: bool,
    /// The keys of all entries, concatenated.
    bytes: Vec<u8>,
    entries: Vec<PieceEntry>,
}

/// An entry of a piece.
struct PieceEntry {
    /// The entry's key in the bytes of the piece.
    start: usize,
    end: usize,
    /// The number of the record's write.
    seq: Seq,
}

impl StagedPiece {
    /// An empty piece for the index of this attribute.
    ///
    /// # Errors
    /// [`Misplaced`] if the attribute is not indexed.
    pub(crate) fn new(attribute: &Attribute) -> Result<StagedPiece> {
        let index = (attribute.index.clone()).ok_or_else(|| Misplaced::here())?;
        Ok(StagedPiece {
            by_key: index.is_built_by_key(),
            index,
            bytes: Vec::new(),
            entries: Vec::new(),
        })
    }

    /// Adds the index entry of the value and the key of a record, which is the write `seq`.
    pub(crate) fn add(&mut self, value: &[u8], key: &[u8], seq: Seq) {
        let start = self.bytes.len();
        self.bytes.push(ENTRY);
        self.index.head(value, &mut self.bytes);
        if !self.by_key {
            self.bytes.extend_from_slice(&(!seq).to_be_bytes());
        }
        self.bytes.extend_from_slice(key);
        let end = self.bytes.len();
        self.entries.push(PieceEntry { start, end, seq });
    }

    /// Its size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<PieceEntry>()
    }

    /// Writes the progress and then the piece, sorted.
    pub(crate) fn write(
        &mut self,
        progress: &StagingProgress,
        sink: &mut RunSink<'_>,
    ) -> esker_lsm::Result<()> {
        let bytes = &self.bytes;
        let key = |entry: &PieceEntry| bytes.own(entry.start..entry.end);
        self.entries
            .sort_unstable_by(|a, b| (key(a), Reverse(a.seq)).cmp(&(key(b), Reverse(b.seq))));
        let piece = progress.pieces;
        sink(&[PROGRESS], piece, Kind::Put, &progress.encode())?;
        let mut value = Vec::new();
        for same in self.entries.chunk_by(|a, b| key(a) == key(b)) {
            value.clear();
            if self.by_key {
                same.iter()
                    .for_each(|entry| value.extend_from_slice(&entry.seq.to_be_bytes()));
            }
            let newest = same.first().ok_or_else(|| Misplaced::here())?;
            sink(key(newest), piece, Kind::Put, &value)?;
        }
        Ok(())
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}

/// Receives value, key and sequence number of an index entry; an error ends the walk.
type VisitStaged<'v, E> = dyn FnMut(&[u8], &[u8], Seq) -> std::result::Result<(), E> + 'v;

/// Visits each collected index entry, or those of the value `only`: value, key, sequence number.
/// The order is by value, then by key or from the newest to the oldest, as the index type requires.
///
/// # Errors
/// Any read error, and any error of `visit`.
pub(crate) fn each_staged<E: From<Error> + From<esker_lsm::Error>>(
    snapshot: &Snapshot,
    staging: TreeId,
    attribute: &Attribute,
    only: Option<&[u8]>,
    readahead: usize,
    visit: &mut VisitStaged<'_, E>,
) -> std::result::Result<(), E> {
    let index = attribute.required_index()?;
    let by_key = index.is_built_by_key();
    let mut cursor = snapshot.cursor(staging, readahead);
    let mut begin = vec![ENTRY];
    if let Some(value) = only {
        index.head(value, &mut begin);
    }
    cursor.within(&begin, after_prefix(&begin).as_deref());
    cursor.seek_first()?;
    while cursor.valid() {
        // Keys in these bounds begin with `ENTRY`.
        let index_entry = cursor.key().own(1..);
        let parts = index.split(attribute.ty, index_entry);
        let (value, rest) = parts.ok_or_else(malformed)?;
        if by_key {
            let (numbers, left) = cursor.value().as_chunks();
            if numbers.is_empty() || !left.is_empty() {
                return Err(malformed().into());
            }
            for seq in numbers {
                visit(value, rest, Seq::from_be_bytes(*seq))?;
            }
        } else {
            let (inverted, key) = rest.split_first_chunk().ok_or_else(malformed)?;
            visit(value, key, !Seq::from_be_bytes(*inverted))?;
        }
        cursor.next()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_decodes_from_what_was_encoded_alone() {
        for (complete, last) in [(false, Some(b"key".to_vec())), (true, None)] {
            let progress = StagingProgress {
                pieces: 3,
                records: 7,
                index_entries: 300,
                complete,
                last,
            };
            let mut bytes = progress.encode();
            assert_eq!(StagingProgress::decode(3, &bytes), Some(progress));
            let shorter = bytes.own(..bytes.len() - 1);
            assert_eq!(StagingProgress::decode(3, shorter), None);
            bytes.push(0);
            assert_eq!(StagingProgress::decode(3, &bytes), None, "more follows");
        }
        // Neither complete nor incomplete.
        assert_eq!(StagingProgress::decode(3, &[7, 9, 2, 0]), None);
    }
}
