//! A walk over the entries of an index tree in some key ranges, newest (or oldest) parts first.
//! Tables, partitions and blocks wait in a queue, ordered by the best sequence number that each can
//! contain. The walk ends when enough is found and the head of the queue cannot contain a better
//! entry.

use std::sync::Arc;

use esker_lsm::memtable::Memtable;
use esker_lsm::table::{BlockHint, KeyRange, Table, TableMeta, entries_of_blocks};
use esker_lsm::version::TableFile;
use esker_lsm::{Component, Cursor, Kind, MAX_SEQ, Seq, TreeId};

use super::best_candidates::BestCandidates;
use super::kind::{Attribute, EntryWrites};
use super::lookup::Lookup;
use super::queue::Queue;
use super::walk_end::VisitError;
use crate::error::Result;

/// The most blocks that are read together.
const MAX_BLOCKS: usize = 64;

/// A stored entry, which may be superseded or a delete.
pub struct TreeEntry<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The sequence number of the write that created it.
    pub seq: Seq,
    /// Its kind: a put, a delete or an operand.
    pub kind: Kind,
    /// Its value.
    pub value: &'a [u8],
}

impl Lookup<'_> {
    /// Passes to `visit` the entries of the attribute's tree between two keys that may be relevant
    /// for `best`, the best first as far as tables and blocks show it. They include superseded
    /// entries and deletes.
    ///
    /// # Errors
    /// Any read error, and any error of `visit`.
    pub fn walk(
        &self,
        attribute: &Attribute,
        bounds: (&[u8], Option<&[u8]>),
        entry_writes: EntryWrites,
        best: &mut BestCandidates,
        visit: &mut dyn FnMut(TreeEntry<'_>, &mut BestCandidates) -> Result<()>,
    ) -> Result<()> {
        walk(
            self,
            attribute.index_tree()?,
            bounds,
            entry_writes,
            best,
            visit,
        )
    }
}

/// Visits the entries of a key range that may have a candidate for `best`.
pub(super) fn walk(
    lookup: &Lookup<'_>,
    tree: TreeId,
    range: KeyRange<'_>,
    entry_writes: EntryWrites,
    best: &mut BestCandidates,
    visit: &mut dyn FnMut(TreeEntry<'_>, &mut BestCandidates) -> Result<()>,
) -> Result<()> {
    walk_where(lookup, tree, &[range], &|_| true, entry_writes, best, visit)
}

/// As [`walk`], for several ranges, ascending and disjoint, so that a block is read once; and only
/// in tables that `keep` admits.
pub(super) fn walk_where<E: VisitError>(
    lookup: &Lookup<'_>,
    tree: TreeId,
    ranges: &[KeyRange<'_>],
    keep: &dyn Fn(&TableFile) -> bool,
    entry_writes: EntryWrites,
    best: &mut BestCandidates,
    visit: &mut dyn FnMut(TreeEntry<'_>, &mut BestCandidates) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    debug_assert!(
        ranges.is_sorted_by(|(_, hi), (lo, _)| hi.is_some_and(|hi| hi <= *lo)),
        "ranges are ascending and disjoint"
    );
    let Some(((lo, _), (_, hi))) = ranges.first().zip(ranges.last()) else {
        return Ok(());
    };
    let mut walk = Walk {
        lookup,
        ranges,
        entry_writes,
        queue: Queue::new(),
        visit,
    };
    for component in lookup.snapshot.components(tree) {
        match component {
            Component::Memtable(memtable) => {
                // Without bounds, it has no entry that the snapshot sees.
                if let Some(bounds) = memtable.seq_bounds() {
                    walk.push(bounds, Unit::Memtable(memtable), best);
                }
            }
            Component::Run(run) => {
                let meta = TableFile::meta;
                // Tables of a spatially partitioned run are in the order of their smallest keys,
                // too.
                let inside = (run.tables.iter())
                    .take_while(|file| hi.is_none_or(|hi| meta(file).smallest.as_slice() < hi))
                    .filter(|file| meta(file).largest.as_slice() >= *lo)
                    .filter(|file| meets_some(ranges, meta(file)) && keep(file));
                for file in inside {
                    let bounds = (meta(file).min_seq, meta(file).max_seq);
                    walk.push(bounds, Unit::File(file.clone()), best);
                }
            }
        }
    }
    walk.run(best)
}

/// True if a table overlaps one of the ranges. It may also lie between them.
fn meets_some(ranges: &[KeyRange<'_>], table: &TableMeta) -> bool {
    let ended = |(_, hi): &KeyRange<'_>| hi.is_some_and(|hi| hi <= table.smallest.as_slice());
    let next = ranges.get(ranges.partition_point(ended));
    next.is_some_and(|(lo, _)| *lo <= table.largest.as_slice())
}

/// A part of the tree that waits to be searched.
enum Unit {
    Memtable(Arc<Memtable>),
    /// A table that may not be open.
    File(Arc<TableFile>),
    /// A partition of a table, by its index.
    Partition(Arc<Table>, usize),
    Block(Arc<Table>, BlockHint),
}

struct Walk<'a, 'v, E> {
    lookup: &'a Lookup<'a>,
    /// Ascending and disjoint.
    ranges: &'a [KeyRange<'a>],
    entry_writes: EntryWrites,
    queue: Queue<Unit>,
    visit: &'v mut dyn FnMut(TreeEntry<'_>, &mut BestCandidates) -> std::result::Result<(), E>,
}

impl<E: VisitError> Walk<'_, '_, E> {
    /// The span of the writes that entries with numbers from `min` to `max` represent.
    fn span(&self, (min, max): (Seq, Seq)) -> (Seq, Seq) {
        match self.entry_writes {
            EntryWrites::One => (min, max),
            EntryWrites::OneAndOlder => (0, max),
        }
    }

    /// Queues a unit whose entries have numbers in `bounds`.
    fn push(&mut self, bounds: (Seq, Seq), unit: Unit, best: &mut BestCandidates) {
        self.queue.push(self.span(bounds), unit, best);
    }

    fn run(&mut self, best: &mut BestCandidates) -> std::result::Result<(), E> {
        while let Some(head) = self.queue.pop(best) {
            match head.item {
                Unit::Memtable(memtable) => self.memtable(&memtable, best)?,
                Unit::File(file) => {
                    let table = file.table()?;
                    let mut next = 0;
                    for (lo, hi) in self.ranges {
                        let partitions = table.partitions_between(lo, *hi);
                        for partition in partitions.start.max(next)..partitions.end {
                            let bounds = table.partition_bounds(partition);
                            self.push(bounds, Unit::Partition(table.clone(), partition), best);
                        }
                        next = partitions.end.max(next);
                    }
                }
                Unit::Partition(table, partition) => self.partition(&table, partition, best)?,
                Unit::Block(table, hint) => self.blocks(&[(table, hint)], best)?,
            }
        }
        Ok(())
    }

    fn memtable(
        &mut self,
        memtable: &Memtable,
        best: &mut BestCandidates,
    ) -> std::result::Result<(), E> {
        let mut cursor = memtable.cursor();
        for (lo, hi) in self.ranges {
            cursor.seek(lo, MAX_SEQ)?;
            while cursor.valid() && hi.is_none_or(|hi| cursor.key() < hi) {
                self.lookup.index_cost.check()?;
                if cursor.seq() <= self.lookup.snapshot.seq() {
                    let entry = TreeEntry {
                        key: cursor.key(),
                        seq: cursor.seq(),
                        kind: cursor.kind(),
                        value: cursor.value(),
                    };
                    (self.visit)(entry, best)?;
                }
                cursor.next()?;
            }
        }
        Ok(())
    }

    /// Queues the blocks of a partition. If so many entries are wanted that the order of blocks
    /// does not matter, or so many units wait, reads the blocks at once: neighbours together,
    /// without queueing them.
    fn partition(
        &mut self,
        table: &Arc<Table>,
        partition: usize,
        best: &mut BestCandidates,
    ) -> std::result::Result<(), E> {
        let mut hints = Vec::new();
        let (ranges, cost) = (self.ranges, self.lookup.index_cost);
        table.blocks_between(partition, ranges, cost, &mut hints)?;
        if !self.queue.is_full() && best.wanted() <= MAX_BLOCKS * hints.len() {
            for hint in hints {
                let bounds = (hint.min_seq, hint.max_seq);
                self.push(bounds, Unit::Block(table.clone(), hint), best);
            }
            return Ok(());
        }
        let mut wanted = Vec::new();
        for some in hints.chunks(MAX_BLOCKS) {
            wanted.clear();
            for hint in some {
                let (min, max) = self.span((hint.min_seq, hint.max_seq));
                if best.admits_span(min, max) {
                    wanted.push((table.clone(), *hint));
                } else {
                    best.note_skipped();
                }
            }
            self.blocks(&wanted, best)?;
        }
        Ok(())
    }

    fn blocks(
        &mut self,
        wanted: &[(Arc<Table>, BlockHint)],
        best: &mut BestCandidates,
    ) -> std::result::Result<(), E> {
        for mut entries in entries_of_blocks(wanted, self.lookup.index_cost)? {
            let mut valid = entries.advance()?;
            for (lo, hi) in self.ranges {
                if valid && entries.key() < *lo {
                    valid = entries.seek(lo)?;
                }
                while valid && hi.is_none_or(|hi| entries.key() < hi) {
                    let entry = TreeEntry {
                        key: entries.key(),
                        seq: entries.seq(),
                        kind: entries.kind(),
                        value: entries.value(),
                    };
                    (self.visit)(entry, best)?;
                    valid = entries.advance()?;
                }
                if !valid {
                    break;
                }
            }
        }
        Ok(())
    }
}
