//! Sorting keys that may be more than fit in memory: full pieces are written aside as tables, and merged when
//! they are read.

use lsm::{Component, Cost, Cursor, EntryCursor, Group, Kind, Seq, Snapshot};

use super::READAHEAD;
use crate::error::Result;

/// Gathers keys with sequence numbers.
pub(super) struct Sorter<'a> {
    group: &'a Group,
    /// Bytes at which a piece is full.
    memory: usize,
    bytes: Vec<u8>,
    /// Where each key begins and ends, and its number.
    entries: Vec<(usize, usize, Seq)>,
    pieces: Vec<Component>,
    count: u64,
}

impl<'a> Sorter<'a> {
    pub(super) fn new(group: &'a Group, memory: usize) -> Sorter<'a> {
        Sorter {
            group,
            memory,
            bytes: Vec::new(),
            entries: Vec::new(),
            pieces: Vec::new(),
            count: 0,
        }
    }

    pub(super) fn add(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.entries.push((start, self.bytes.len(), seq));
        self.count += 1;
        let size = self.bytes.len() + self.entries.len() * size_of::<(usize, usize, Seq)>();
        match size < self.memory {
            true => Ok(()),
            false => self.spill(),
        }
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> u64 {
        self.count
    }

    /// Pieces that went to disk.
    pub(super) fn spilled(&self) -> u64 {
        self.pieces.len() as u64
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let entries = &mut self.entries;
        entries
            .sort_unstable_by(|a, b| lsm::entry::compare(slot(bytes, a), a.2, slot(bytes, b), b.2));
        // A record has an index entry for each of its values.
        entries.dedup_by(|a, b| a.2 == b.2 && slot(bytes, a) == slot(bytes, b));
    }

    fn spill(&mut self) -> Result<()> {
        self.sort();
        let (bytes, entries) = (&self.bytes, &self.entries);
        let piece = self.group.write_aside(&mut |sink| {
            for entry in entries {
                sink(slot(bytes, entry), entry.2, Kind::Put, &[])?;
            }
            Ok(())
        })?;
        self.pieces.push(piece);
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }

    /// The keys ascending, of one key the largest number first. The same pair may come twice.
    pub(super) fn finish(mut self, snapshot: &Snapshot) -> Result<Sorted> {
        if self.pieces.is_empty() {
            self.sort();
            let (bytes, entries) = (self.bytes, self.entries);
            return Ok(Sorted::Memory(bytes, entries.into_iter()));
        }
        self.spill()?;
        let mut cursor = snapshot.entries_in(&self.pieces, READAHEAD);
        cursor.seek_first()?;
        Ok(Sorted::Spilled {
            cursor: Box::new(cursor),
            begun: false,
        })
    }
}

fn slot<'b>(bytes: &'b [u8], entry: &(usize, usize, Seq)) -> &'b [u8] {
    bytes.get(entry.0..entry.1).unwrap_or_default()
}

/// Keys in order.
pub(super) enum Sorted {
    Memory(Vec<u8>, std::vec::IntoIter<(usize, usize, Seq)>),
    /// Keeps the pieces' files until it is dropped.
    Spilled {
        cursor: Box<EntryCursor>,
        begun: bool,
    },
}

impl Sorted {
    /// The next key, lent until the next call.
    pub(super) fn next(&mut self) -> Result<Option<(&[u8], Seq)>> {
        match self {
            Sorted::Memory(bytes, entries) => {
                Ok(entries.next().map(|entry| (slot(bytes, &entry), entry.2)))
            }
            Sorted::Spilled { cursor, begun } => {
                if std::mem::replace(begun, true) {
                    cursor.next()?;
                }
                Ok(cursor.valid().then(|| (cursor.key(), cursor.seq())))
            }
        }
    }

    /// What it has cost so far.
    pub(super) fn cost(&self) -> Cost {
        match self {
            Sorted::Memory(..) => Cost::default(),
            Sorted::Spilled { cursor, .. } => cursor.cost(),
        }
    }
}
