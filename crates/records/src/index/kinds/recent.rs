//! The recency composite: value, descending sequence number, primary key. The newest records of a
//! value are the first entries of its part of the tree, so a top-K lookup reads as many as it needs
//! and stops. A lookup without limit reads no more than one in the composite index.
//!
//! The key in the tree is the value alone, and an entry is an operand of a tree without a merge
//! operator: the engine keeps all operands of a key, ordered by descending sequence number. So the
//! number is not stored twice, the key filter shows which components have the value, and a walk
//! from the newest component to the oldest gives the entries of a value in order.
//!
//! Compactions drop entries of updated records (same value again) and cancelled entries, as far as
//! their memory allows: [`Cleaning`].

use std::sync::Arc;

use esker_lsm::merge::{
    CompactionFilter, CompactionFilterFactory, Decision, FilteredEntry, ObsoleteWrites,
};
use esker_lsm::read::estimate::{Count, Units};
use esker_lsm::{Kind, RunSink, Seq, TreeOptions};

use crate::error::Result;
use crate::index::bounded_set::BoundedSet;
use crate::index::build::Build;
use crate::index::cost::{Access, AttributeProfile, Figures, Workload, percent};
use crate::index::estimate::ValuePosition;
use crate::index::kind::EntryWrites;
use crate::index::walk::walk;
use crate::index::{
    Attribute, BestCandidates, Entry, IndexEntry, IndexType, Lookup, Range, Recency, VisitPosting,
    Writes,
};

/// The recency composite.
pub(super) struct Recent;

impl IndexType for Recent {
    fn add(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        write(writes, index_entry, Stored::Add(index_entry.key))
    }

    fn cancel(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        write(writes, index_entry, Stored::Cancel(index_entry.key))
    }

    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut BestCandidates,
    ) -> Result<()> {
        match range.point() {
            Some(value) if best.order() == Recency::Newest => {
                newest(lookup, attribute, value, best)
            }
            _ => {
                let (lo, hi) = range.key_bounds();
                let bounds = (lo.as_slice(), hi.as_deref());
                let tree = attribute.index_tree()?;
                walk(
                    lookup,
                    tree,
                    bounds,
                    EntryWrites::One,
                    best,
                    &mut |entry, best| {
                        if let (Kind::Operand, Stored::Add(key)) =
                            (entry.kind, Stored::decode(entry.value))
                        {
                            best.offer(entry.seq, key);
                        }
                        Ok(())
                    },
                )
            }
        }
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        lookup.estimate(attribute, range, ValuePosition::WholeKey, &Operands)
    }

    fn tree_options(&self, versions: usize) -> Option<TreeOptions> {
        Some(TreeOptions {
            filter: Some(Arc::new(Cleaning { versions })),
            ..TreeOptions::default()
        })
    }

    fn is_in_value_order(&self) -> bool {
        true
    }

    fn counts_by_component(&self) -> Option<EntryWrites> {
        Some(EntryWrites::One)
    }

    fn entries_of(
        &self,
        _attribute: &Attribute,
        entry: Entry<'_>,
        visit: &mut VisitPosting<'_>,
    ) -> Result<()> {
        match Stored::decode(entry.stored) {
            Stored::Add(key) => visit(entry.value, key, entry.seq, false),
            Stored::Cancel(key) => visit(entry.value, key, entry.seq, true),
        }
    }

    fn builder(&self) -> Option<Box<dyn Build>> {
        Some(Box::new(Builder::default()))
    }

    fn figures(&self) -> Figures {
        Figures {
            access: Access::Entries,
            write: 1.5,
            lookup: 42.0,
            row: 5.1,
            entry: 0.0,
            bytes: 6.0,
        }
    }

    fn why(&self, work: &Workload, _profile: &AttributeProfile) -> String {
        format!(
            "{} of the operations query it, {} of them for the newest {:.0}, the others for all: entries ordered from newest to oldest serve both",
            percent(work.queries()),
            percent(work.limited),
            work.limit
        )
    }
}

/// Writes each index entry as it arrives.
#[derive(Default)]
struct Builder {
    out: Vec<u8>,
}

impl Build for Builder {
    fn add(
        &mut self,
        value: &[u8],
        key: &[u8],
        seq: Seq,
        sink: &mut RunSink<'_>,
    ) -> esker_lsm::Result<()> {
        self.out.clear();
        Stored::Add(key).encode(&mut self.out);
        sink(value, seq, Kind::Operand, &self.out)
    }
}

/// Offers the newest entries of one value, from the newest component to the oldest, until there are
/// enough.
fn newest(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    value: &[u8],
    best: &mut BestCandidates,
) -> Result<()> {
    let (_, from) = best.span();
    let tree = attribute.index_tree()?;
    let mut walk = lookup.snapshot.walk_from(tree, value, from);
    while let Some(entry) = walk.next_entry()? {
        if best.is_beyond(Recency::Newest.rank(entry.seq)) {
            best.note_skipped();
            break;
        }
        if let Stored::Add(key) = Stored::decode(&entry.value) {
            best.offer(entry.seq, key);
        }
    }
    lookup.index_cost.absorb(walk.cost());
    Ok(())
}

/// The value of an entry of the tree. It adds an index entry for the key of a record, or cancels
/// the older ones of this value and key, because a later write removed the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored<'a> {
    Add(&'a [u8]),
    Cancel(&'a [u8]),
}

/// The first byte of a cancellation.
const CANCEL: u8 = 0;
/// Precedes a key that begins with a byte up to this one.
const ESCAPE: u8 = 1;

impl<'a> Stored<'a> {
    /// Appends the encoded entry.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        let key = match self {
            Stored::Add(key) => {
                if key.first().is_some_and(|first| *first <= ESCAPE) {
                    out.push(ESCAPE);
                }
                key
            }
            Stored::Cancel(key) => {
                out.push(CANCEL);
                key
            }
        };
        out.extend_from_slice(key);
    }

    /// Decodes an entry; any bytes are a valid one.
    #[inline]
    pub(super) fn decode(bytes: &'a [u8]) -> Stored<'a> {
        match bytes.split_first() {
            Some((&CANCEL, key)) => Stored::Cancel(key),
            Some((&ESCAPE, key)) => Stored::Add(key),
            _ => Stored::Add(bytes),
        }
    }
}

/// Entries that each hold one record's key, or cancel one.
pub(super) struct Operands;

impl Count for Operands {
    fn units(&self, _since: Seq, _seq: Seq, kind: Kind, value: &[u8]) -> Units {
        let adds = kind != Kind::Delete && matches!(Stored::decode(value), Stored::Add(_));
        Units {
            counted: u64::from(adds),
            all: 1,
            bytes: 0,
        }
    }
}

/// Adds an entry to the list of the value.
fn write(writes: &mut Writes, index_entry: IndexEntry<'_>, entry: Stored<'_>) -> Result<()> {
    let mut operand = std::mem::take(&mut writes.scratch);
    operand.clear();
    entry.encode(&mut operand);
    let tree = index_entry.attribute.index_tree()?;
    let result = writes.also(Kind::Operand, tree, index_entry.value, &operand);
    writes.scratch = operand;
    result
}

/// The compaction filter that drops entries replaced by a newer entry of the same value and key. It
/// remembers the keys of a value, newest first, in bounded memory. Beyond that, replaced entries
/// may stay, which costs only time and space.
pub(super) struct Cleaning {
    /// The number of entries kept per value and key: as many as versions of a record.
    pub(super) versions: usize,
}

impl CompactionFilterFactory for Cleaning {
    fn begin(&self, obsolete: &ObsoleteWrites) -> Box<dyn CompactionFilter> {
        Box::new(CleaningFilter {
            value: Vec::new(),
            keys: BoundedSet::default(),
            versions: self.versions,
            numbered: Vec::new(),
            obsolete: obsolete.clone(),
        })
    }

    fn may_be_skipped(&self) -> bool {
        true
    }

    fn spans_keys(&self) -> bool {
        // The filter remembers the keys of one value at a time.
        false
    }

    fn writes(&self, entry: FilteredEntry<'_>, show: &mut dyn FnMut(Seq)) -> bool {
        if let Stored::Add(_) = Stored::decode(entry.value) {
            show(entry.seq);
        }
        true
    }

    fn drops_obsolete(&self) -> bool {
        true
    }
}

/// The filter of one compaction.
struct CleaningFilter {
    /// The value of the last entry.
    value: Vec<u8>,
    /// The keys of that value so far; with several versions, each with a number in front.
    keys: BoundedSet,
    versions: usize,
    /// A buffer for a key with its number.
    numbered: Vec<u8>,
    obsolete: ObsoleteWrites,
}

impl CleaningFilter {
    /// True if the key may be kept once more for this value; counts it.
    fn is_wanted(&mut self, key: &[u8]) -> bool {
        if self.versions <= 1 {
            return self.keys.insert(key);
        }
        (0..self.versions as u64).any(|number| {
            self.numbered.clear();
            self.numbered.extend_from_slice(&number.to_be_bytes());
            self.numbered.extend_from_slice(key);
            self.keys.insert(&self.numbered)
        })
    }
}

impl CompactionFilter for CleaningFilter {
    fn decide(
        &mut self,
        entry: FilteredEntry<'_>,
        is_oldest: &mut dyn FnMut() -> bool,
    ) -> Decision {
        if self.value != entry.key {
            self.value.clear();
            self.value.extend_from_slice(entry.key);
            self.keys.clear();
        }
        let (key, cancel) = match Stored::decode(entry.value) {
            Stored::Add(key) => (key, false),
            Stored::Cancel(key) => (key, true),
        };
        // A cancellation is dropped once no older entry is left that it could apply to.
        let is_obsolete = !cancel && self.obsolete.contains(entry.seq);
        if is_obsolete || !self.is_wanted(key) || (cancel && is_oldest()) {
            return Decision::Drop;
        }
        Decision::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_decodes_to_what_was_encoded_for_any_first_byte_of_its_key() {
        for key in [
            &b"\0"[..],
            b"\x01",
            b"\x02",
            b"\0\0",
            b"\x01\0x",
            b"k",
            b"\xff",
        ] {
            for entry in [Stored::Add(key), Stored::Cancel(key)] {
                let mut bytes = Vec::new();
                entry.encode(&mut bytes);
                assert_eq!(Stored::decode(&bytes), entry);
            }
        }
    }

    /// The indices of the entries that a filter keeps.
    fn left(entries: &[(&str, Stored<'_>)], oldest: bool, versions: usize) -> Vec<usize> {
        let mut filter = Cleaning { versions }.begin(&ObsoleteWrites::default());
        let keeps = |(at, (value, entry)): (usize, &(&str, Stored<'_>))| {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            let filtered = FilteredEntry {
                expires: None,
                key: value.as_bytes(),
                seq: (entries.len() - at) as Seq,
                kind: Kind::Operand,
                value: &bytes,
            };
            (filter.decide(filtered, &mut || oldest) == Decision::Keep).then_some(at)
        };
        entries.iter().enumerate().filter_map(keeps).collect()
    }

    #[test]
    fn a_compaction_drops_entries_that_a_newer_one_of_the_same_value_and_key_replaces() {
        use Stored::{Add, Cancel};
        let entries = [
            ("a", Add(b"1")),
            ("a", Cancel(b"2")),
            ("a", Add(b"1")),
            ("a", Add(b"2")),
            ("a", Add(b"3")),
            ("b", Add(b"1")),
            ("b", Add(b"2")),
            ("b", Cancel(b"2")),
        ];
        assert_eq!(left(&entries, false, 1), [0, 1, 4, 5, 6]);
        assert_eq!(left(&entries, true, 1), [0, 4, 5, 6]);
        let thrice = [("a", Add(b"1")), ("a", Add(b"1")), ("a", Add(b"1"))];
        assert_eq!(left(&thrice, true, 2), [0, 1]);
    }
}
