//! The embedded index (LevelDB++ section 3): it writes nothing besides the data. Tables have a zone
//! map and a value filter per block, partitions and files have a zone map, memtables an ordered
//! map. The fingerprint index differs in the value filters: its tables have one map from
//! fingerprints of values to blocks, which is probed once per value, not once per block.
//!
//! A lookup searches best first. Files, then partitions (unless a map gives the blocks), then
//! blocks wait in a queue, ordered by the best sequence number that each can contain. The best unit
//! is opened, and its parts that pass the synopsis are queued. The search ends when the K best are
//! found and the head of the queue cannot contain a better one. (The papers stop at the end of a
//! level, which gives wrong answers: levels are ordered by time for each key, not between keys.)
//! While the queue is full, the blocks of a part are searched at once, whatever their order:
//! candidates may be offered in any order.

use std::sync::Arc;

use esker_lsm::attributes::Summary;
use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::entry::MAX_SEQ;
use esker_lsm::memtable::Memtable;
use esker_lsm::synopsis::ValueRange;
use esker_lsm::table::{BlockEntries, BlockHint, Table, entries_of_blocks};
use esker_lsm::version::TableFile;
use esker_lsm::{Component, Cost, Cursor, Kind};
use esker_model::definition::{MaintenanceSettings, Repair};

use crate::error::Result;
use crate::index::cost::{Access, AttributeProfile, Figures, Workload, percent};
use crate::index::lookup::{value_range, zone_admits};
use crate::index::queue::Queue;
use crate::index::summary_estimate;
use crate::index::{
    Attribute, BestCandidates, IndexEntry, IndexType, Lookup, Origin, Range, Writes,
};
use crate::record;

/// The embedded index.
pub(super) struct Embedded;

/// The share of excluded blocks above which an attribute counts as growing with time.
const CORRELATED: f64 = 0.9;

/// The most blocks that are read together.
const MAX_BLOCKS: usize = 64;

/// The assumed number of matches per block, for a range. For a single value it is 1.
const MATCHES_IN_RANGE: usize = 8;

/// The most values of a memtable that are counted for an estimate.
const MOST_COUNTED: u64 = 1000;

/// The extent of a part of a table.
#[derive(Clone, Copy)]
enum Unit {
    /// The whole table.
    Table,
    /// The partition with this index.
    Partition(usize),
    Block(BlockHint),
}

impl Unit {
    /// The block, if it is one.
    fn block(self) -> Option<BlockHint> {
        match self {
            Unit::Block(hint) => Some(hint),
            Unit::Table | Unit::Partition(_) => None,
        }
    }
}

/// A table of a component, or a part of it, that waits to be searched.
#[derive(Clone, Copy)]
struct Part {
    /// The index of the component, counted from the newest.
    component: usize,
    /// The index of the table in `Search::tables`.
    table: usize,
    unit: Unit,
}

/// A block that was taken from the queue.
struct TakenBlock {
    /// The best rank that it can contain.
    rank: u64,
    component: usize,
    table: usize,
    hint: BlockHint,
}

impl TakenBlock {
    fn new(rank: u64, part: Part, hint: BlockHint) -> TakenBlock {
        TakenBlock {
            rank,
            component: part.component,
            table: part.table,
            hint,
        }
    }
}

impl IndexType for Embedded {
    fn add(&self, _writes: &mut Writes, _entry: IndexEntry<'_>) -> Result<()> {
        Ok(())
    }

    fn cancel(&self, _writes: &mut Writes, _entry: IndexEntry<'_>) -> Result<()> {
        Ok(())
    }

    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut BestCandidates,
    ) -> Result<()> {
        candidates(lookup, attribute, range, value_range(range), best)
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        estimate(lookup, attribute, range, &value_range(range))
    }

    fn work(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        expected: u64,
    ) -> Result<f64> {
        let read = read_for(lookup, attribute, range, &value_range(range))?;
        Ok(read.max(expected) as f64 * self.weight())
    }

    fn summary(&self) -> Option<Summary> {
        Some(Summary::Filters)
    }

    fn figures(&self) -> Figures {
        Figures {
            access: Access::FilteredBlocks,
            write: 0.3,
            lookup: 40.0,
            row: 5.2,
            entry: 0.0,
            bytes: 4.0,
        }
    }

    fn why(&self, work: &Workload, profile: &AttributeProfile) -> String {
        let pruned = profile.pruned.unwrap_or(0.0);
        if pruned >= CORRELATED {
            format!(
                "grows with time: zone maps (the least and greatest value of a block) rule out {} of the blocks, so queries read little beside what they return, and writes cost next to nothing",
                percent(pruned)
            )
        } else {
            format!(
                "{} of the operations query it, {} are writes: searching blocks now and then costs less than updating an index at each write",
                percent(work.queries()),
                percent(work.writes)
            )
        }
    }
}

/// Offers the candidates in `range` of all tables whose summaries admit `values`, which is the same
/// range in the form of the summaries. Searches the units that can contain the best candidates
/// first.
pub(super) fn candidates(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    values: ValueRange,
    best: &mut BestCandidates,
) -> Result<()> {
    let mut search = Search {
        lookup,
        attribute,
        range,
        values,
        tables: Vec::new(),
        queue: Queue::new(),
        hints: Vec::new(),
    };
    for (at, component) in lookup.snapshot.components(lookup.data).iter().enumerate() {
        match component {
            Component::Memtable(memtable) => search.memtable(memtable, best)?,
            Component::Run(run) => {
                for file in run.tables.iter() {
                    search.file(at, file, best);
                }
            }
        }
    }
    search.run(best)
}

/// Estimates how many records an index of summaries reads for a range. `values` is the same range
/// in the form of the summaries.
///
/// # Errors
/// Any read error.
pub(super) fn read_for(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    values: &ValueRange,
) -> Result<u64> {
    let mut records = 0;
    for component in lookup.snapshot.components(lookup.data) {
        records += match component {
            Component::Memtable(memtable) => count_in_memtable(attribute, range, &memtable)?,
            Component::Run(run) => {
                let mut of_run = 0;
                for file in run.tables.iter() {
                    of_run += read_in_table(lookup, attribute, values, file)?;
                }
                of_run
            }
        };
    }
    Ok(records)
}

/// Estimates how many records of a table are read for a range.
fn read_in_table(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    values: &ValueRange,
    file: &TableFile,
) -> Result<u64> {
    let table = file.table()?;
    // A table older than the index has no summaries, and is read whole.
    let Some(slot) = table.slot_of(attribute.id) else {
        return Ok(file.meta().entries);
    };
    let mut hints = Vec::new();
    if table.mapped_blocks(slot, values, lookup.data_cost, &mut hints)? {
        // A match or two per block; the other records of the block cost little.
        return Ok(2 * hints.len() as u64);
    }
    let matching = (0..table.partitions())
        .filter(|p| table.partition_may_match(*p, slot, values))
        .count() as u64;
    Ok(file.meta().entries * matching / table.partitions().max(1) as u64)
}

/// Estimates the number of candidates for `range`; `values` is the same range in the form of the
/// summaries. Only a plan pays for reading samples.
pub(super) fn estimate(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    values: &ValueRange,
) -> Result<u64> {
    if lookup.looks.is_planning() {
        return summary_estimate::estimate(lookup, attribute, range, values);
    }
    read_for(lookup, attribute, range, values)
}

/// True if a run has one version per record.
fn has_one_version_per_run(settings: &MaintenanceSettings) -> bool {
    settings.versions == 1 && settings.repair != Repair::Staged
}

/// The number of a memtable's values in the range, counted to [`MOST_COUNTED`]; then the size of
/// the memtable.
fn count_in_memtable(attribute: &Attribute, range: &Range, memtable: &Memtable) -> Result<u64> {
    let Some(slot) = memtable.slot_of(attribute.id) else {
        return Ok(memtable.len() as u64);
    };
    let (lo, hi) = range.key_bounds();
    let mut cursor = memtable.attribute_cursor(slot);
    cursor.seek(&lo, MAX_SEQ)?;
    let mut count = 0;
    while cursor.valid() && hi.as_deref().is_none_or(|hi| cursor.key() < hi) {
        count += 1;
        if count == MOST_COUNTED {
            return Ok(memtable.len() as u64);
        }
        cursor.next()?;
    }
    Ok(count)
}

/// A search in progress.
struct Search<'a> {
    lookup: &'a Lookup<'a>,
    attribute: &'a Attribute,
    range: &'a Range,
    /// The range in the form of the summaries.
    values: ValueRange,
    /// The tables that may contain a match.
    tables: Vec<Arc<TableFile>>,
    queue: Queue<Part>,
    /// A buffer.
    hints: Vec<BlockHint>,
}

impl Search<'_> {
    /// Offers the entries of a memtable in the range: by its ordered map, or, if it is older than
    /// the index and has none, by all its records.
    fn memtable(&mut self, memtable: &Memtable, best: &mut BestCandidates) -> Result<()> {
        let limit = self.lookup.snapshot.seq();
        if let Some(slot) = memtable.slot_of(self.attribute.id) {
            let (lo, hi) = self.range.key_bounds();
            let mut cursor = memtable.attribute_cursor(slot);
            cursor.seek(&lo, MAX_SEQ)?;
            while cursor.valid() && hi.as_deref().is_none_or(|hi| cursor.key() < hi) {
                self.lookup.data_cost.check()?;
                if cursor.seq() <= limit && self.is_in_range(cursor.key()) {
                    best.offer(cursor.seq(), cursor.value());
                }
                cursor.next()?;
            }
            return Ok(());
        }
        let mut cursor = memtable.cursor();
        cursor.seek_first()?;
        while cursor.valid() {
            self.lookup.data_cost.check()?;
            if cursor.seq() <= limit
                && cursor.kind() == Kind::Put
                && self.matches(cursor.value())?
            {
                best.offer(cursor.seq(), cursor.key());
            }
            cursor.next()?;
        }
        Ok(())
    }

    /// True if a value between the range's bounds is in the range: a point must also lie in the
    /// area.
    fn is_in_range(&self, value: &[u8]) -> bool {
        self.range.regions.is_empty() || self.range.contains(value)
    }

    /// True if a stored record has a value in the range.
    ///
    /// # Errors
    /// Damage if the record is malformed.
    fn matches(&self, stored: &[u8]) -> Result<bool> {
        let record = record::parse(stored)?;
        let inside = |value: &[u8]| self.range.contains(value);
        Ok(self.attribute.any_value(&record, inside))
    }

    /// Queues a file that may contain a match.
    fn file(&mut self, component: usize, file: &Arc<TableFile>, best: &mut BestCandidates) {
        let (meta, cost) = (file.meta(), self.lookup.data_cost);
        if !best.admits_span(meta.min_seq, meta.max_seq) {
            best.note_skipped();
            return;
        }
        if let Some(admits) = zone_admits(meta, self.attribute.id, &self.values) {
            Cost::add(&cost.synopses_probed, 1);
            if !admits {
                Cost::add(&cost.synopses_negative, 1);
                return;
            }
        }
        let part = Part {
            component,
            table: self.tables.len(),
            unit: Unit::Table,
        };
        self.queue.push((meta.min_seq, meta.max_seq), part, best);
        self.tables.push(file.clone());
    }

    /// Searches the queued parts, best first, until no part can contain a better candidate.
    fn run(&mut self, best: &mut BestCandidates) -> Result<()> {
        let mut blocks = Vec::new();
        while let Some(head) = self.queue.pop(best) {
            match head.item.unit {
                Unit::Table => self.table(head.item, best)?,
                Unit::Partition(partition) => self.partition(head.item, partition, best)?,
                Unit::Block(hint) => {
                    blocks.push(TakenBlock::new(head.rank, head.item, hint));
                    let per_block = match self.range.point() {
                        Some(_) => 1,
                        None => MATCHES_IN_RANGE,
                    };
                    let together = (best.missing() / per_block).clamp(1, MAX_BLOCKS);
                    while blocks.len() < together
                        && let Some((next, hint)) = self.queue.pop_map(|part| part.unit.block())
                    {
                        blocks.push(TakenBlock::new(next.rank, next.item, hint));
                    }
                    self.blocks(&mut blocks, best)?;
                }
            }
        }
        Ok(())
    }

    /// The table with this index, open.
    fn opened(&self, table: usize) -> Result<Arc<Table>> {
        Ok(self.tables.item(table)?.table()?.clone())
    }

    /// Adds the blocks that the table's map gives, or else queues the partitions that may match.
    fn table(&mut self, part: Part, best: &mut BestCandidates) -> Result<()> {
        let table = self.opened(part.table)?;
        let (cost, slot) = (self.lookup.data_cost, table.slot_of(self.attribute.id));
        let mut hints = std::mem::take(&mut self.hints);
        hints.clear();
        let is_mapped = match slot {
            Some(slot) => table.mapped_blocks(slot, &self.values, cost, &mut hints)?,
            None => false,
        };
        if is_mapped {
            self.add_blocks(part, &hints, best)?;
        }
        self.hints = hints;
        if is_mapped {
            return Ok(());
        }
        for partition in 0..table.partitions() {
            let (min, max) = table.partition_bounds(partition);
            Cost::add(&cost.synopses_probed, 1);
            if slot.is_some_and(|slot| !table.partition_may_match(partition, slot, &self.values)) {
                Cost::add(&cost.synopses_negative, 1);
                continue;
            }
            let unit = Unit::Partition(partition);
            self.queue.push((min, max), Part { unit, ..part }, best);
        }
        Ok(())
    }

    /// Adds the blocks of a partition that may match.
    fn partition(&mut self, part: Part, partition: usize, best: &mut BestCandidates) -> Result<()> {
        let table = self.opened(part.table)?;
        let cost = self.lookup.data_cost;
        let mut hints = std::mem::take(&mut self.hints);
        hints.clear();
        match table.slot_of(self.attribute.id) {
            Some(slot) => table.matching_blocks(partition, slot, &self.values, cost, &mut hints)?,
            None => table.all_blocks(partition, cost, &mut hints)?,
        }
        self.add_blocks(part, &hints, best)?;
        self.hints = hints;
        Ok(())
    }

    /// Queues blocks of a part; while the queue is full, searches them at once.
    fn add_blocks(
        &mut self,
        part: Part,
        hints: &[BlockHint],
        best: &mut BestCandidates,
    ) -> Result<()> {
        if !self.queue.is_full() {
            for hint in hints {
                let unit = Unit::Block(*hint);
                self.queue
                    .push((hint.min_seq, hint.max_seq), Part { unit, ..part }, best);
            }
            return Ok(());
        }
        let mut taken = Vec::with_capacity(MAX_BLOCKS);
        for some in hints.chunks(MAX_BLOCKS) {
            for hint in some {
                let (min, max) = (hint.min_seq, hint.max_seq);
                if best.admits_span(min, max) {
                    let rank = best.best_wanted_rank(min, max);
                    taken.push(TakenBlock::new(rank, part, *hint));
                } else {
                    best.note_skipped();
                }
            }
            self.blocks(&mut taken, best)?;
        }
        Ok(())
    }

    /// Reads blocks, and offers their matches, best first, as long as a block can contain a better
    /// candidate.
    fn blocks(&mut self, blocks: &mut Vec<TakenBlock>, best: &mut BestCandidates) -> Result<()> {
        if best.missing() > MAX_BLOCKS {
            // All blocks are needed: in storage order, neighbours are read together.
            blocks.sort_by_key(|block| (block.table, block.hint.partition, block.hint.block));
        }
        let mut wanted = Vec::with_capacity(blocks.len());
        for block in blocks.iter() {
            wanted.push((self.opened(block.table)?, block.hint));
        }
        let read = entries_of_blocks(&wanted, self.lookup.data_cost)?;
        if read.len() != blocks.len() {
            return Err(Misplaced::here().into());
        }
        for (block, entries) in blocks.drain(..).zip(read) {
            if best.is_beyond(block.rank) {
                best.note_skipped();
            } else {
                self.block(block.component, entries, best)?;
            }
        }
        Ok(())
    }

    /// Offers the matches of a block.
    fn block(
        &self,
        component: usize,
        mut entries: BlockEntries,
        best: &mut BestCandidates,
    ) -> Result<()> {
        while entries.advance()? {
            if entries.kind() == Kind::Put && self.matches(entries.value())? {
                // A copy, so that the record does not keep its whole block in memory. If a run may
                // have several versions of a record, its component does not show which is the
                // newest.
                let bring = || {
                    has_one_version_per_run(self.lookup.settings)
                        .then(|| (entries.value().into(), Origin::Component(component)))
                };
                best.offer_with(entries.seq(), entries.key(), bring);
            }
        }
        Ok(())
    }
}
