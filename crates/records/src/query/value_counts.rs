//! How many current entries each value of an index has, counted component by component: no entries
//! are merged, and each of several threads reads a range of keys.
//!
//! **Invariant.** If [`Validity::is_exact`], the number of every replaced write with an entry in
//! the index tree is in the obsolete set. So components can be counted one by one. Entries of a
//! table are not looked up in the set if it has no number in the table's range of numbers. A
//! memtable has no such range, since writers fill it meanwhile; that of posting lists begins at 0,
//! since the number of a list is that of its newest posting.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::read::Part;
use esker_lsm::table::ReadOptions;
use esker_lsm::version::TableFile;
use esker_lsm::{Component, Cost, Cursor, Kind, Seq, SeqSet, Snapshot, TreeId};
use esker_model::schema::stand_in;

use super::key_cursor::READAHEAD;
use super::parallel::{self, KeyRange, MIN_ENTRIES, Threads};
use crate::error::{Error, Result};
use crate::index::{Attribute, Entry, EntryWrites, IndexType};
use crate::maintenance::Validity;

/// The most bytes of counts in each thread: with more different values a walk in their order is
/// cheaper.
const MAX_BYTES: usize = 2 << 20;

/// Bytes of a [`ValueCount`] besides its value and key.
const OVERHEAD: usize = size_of::<ValueCount>() + 32;

/// As [`MIN_ENTRIES`], for a tree of posting lists, which have many postings each.
const MIN_LISTS: u64 = MIN_ENTRIES / 64;

/// The current entries of a value.
pub(super) struct ValueCount {
    pub(super) value: Vec<u8>,
    pub(super) entries: u64,
    /// The key of a record that has it.
    pub(super) key: Vec<u8>,
}

impl ValueCount {
    fn bytes(&self) -> usize {
        self.value.len() + self.key.len() + OVERHEAD
    }
}

/// Sorts counts by value, and adds up those of each value.
fn add_up(values: &mut Vec<ValueCount>) {
    values.sort_by(|a, b| a.value.cmp(&b.value));
    values.dedup_by(|next, kept| {
        let is_same = next.value == kept.value;
        if is_same {
            kept.entries += next.entries;
        }
        is_same
    });
}

/// The counts, by value.
pub(super) struct ValueCounts {
    pub(super) values: Vec<ValueCount>,
    /// The number of entries that were read.
    pub(super) read: u64,
    /// Of these, obsolete entries.
    pub(super) obsolete: u64,
}

/// Decides which entries count.
#[derive(Clone, Copy)]
pub(super) struct CurrentFilter<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) validity: &'a Validity,
    pub(super) expired: Option<&'a SeqSet>,
    pub(super) threads: Threads,
}

impl CurrentFilter<'_> {
    /// True if the write is obsolete or expired.
    #[inline]
    fn hides(&self, seq: Seq) -> bool {
        self.validity.is_obsolete(seq) || self.expired.is_some_and(|set| set.contains(seq))
    }

    /// True if all writes with numbers from `first` to `last` are current.
    fn admits_all(&self, first: Seq, last: Seq) -> bool {
        let has_obsolete = (self.validity.obsolete()).is_some_and(|set| set.meets(first, last));
        let has_expired = self.expired.is_some_and(|set| set.meets(first, last));
        !has_obsolete && !has_expired && last <= self.snapshot.seq()
    }

    /// Counts the entries of each value of an index. `None` if a record has several values, if the
    /// counts take more than `memory` bytes, or if the entries of components of this index do not
    /// add up.
    ///
    /// # Errors
    /// Any read error, and damage if an entry is malformed.
    pub(super) fn count_values(
        &self,
        attribute: &Attribute,
        memory: usize,
        cost: &Cost,
    ) -> Result<Option<ValueCounts>> {
        let index = attribute.index().filter(|_| self.validity.is_exact());
        let Some((index, entry_writes)) =
            index.and_then(|index| Some((index, index.counts_by_component()?)))
        else {
            return Ok(None);
        };
        let has_lists = entry_writes == EntryWrites::OneAndOlder;
        let min_entries = if has_lists { MIN_LISTS } else { MIN_ENTRIES };
        let components = self.snapshot.components(attribute.index_tree()?);
        let hi = stand_in(attribute.ty).map(<[u8]>::to_vec);
        let ranges = parallel::ranges(self.threads, &components, min_entries, hi)?;
        // One share more, for the writes that the threads have seen together.
        let share = memory / (ranges.len() + 1);
        let Some(span) = SeqSpan::of(&components, has_lists, share / 2) else {
            return Ok(None);
        };
        let task = CountTask {
            filter: *self,
            attribute,
            index,
            components: &components,
            has_lists,
            span,
            max_bytes: MAX_BYTES.min(share / 2),
            is_unsuitable: AtomicBool::new(false),
        };
        let mut counted = Vec::with_capacity(ranges.len());
        for of_range in parallel::each(&ranges, &|range| task.count(range)) {
            counted.push(of_range?);
        }
        counted
            .iter()
            .for_each(|of_range| cost.absorb(&of_range.cost));
        if task.is_unsuitable.load(Relaxed) || share_a_write(&counted) {
            return Ok(None);
        }
        let (read, obsolete) = (
            counted.iter().map(|of_range| of_range.read).sum(),
            counted.iter().map(|of_range| of_range.obsolete).sum(),
        );
        let of_ranges = counted.into_iter().flat_map(|of_range| of_range.values);
        let mut values: Vec<ValueCount> = of_ranges.collect();
        add_up(&mut values);
        Ok(Some(ValueCounts {
            values,
            read,
            obsolete,
        }))
    }

    /// The number of current puts in the primary-key index, if the obsolete set has every replaced
    /// one. Runs all of whose entries are current are counted by their metadata.
    ///
    /// # Errors
    /// Any read error.
    pub(super) fn count_keys(&self, tree: TreeId, cost: &Cost) -> Result<u64> {
        let mut puts = 0;
        let mut components = Vec::new();
        for component in self.snapshot.components(tree) {
            match &component {
                Component::Run(run)
                    if self.admits_all(run.component().min, run.component().max) =>
                {
                    for table in run.tables.iter() {
                        puts += puts_of(table)?;
                    }
                }
                _ => components.push(component),
            }
        }
        let ranges = parallel::ranges(self.threads, &components, MIN_ENTRIES, None)?;
        let count = |range: &KeyRange| {
            let (mut puts, cost) = (0, self.snapshot.cost());
            for component in &components {
                let one = std::slice::from_ref(component);
                let mut cursor = self.snapshot.entries_in(one, READAHEAD);
                cursor.within(&range.lo, range.hi.as_deref());
                cursor.seek_first()?;
                while cursor.valid() {
                    puts += u64::from(cursor.kind() == Kind::Put && !self.hides(cursor.seq()));
                    cursor.next()?;
                }
                cost.absorb(&cursor.cost());
            }
            Ok((puts, cost))
        };
        for of_range in parallel::each(&ranges, &count) {
            let (more, read) = of_range?;
            puts += more;
            cost.absorb(&read);
        }
        Ok(puts)
    }
}

/// The number of puts in a table of keys, by its metadata.
fn puts_of(table: &TableFile) -> Result<u64> {
    let meta = table.meta();
    (meta.entries.checked_sub(meta.deletes)).ok_or_else(|| {
        let number = meta.number;
        Error::damaged(format!("table {number} has more deletions than entries"))
    })
}

/// The numbers of writes that components may have.
#[derive(Clone, Copy)]
struct SeqSpan {
    first: Seq,
    /// Words of a bit for each number.
    words: usize,
}

impl SeqSpan {
    /// `None` if no component has an entry, or if a bit for each takes more than `memory` bytes.
    /// Lists may have postings of any age.
    fn of(components: &[Component], has_lists: bool, memory: usize) -> Option<SeqSpan> {
        let bounds = components.iter().filter_map(|component| match component {
            Component::Memtable(memtable) => memtable.seq_bounds(),
            Component::Run(run) => Some((run.component().min, run.component().max)),
        });
        let (first, last) =
            bounds.reduce(|(min, max), (first, last)| (min.min(first), max.max(last)))?;
        let first = if has_lists { 0 } else { first };
        // Where metadata is wrong, writes are outside of the span: then nothing is counted by it.
        let words = usize::try_from(last.saturating_sub(first) / 64 + 1).ok()?;
        let fits = words <= memory / size_of::<u64>();
        fits.then_some(SeqSpan { first, words })
    }
}

/// The task of counting an index, shared by the threads.
struct CountTask<'a> {
    filter: CurrentFilter<'a>,
    attribute: &'a Attribute,
    index: &'a dyn IndexType,
    components: &'a [Component],
    /// True if entries of the tree have older postings than their numbers say.
    has_lists: bool,
    span: SeqSpan,
    /// The most bytes of counts in each thread.
    max_bytes: usize,
    /// Set if the entries cannot be counted component by component: all threads end then.
    is_unsuitable: AtomicBool,
}

/// What is read of a part of a component.
struct PartBounds<'a> {
    /// The end of the range of keys.
    hi: Option<&'a [u8]>,
    /// False if all entries are current.
    hides_some: bool,
}

/// The counts of one thread.
struct Counted {
    /// True if the range may end among the keys of the last value.
    is_cut: bool,
    /// By part of a component, then by value.
    values: Vec<ValueCount>,
    /// The place of the first value of the part that is being read.
    first_of_part: usize,
    /// The bytes of the counts.
    bytes: usize,
    span: SeqSpan,
    /// A bit for each write that has an entry.
    seen: Vec<u64>,
    /// True if a write has several entries.
    has_repeated: bool,
    read: u64,
    obsolete: u64,
    cost: Cost,
}

impl CountTask<'_> {
    /// Counts the entries in a range of keys. The counts are of no use once the task is unsuitable.
    fn count(&self, range: &KeyRange) -> Result<Counted> {
        let mut counted = Counted {
            is_cut: false,
            values: Vec::new(),
            first_of_part: 0,
            bytes: 0,
            span: self.span,
            seen: vec![0; self.span.words],
            has_repeated: false,
            read: 0,
            obsolete: 0,
            cost: self.filter.snapshot.cost(),
        };
        for component in self.components {
            for part in component.parts(&range.lo, range.hi.as_deref()) {
                self.count_part(&part, range, &mut counted)?;
                if self.is_unsuitable.load(Relaxed) {
                    return Ok(counted);
                }
            }
        }
        Ok(counted)
    }

    /// Adds the entries that a part of a component has in the range, unless the task becomes
    /// unsuitable.
    fn count_part(&self, part: &Part, range: &KeyRange, counted: &mut Counted) -> Result<()> {
        let (first, last) = part.seq_bounds();
        let first = if self.has_lists { 0 } else { first };
        let is_table = matches!(part, Part::Table(_));
        let bounds = PartBounds {
            hi: range.hi.as_deref(),
            hides_some: !is_table || !self.filter.admits_all(first, last),
        };
        let options = ReadOptions {
            fill_cache: false,
            readahead: READAHEAD,
        };
        let mut cursor = part.cursor(options, &counted.cost);
        counted.first_of_part = counted.values.len();
        cursor.seek(&range.lo, esker_lsm::MAX_SEQ)?;
        while cursor.valid() && !self.is_unsuitable.load(Relaxed) {
            let known = counted.known_value(cursor.key());
            if counted.is_behind(&bounds, cursor.key(), known) {
                break;
            }
            self.add(&cursor, known, &bounds, counted)?;
            let is_full = counted.bytes > self.max_bytes && !counted.compact();
            if counted.has_repeated || is_full {
                self.is_unsuitable.store(true, Relaxed);
            }
            cursor.next()?;
        }
        counted.cost.absorb(&cursor.cost());
        Ok(())
    }

    /// Counts the entries in an entry of the tree whose key begins with `known` bytes of the last
    /// value.
    #[inline]
    fn add(
        &self,
        stored: &impl Cursor,
        known: Option<usize>,
        bounds: &PartBounds<'_>,
        counted: &mut Counted,
    ) -> Result<()> {
        let is_visible = !bounds.hides_some || stored.seq() <= self.filter.snapshot.seq();
        if !is_visible || stored.kind() == Kind::Delete {
            return Ok(());
        }
        let key = stored.key();
        let (value, rest) = match known {
            Some(length) => key.split_at(length),
            None => self.index.split(self.attribute.ty, key).ok_or_else(|| {
                let path = &self.attribute.path;
                Error::damaged(format!("index of {path}: malformed key"))
            })?,
        };
        let mut is_known = known.is_some();
        let entry = Entry {
            value,
            rest,
            seq: stored.seq(),
            stored: stored.value(),
        };
        self.index
            .entries_of(self.attribute, entry, &mut |value, key, seq, is_cancel| {
                counted.read += 1;
                if is_cancel {
                    return Ok(());
                }
                if bounds.hides_some && self.filter.hides(seq) {
                    counted.obsolete += 1;
                    return Ok(());
                }
                counted.mark_seen(seq);
                if !is_known {
                    is_known = true;
                    counted.begin(bounds, value, key);
                }
                let last = counted.values.last_mut().ok_or_else(|| Misplaced::here())?;
                last.entries += 1;
                Ok(())
            })
    }
}

impl Counted {
    /// The length of the last value, if the key begins with it: no value is the beginning of
    /// another one.
    #[inline]
    fn known_value(&self, key: &[u8]) -> Option<usize> {
        match self.values.own(self.first_of_part..).last() {
            Some(last) if key.starts_with(&last.value) => Some(last.value.len()),
            _ => None,
        }
    }

    /// True if the key is at the end of the range or behind it. All keys of a value are on the same
    /// side, except for the value with which the end begins.
    #[inline]
    fn is_behind(&self, bounds: &PartBounds<'_>, key: &[u8], known: Option<usize>) -> bool {
        let is_decided = known.is_some() && !self.is_cut;
        !is_decided && bounds.hi.is_some_and(|hi| key >= hi)
    }

    /// Adds up the counts of each value; false if that leaves more than half of the bytes.
    fn compact(&mut self) -> bool {
        let before = self.bytes;
        add_up(&mut self.values);
        self.first_of_part = self.values.len();
        self.bytes = self.values.iter().map(ValueCount::bytes).sum();
        self.bytes <= before / 2
    }

    /// Begins to count a value.
    fn begin(&mut self, bounds: &PartBounds<'_>, value: &[u8], key: &[u8]) {
        let begun = ValueCount {
            value: value.to_vec(),
            entries: 0,
            key: key.to_vec(),
        };
        self.bytes += begun.bytes();
        self.is_cut = bounds.hi.is_some_and(|hi| hi.starts_with(value));
        self.values.push(begun);
    }

    /// Notes that a write has an entry.
    #[inline]
    fn mark_seen(&mut self, seq: Seq) {
        let at = seq.wrapping_sub(self.span.first);
        let bit = 1 << (at % 64);
        match self.seen.get_mut((at / 64) as usize) {
            Some(word) => {
                self.has_repeated |= *word & bit != 0;
                *word |= bit;
            }
            // Nothing shows whether a write outside of the span is repeated.
            None => self.has_repeated = true,
        }
    }
}

/// True if a write has entries in two ranges.
fn share_a_write(counted: &[Counted]) -> bool {
    let Some((first, others)) = counted.split_first() else {
        return false;
    };
    let mut seen = first.seen.clone();
    for other in others {
        debug_assert_eq!(seen.len(), other.seen.len(), "all ranges have one span");
        for (seen, word) in seen.iter_mut().zip(&other.seen) {
            if *seen & word != 0 {
                return true;
            }
            *seen |= word;
        }
    }
    false
}

#[cfg(test)]
#[path = "value_counts_tests.rs"]
mod tests;
