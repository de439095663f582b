//! How many current entries each value of an index has, component by component: nothing is merged,
//! and several threads read a part of the keys each.
//!
//! **Invariant.** Where the obsolete set decides which entries are current, it has each entry that
//! a newer write of its record hides, whichever component has that. So the counts of components
//! add up.

use esker_lsm::{Component, Cost, Cursor, Kind, Seq, SeqSet, Snapshot, TreeId};
use esker_model::definition::IndexKind;
use esker_model::schema::other;

use super::key_cursor::READAHEAD;
use super::threads::{self, KeyRange};
use crate::error::{Error, Result};
use crate::index::{Attribute, Entry, IndexType};
use crate::maintenance::Validity;

/// Bytes of values and their counts in each thread. Beyond them there are too many different values
/// for this to be worth while.
const MOST_BYTES: usize = 2 << 20;

/// A value without its bytes.
const OVERHEAD: usize = size_of::<ValueCount>() + 32;

/// The current entries of a value.
pub(super) struct ValueCount {
    pub(super) value: Vec<u8>,
    pub(super) entries: u64,
    /// The key of a record that has it.
    pub(super) key: Vec<u8>,
}

/// The counts, by value.
pub(super) struct ValueCounts {
    pub(super) values: Vec<ValueCount>,
    /// Entries that were read, and the obsolete ones of them.
    pub(super) read: u64,
    pub(super) obsolete: u64,
}

/// What decides which entries count.
#[derive(Clone, Copy)]
pub(super) struct Current<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) validity: &'a Validity,
    pub(super) expired: Option<&'a SeqSet>,
    /// False in a store without threads.
    pub(super) background: bool,
}

impl Current<'_> {
    #[inline]
    fn is_out(&self, seq: Seq) -> bool {
        self.validity.is_obsolete(seq) || self.expired.is_some_and(|set| set.contains(seq))
    }

    /// True if all entries with numbers from `first` to `last` are current.
    fn has_all(&self, (first, last): (Seq, Seq)) -> bool {
        let has_obsolete = (self.validity.obsolete()).is_some_and(|set| set.meets(first, last));
        let has_expired = self.expired.is_some_and(|set| set.meets(first, last));
        !has_obsolete && !has_expired && last <= self.snapshot.seq()
    }

    /// Counts the entries of each value of an index. None if records may have several values, or
    /// there are very many values, or the index does not allow it.
    pub(super) fn count_values(
        &self,
        attribute: &Attribute,
        memory: usize,
        cost: &Cost,
    ) -> Result<Option<ValueCounts>> {
        // An eager list has all older postings of its value again.
        let Some(index) = attribute
            .index()
            .filter(|_| attribute.kind != IndexKind::Eager && self.validity.is_exact())
        else {
            return Ok(None);
        };
        let tree = attribute.index_tree()?;
        let components = self.snapshot.components(tree);
        let Some(numbers) = Numbers::of(&components, memory) else {
            return Ok(None);
        };
        let hi = other(attribute.ty).map(<[u8]>::to_vec);
        let ranges = threads::ranges(self.background, &components, hi)?;
        let part = Part {
            current: *self,
            attribute,
            index,
            components: &components,
            numbers,
            most: MOST_BYTES.min(memory / ranges.len().max(1)),
        };
        let parts = threads::each(&ranges, &|range| part.count(range));
        let mut counted: Vec<Counted> = Vec::new();
        for part in parts {
            let Some(part) = part? else { return Ok(None) };
            cost.absorb(&part.cost);
            counted.push(part);
        }
        if have_common(&counted) {
            return Ok(None);
        }
        let mut all = ValueCounts {
            values: Vec::new(),
            read: counted.iter().map(|part| part.read).sum(),
            obsolete: counted.iter().map(|part| part.obsolete).sum(),
        };
        let values = counted.into_iter().flat_map(|part| part.values);
        let mut values: Vec<ValueCount> = values.collect();
        values.sort_by(|a, b| a.value.cmp(&b.value));
        values.dedup_by(|next, kept| {
            let is_same = next.value == kept.value;
            if is_same {
                kept.entries += next.entries;
            }
            is_same
        });
        all.values = values;
        Ok(Some(all))
    }

    /// The number of current puts of a tree that has each write once, such as that of the keys.
    /// Tables all of whose entries are current are not read.
    pub(super) fn count_puts(&self, tree: TreeId, cost: &Cost) -> Result<u64> {
        let mut unread = 0;
        let mut components = self.snapshot.components(tree);
        components.retain(|component| {
            let Component::Run(run) = component else {
                return true;
            };
            let id = run.component();
            let is_whole = self.has_all((id.min, id.max));
            if is_whole {
                let metas = run.tables.iter().map(|table| table.meta());
                unread += metas.map(|meta| meta.entries - meta.deletes).sum::<u64>();
            }
            !is_whole
        });
        let ranges = threads::ranges(self.background, &components, None)?;
        let parts = threads::each(&ranges, &|range: &KeyRange| {
            let (mut puts, cost) = (0, self.snapshot.cost());
            for component in &components {
                let one = std::slice::from_ref(component);
                let mut cursor = self.snapshot.entries_in(one, READAHEAD);
                cursor.within(&range.lo, range.hi.as_deref());
                cursor.seek_first()?;
                while cursor.valid() {
                    puts += u64::from(cursor.kind() == Kind::Put && !self.is_out(cursor.seq()));
                    cursor.next()?;
                }
                cost.absorb(&cursor.cost());
            }
            Ok((puts, cost))
        });
        for part in parts {
            let (puts, read) = part?;
            unread += puts;
            cost.absorb(&read);
        }
        Ok(unread)
    }
}

/// The numbers of writes that components may have.
#[derive(Clone, Copy)]
struct Numbers {
    first: Seq,
    words: usize,
}

impl Numbers {
    /// None if a bit for each takes more memory than that, or far more than there are entries.
    fn of(components: &[Component], memory: usize) -> Option<Numbers> {
        let bounds = components.iter().filter_map(|component| match component {
            Component::Memtable(memtable) => memtable.seq_bounds(),
            Component::Run(run) => Some((run.component().min, run.component().max)),
        });
        let (first, last) = bounds
            .reduce(|(min, max), (first, last)| (min.min(first), max.max(last)))
            .unwrap_or((0, 0));
        let entries: u64 = components.iter().map(Component::entries).sum();
        let words = (last - first) / 64 + 1;
        let is_dense = words <= entries.saturating_add(1024);
        let fits = words.saturating_mul(8) <= memory as u64;
        (is_dense && fits).then_some(Numbers {
            first,
            words: words as usize,
        })
    }
}

/// What the threads share.
struct Part<'a> {
    current: Current<'a>,
    attribute: &'a Attribute,
    index: &'a dyn IndexType,
    components: &'a [Component],
    numbers: Numbers,
    most: usize,
}

/// What a thread has counted.
struct Counted {
    /// By component, then by value.
    values: Vec<ValueCount>,
    bytes: usize,
    /// A bit for each write that has an entry.
    seen: Vec<u64>,
    has_repeated: bool,
    read: u64,
    obsolete: u64,
    cost: Cost,
}

impl Part<'_> {
    /// None if a write has two values, or there are too many values.
    fn count(&self, range: &KeyRange) -> Result<Option<Counted>> {
        let snapshot = self.current.snapshot;
        let mut counted = Counted {
            values: Vec::new(),
            bytes: 0,
            seen: vec![0; self.numbers.words],
            has_repeated: false,
            read: 0,
            obsolete: 0,
            cost: snapshot.cost(),
        };
        for component in self.components {
            let one = std::slice::from_ref(component);
            let mut cursor = snapshot.entries_in(one, READAHEAD);
            cursor.within(&range.lo, range.hi.as_deref());
            cursor.seek_first()?;
            let mut is_first = true;
            while cursor.valid() {
                if cursor.kind() != Kind::Delete {
                    let stored = (cursor.key(), cursor.seq(), cursor.value());
                    self.add(stored, &mut is_first, &mut counted)?;
                    if counted.has_repeated || counted.bytes > self.most {
                        return Ok(None);
                    }
                }
                cursor.next()?;
            }
            counted.cost.absorb(&cursor.cost());
        }
        Ok(Some(counted))
    }

    /// Counts the entries in an entry of the tree.
    #[inline]
    fn add(
        &self,
        (key, seq, stored): (&[u8], Seq, &[u8]),
        is_first: &mut bool,
        counted: &mut Counted,
    ) -> Result<()> {
        // No value is the beginning of another one.
        let last = counted.values.last().filter(|_| !*is_first);
        let known = last.filter(|last| key.starts_with(&last.value));
        let (value, rest) = match known {
            Some(last) => key.split_at(last.value.len()),
            None => self.index.split(self.attribute.ty, key).ok_or_else(|| {
                let path = &self.attribute.path;
                Error::damaged(format!("index of {path}: malformed key"))
            })?,
        };
        let mut is_known = known.is_some();
        let entry = Entry {
            value,
            rest,
            seq,
            stored,
        };
        self.index
            .entries_of(self.attribute, entry, &mut |value, key, seq, is_cancel| {
                counted.read += 1;
                if is_cancel {
                    return Ok(());
                }
                if self.current.is_out(seq) {
                    counted.obsolete += 1;
                    return Ok(());
                }
                counted.note(seq, self.numbers);
                if !is_known {
                    (is_known, *is_first) = (true, false);
                    counted.bytes += value.len() + key.len() + OVERHEAD;
                    counted.values.push(ValueCount {
                        value: value.to_vec(),
                        entries: 0,
                        key: key.to_vec(),
                    });
                }
                if let Some(last) = counted.values.last_mut() {
                    last.entries += 1;
                }
                Ok(())
            })
    }
}

impl Counted {
    #[inline]
    fn note(&mut self, seq: Seq, numbers: Numbers) {
        let at = seq.wrapping_sub(numbers.first);
        let bit = 1 << (at % 64);
        // A list has older postings than its tree has entries, after a bulk load of records.
        match self.seen.get_mut((at / 64) as usize) {
            Some(word) => {
                self.has_repeated |= *word & bit != 0;
                *word |= bit;
            }
            None => self.has_repeated = true,
        }
    }
}

/// True if a write is in two parts.
fn have_common(parts: &[Counted]) -> bool {
    let Some((first, others)) = parts.split_first() else {
        return false;
    };
    let mut seen = first.seen.clone();
    for part in others {
        for (seen, word) in seen.iter_mut().zip(&part.seen) {
            if *seen & word != 0 {
                return true;
            }
            *seen |= word;
        }
    }
    false
}
