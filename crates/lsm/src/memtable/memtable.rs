//! The entries, their filter and the attribute maps of one tree.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::filter::KeyFilter;
use super::skiplist::{MemCursor, SkipLists};
use crate::attributes::Extractor;
use crate::coding::Own;
use crate::entry::{Kind, Seq, Timed};

/// The list of the entries; the list of attribute slot `i` is `1 + i`.
const ENTRIES: usize = 0;

/// Entries added to the attribute maps at a time: the longest that a writer waits for a reader.
const CATCH_UP: usize = 1024;

/// An entry returned by [`Memtable::get`]. The bytes lie in the memtable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemEntry<'a> {
    /// The user key.
    pub key: &'a [u8],
    /// The sequence number.
    pub seq: Seq,
    /// Its kind.
    pub kind: Kind,
    /// The value; empty for a `Delete` that was inserted without one.
    pub value: &'a [u8],
}

/// Entries in memory, with statistics. Shared between one writer at a time and any number of
/// readers. An empty memtable without attributes takes less than 1 KiB.
pub struct Memtable {
    lists: Arc<SkipLists>,
    /// For trees with point lookups.
    filter: Option<Box<KeyFilter>>,
    extractor: Option<Arc<dyn Extractor>>,
    attributes: usize,
    // Written under the lists' lock, read without.
    len: AtomicUsize,
    operands: AtomicUsize,
    min_seq: AtomicU64,
    max_seq: AtomicU64,
    /// Number of entries that are not in the attribute maps yet.
    deferred: AtomicUsize,
}

impl Memtable {
    /// An empty memtable with a key filter. With an `extractor` it keeps an ordered map for each of
    /// its attributes.
    pub fn new(extractor: Option<Arc<dyn Extractor>>) -> Memtable {
        Memtable::counted(extractor, true, Arc::default())
    }

    /// As [`Memtable::new`], with or without a key filter; memory is counted in `total`, too,
    /// because each write needs the sum over thousands of memtables.
    pub(crate) fn counted(
        extractor: Option<Arc<dyn Extractor>>,
        filtered: bool,
        total: Arc<AtomicUsize>,
    ) -> Memtable {
        let attributes = extractor.as_ref().map_or(0, |e| e.ids().len());
        Memtable {
            lists: Arc::new(SkipLists::new(1 + attributes, total)),
            filter: filtered.then(Box::default),
            extractor,
            attributes,
            len: AtomicUsize::new(0),
            operands: AtomicUsize::new(0),
            min_seq: AtomicU64::new(Seq::MAX),
            max_seq: AtomicU64::new(0),
            deferred: AtomicUsize::new(0),
        }
    }

    /// Inserts an entry. Key, value and sequence number must be within the limits of
    /// [`crate::entry`]. Returns false, and does nothing, when `(key, seq)` exists already. O(log
    /// n), and O(1) for ascending keys.
    ///
    /// Readers may see the entry before this returns; the sequence number of their snapshot hides
    /// it.
    pub fn insert(&self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> bool {
        let mut inserter = self.lists.lock();
        // No other thread writes these four, so no read-modify-write is needed. The bounds come
        // first: they must hold for every entry that a reader can find.
        if seq > self.max_seq.load(Ordering::Relaxed) {
            self.max_seq.store(seq, Ordering::Relaxed);
        }
        if seq < self.min_seq.load(Ordering::Relaxed) {
            self.min_seq.store(seq, Ordering::Relaxed);
        }
        let stands_for = Timed::of(kind, value).0;
        let defer = self.attributes > 0 && stands_for == Kind::Put;
        if let Some(filter) = &self.filter {
            let bytes = filter.add(key);
            self.lists.count(bytes);
        }
        let new = inserter.insert(ENTRIES, key, seq, kind, value, defer);
        if !new {
            return false;
        }
        self.len
            .store(self.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if stands_for == Kind::Operand {
            let operands = self.operands.load(Ordering::Relaxed);
            self.operands.store(operands + 1, Ordering::Relaxed);
        }
        if defer {
            let deferred = self.deferred.load(Ordering::Relaxed) + 1;
            self.deferred.store(deferred, Ordering::Release);
        }
        true
    }

    /// Adds all entries inserted before this call to the attribute maps. Works in batches, in the
    /// order of the values, which makes the insertions cheap.
    fn complete_attribute_maps(&self) {
        let Some(extractor) = &self.extractor else {
            return;
        };
        let mut left = self.deferred.load(Ordering::Acquire);
        while left > 0 {
            let mut inserter = self.lists.lock();
            let nodes = inserter.resume(CATCH_UP);
            if nodes.is_empty() {
                return;
            }
            left = left.saturating_sub(nodes.len());
            let (mut bytes, mut index_entries) = (Vec::new(), Vec::new());
            for node in &nodes {
                let (_, _, value) = Timed::of(node.kind(), node.value());
                extractor.extract(node.key(), value, &mut |slot, attribute| {
                    if self.has_attribute(slot) {
                        index_entries.push((
                            slot,
                            bytes.len()..bytes.len() + attribute.len(),
                            *node,
                        ));
                        bytes.extend_from_slice(attribute);
                    }
                });
            }
            let value = |range: &Range<usize>| bytes.own(range.clone());
            index_entries.sort_by(|a, b| (a.0, value(&a.1)).cmp(&(b.0, value(&b.1))));
            for (slot, range, node) in &index_entries {
                // An entry that emits a value twice is in the map once.
                let (list, seq) = (1 + slot, node.seq());
                inserter.insert(list, value(range), seq, Kind::Put, node.key(), false);
            }
            // Under the lock, as the additions are.
            let deferred = self.deferred.load(Ordering::Relaxed);
            self.deferred
                .store(deferred.saturating_sub(nodes.len()), Ordering::Release);
        }
    }

    /// False when it certainly has no entry of `key`: reads one or a few lines of the filter.
    /// Without a filter, true.
    #[inline]
    pub fn may_contain(&self, key: &[u8]) -> bool {
        let filter = self.filter.as_ref();
        filter.is_none_or(|filter| filter.may_contain(key))
    }

    /// The newest entry of `key` with a sequence number up to `seq`. O(log n), O(1) for most absent
    /// keys.
    #[inline]
    pub fn get(&self, key: &[u8], seq: Seq) -> Option<MemEntry<'_>> {
        if !self.may_contain(key) {
            return None;
        }
        let node = self.lists.seek(ENTRIES, key, seq)?;
        (node.key() == key).then(|| MemEntry {
            key: node.key(),
            seq: node.seq(),
            kind: node.kind(),
            value: node.value(),
        })
    }

    /// True when there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of entries, without those of the attribute maps.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// The number of entries that are merge operands.
    pub fn operands(&self) -> usize {
        self.operands.load(Ordering::Relaxed)
    }

    /// Bytes allocated for entries and attribute maps, used or not: at most about twice what they
    /// use, and for large memtables little more.
    pub fn memory(&self) -> usize {
        self.lists.memory()
    }

    /// The smallest and the largest sequence number, or `None` when there are no entries.
    pub fn seq_bounds(&self) -> Option<(Seq, Seq)> {
        let min = self.min_seq.load(Ordering::Relaxed);
        let max = self.max_seq.load(Ordering::Relaxed);
        (min <= max).then_some((min, max))
    }

    /// A cursor over the entries.
    pub fn cursor(&self) -> MemCursor {
        MemCursor::new(Arc::clone(&self.lists), ENTRIES)
    }

    /// The slot of an attribute, if the memtable was created with it.
    pub fn slot_of(&self, attribute_id: u32) -> Option<usize> {
        let ids = self.extractor.as_ref()?.ids();
        ids.iter().position(|id| *id == attribute_id)
    }

    /// True when the memtable keeps an ordered map of the attribute in `slot`.
    pub fn has_attribute(&self, slot: usize) -> bool {
        slot < self.attributes
    }

    /// A cursor over the ordered map of the attribute in `slot`, by attribute value ascending and
    /// sequence number descending: its `key` is the attribute value, its `seq` the record's, its
    /// `value` the record's user key. It has every inserted version of a record; the caller checks
    /// whether it is still the newest. Empty when there is no such map.
    ///
    /// Brings the maps up to date first: O(log n) for each entry inserted since the last call.
    pub fn attribute_cursor(&self, slot: usize) -> MemCursor {
        self.complete_attribute_maps();
        MemCursor::new(Arc::clone(&self.lists), slot.saturating_add(1 + ENTRIES))
    }
}
