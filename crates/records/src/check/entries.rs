//! Compares the entries that an index has with the entries that the records require, by sums.

use std::hash::{DefaultHasher, Hash, Hasher};

use esker_lsm::coding::Own;
use esker_lsm::{Component, Expected, Kind, LookupOptions, Seq, Snapshot};
use esker_model::record::RecordRef;

use super::obsolete::KnownObsolete;
use crate::catalog::Layout;
use crate::error::Result;
use crate::index::{Attribute, VisitEntry};

/// The maximum number of index entries whose keys are looked up together.
const MAX_BATCH: usize = 4096;

/// The maximum bytes of these entries.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// A sum over index entries that does not depend on their order: equal sets have equal sums;
/// different sets have equal sums with a chance of 1 in 2^64.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntrySum {
    pub(super) index_entries: u64,
    hash: u64,
}

impl EntrySum {
    /// Adds an index entry.
    pub(super) fn add(&mut self, value: &[u8], key: &[u8], seq: Seq) {
        let mut hasher = DefaultHasher::new();
        (value, key, seq).hash(&mut hasher);
        self.index_entries += 1;
        self.hash = self.hash.wrapping_add(hasher.finish());
    }

    /// Adds the index entries of a record.
    pub(super) fn add_values(
        &mut self,
        attribute: &Attribute,
        record: &RecordRef<'_>,
        key: &[u8],
        seq: Seq,
    ) {
        attribute.each_token(record, &mut |token| self.add(token, key, seq));
    }
}

/// The entries that an index has.
#[derive(Default)]
pub(super) struct FoundEntries {
    /// The entries that the data confirms.
    pub(super) current: EntrySum,
    /// The number of obsolete entries that the obsolete set should contain but does not.
    pub(super) unknown: u64,
}

/// Compares the index entries from `each` with the data: an entry is current if the newest entry of
/// its key in the data is the record that wrote it. Holds at most a batch of entries in memory.
pub(super) fn current_entries(
    snapshot: &Snapshot,
    layout: &Layout,
    known: &KnownObsolete,
    each: impl FnOnce(&mut VisitEntry<'_>) -> Result<()>,
) -> Result<FoundEntries> {
    let mut check = EntryCheck {
        snapshot,
        data: snapshot.components(layout.data),
        known,
        batch: Vec::new(),
        bytes: 0,
        found: FoundEntries::default(),
    };
    each(&mut |value, key, seq| {
        check.bytes += key.len() + value.len();
        check.batch.push(FoundEntry {
            key: key.to_vec(),
            seq,
            value: value.to_vec(),
        });
        if check.batch.len() < MAX_BATCH && check.bytes < MAX_BATCH_BYTES {
            return Ok(());
        }
        check.flush()
    })?;
    check.flush()?;
    Ok(check.found)
}

/// An index entry that is to be compared. Ordered by key.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FoundEntry {
    key: Vec<u8>,
    seq: Seq,
    value: Vec<u8>,
}

/// The comparison of an index with the data.
struct EntryCheck<'a> {
    snapshot: &'a Snapshot,
    data: Vec<Component>,
    known: &'a KnownObsolete,
    batch: Vec<FoundEntry>,
    bytes: usize,
    found: FoundEntries,
}

impl EntryCheck<'_> {
    /// Compares the entries of the batch, by one lookup of their keys.
    fn flush(&mut self) -> Result<()> {
        self.batch.sort();
        let keys: Vec<&[u8]> = self
            .batch
            .iter()
            .map(|entry| entry.key.as_slice())
            .collect();
        let (cost, options) = (self.snapshot.cost(), LookupOptions::default());
        let mut newest = vec![None; keys.len()];
        self.snapshot
            .lookup(&self.data, &keys, Expected::Unknown, options, &cost)
            .with_deletes()
            .visit_all(&mut |at, found| {
                *newest.own_mut(at) = Some((found.seq, found.kind));
            })?;
        for (FoundEntry { key, seq, value }, newest) in self.batch.iter().zip(newest) {
            if newest == Some((*seq, Kind::Put)) {
                self.found.current.add(value, key, *seq);
            } else if self.known.misses(*seq, newest.map(|(newest, _)| newest)) {
                self.found.unknown += 1;
            }
        }
        self.batch.clear();
        self.bytes = 0;
        Ok(())
    }
}
