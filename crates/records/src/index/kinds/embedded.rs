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

use std::sync::Arc;

use esker_lsm::attributes::Summary;
use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::entry::MAX_SEQ;
use esker_lsm::memtable::Memtable;
use esker_lsm::synopsis::ValueRange;
use esker_lsm::table::{BlockEntries, BlockHint, Table, entries_of_blocks};
use esker_lsm::version::TableFile;
use esker_lsm::{Component, Cursor, Kind};
use esker_model::definition::{MaintenanceSettings, Repair};
use esker_model::record::RecordRef;

use crate::error::Result;
use crate::index::cost::{Access, AttributeProfile, Figures, Workload, percent};
use crate::index::lookup::value_range;
use crate::index::queue::Queue;
use crate::index::ranked::Ranked;
use crate::index::summary_estimate;
use crate::index::{
    Attribute, BestCandidates, IndexEntry, IndexType, Lookup, Origin, Range, Writes,
};

/// The embedded index.
pub(super) struct Embedded;

/// The share of excluded blocks above which an attribute counts as growing with time.
const CORRELATED: f64 = 0.9;

/// The most blocks that are taken from the queue and read together.
const MAX_BLOCKS: usize = 64;

/// The assumed number of matches per block, for a range. For a single value it is 1.
const MATCHES_IN_RANGE: usize = 8;

/// The extent of a part of a table.
#[derive(Clone, Copy)]
enum Unit {
    /// The whole table.
    Table,
    /// The partition with this index.
    Partition(usize),
    Block(BlockHint),
}

/// A table of a component, or a part of it, that waits to be searched.
#[derive(Clone, Copy)]
struct Part {
    /// The index of the component, counted from the newest.
    component: usize,
    /// The index of the table in `Walk::tables`.
    table: usize,
    unit: Unit,
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
    let mut walk = Walk {
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
            Component::Memtable(memtable) => walk.memtable(memtable, best)?,
            Component::Run(run) => {
                for file in run.tables.iter() {
                    walk.file(at, file, best);
                }
            }
        }
    }
    walk.run(best)
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
/// summaries.
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

/// The number of a memtable's values in the range. Counts to 1,000; then returns the size of the
/// memtable.
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
        if count == 1000 {
            return Ok(memtable.len() as u64);
        }
        cursor.next()?;
    }
    Ok(count)
}

/// A search in progress.
struct Walk<'a> {
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

impl Walk<'_> {
    /// Offers the entries of a memtable's ordered map in the range.
    fn memtable(&mut self, memtable: &Memtable, best: &mut BestCandidates) -> Result<()> {
        let limit = self.lookup.snapshot.seq();
        // A memtable older than the index has no map of it.
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
            if cursor.seq() <= limit && cursor.kind() == Kind::Put && self.matches(cursor.value()) {
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
    fn matches(&self, record: &[u8]) -> bool {
        RecordRef::parse(record).is_some_and(|record| {
            let inside = |value: &[u8]| self.range.contains(value);
            self.attribute.any_value(&record, inside)
        })
    }

    /// Queues a file that may contain a match.
    fn file(&mut self, component: usize, file: &Arc<TableFile>, best: &mut BestCandidates) {
        let (meta, cost) = (file.meta(), self.lookup.data_cost);
        if !best.admits_span(meta.min_seq, meta.max_seq) {
            best.note_skipped();
            return;
        }
        let zone = meta.zones.iter().find(|(id, _)| *id == self.attribute.id);
        if let Some((_, zone)) = zone {
            esker_lsm::Cost::add(&cost.synopses_probed, 1);
            let overlaps = zone
                .as_ref()
                .is_some_and(|(min, max)| self.values.overlaps(min, max.as_deref()));
            if !overlaps {
                esker_lsm::Cost::add(&cost.synopses_negative, 1);
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
                Unit::Block(_) => {
                    blocks.push(head);
                    let per_block = match self.range.point() {
                        Some(_) => 1,
                        None => MATCHES_IN_RANGE,
                    };
                    let together = (best.missing() / per_block).clamp(1, MAX_BLOCKS);
                    let is_block = |part: &Part| matches!(part.unit, Unit::Block(_));
                    while blocks.len() < together
                        && let Some(next) = self.queue.pop_if(is_block)
                    {
                        blocks.push(next);
                    }
                    self.blocks(&mut blocks, best)?;
                }
            }
        }
        Ok(())
    }

    /// The open table of a part.
    fn opened(&self, part: Part) -> Result<Arc<Table>> {
        Ok(self.tables.item(part.table)?.table()?.clone())
    }

    /// Queues the blocks that the table's map gives, or else the partitions that may match.
    fn table(&mut self, part: Part, best: &mut BestCandidates) -> Result<()> {
        let table = self.opened(part)?;
        let (cost, slot) = (self.lookup.data_cost, table.slot_of(self.attribute.id));
        let mut hints = std::mem::take(&mut self.hints);
        hints.clear();
        let is_mapped = match slot {
            Some(slot) => table.mapped_blocks(slot, &self.values, cost, &mut hints)?,
            None => false,
        };
        if is_mapped {
            self.queue_blocks(part, &hints, best);
        }
        self.hints = hints;
        if is_mapped {
            return Ok(());
        }
        for partition in 0..table.partitions() {
            let (min, max) = table.partition_bounds(partition);
            esker_lsm::Cost::add(&cost.synopses_probed, 1);
            if slot.is_some_and(|slot| !table.partition_may_match(partition, slot, &self.values)) {
                esker_lsm::Cost::add(&cost.synopses_negative, 1);
                continue;
            }
            let unit = Unit::Partition(partition);
            self.queue.push((min, max), Part { unit, ..part }, best);
        }
        Ok(())
    }

    /// Queues the blocks of a partition that may match.
    fn partition(&mut self, part: Part, partition: usize, best: &mut BestCandidates) -> Result<()> {
        let table = self.opened(part)?;
        let cost = self.lookup.data_cost;
        let mut hints = std::mem::take(&mut self.hints);
        hints.clear();
        match table.slot_of(self.attribute.id) {
            Some(slot) => table.matching_blocks(partition, slot, &self.values, cost, &mut hints)?,
            None => table.all_blocks(partition, cost, &mut hints)?,
        }
        self.queue_blocks(part, &hints, best);
        self.hints = hints;
        Ok(())
    }

    /// Queues blocks of a part.
    fn queue_blocks(&mut self, part: Part, hints: &[BlockHint], best: &mut BestCandidates) {
        for hint in hints {
            let unit = Unit::Block(*hint);
            self.queue
                .push((hint.min_seq, hint.max_seq), Part { unit, ..part }, best);
        }
    }

    /// Reads blocks, and offers their matches, best first, as long as a block can contain a better
    /// candidate.
    fn blocks(&mut self, blocks: &mut Vec<Ranked<Part>>, best: &mut BestCandidates) -> Result<()> {
        if best.missing() > MAX_BLOCKS {
            // All blocks are needed: in storage order, neighbours are read together.
            blocks.sort_by_key(|queued| match queued.item.unit {
                Unit::Block(hint) => (queued.item.table, hint.partition, hint.block),
                _ => (queued.item.table, 0, 0),
            });
        }
        let mut wanted = Vec::with_capacity(blocks.len());
        for queued in blocks.iter() {
            let Unit::Block(hint) = queued.item.unit else {
                return Err(Misplaced::here().into());
            };
            wanted.push((self.opened(queued.item)?, hint));
        }
        let read = entries_of_blocks(&wanted, self.lookup.data_cost)?;
        debug_assert_eq!(read.len(), blocks.len());
        for (queued, entries) in blocks.drain(..).zip(read) {
            if best.is_beyond(queued.rank) {
                best.note_skipped();
            } else {
                self.block(queued.item.component, entries, best)?;
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
            if entries.kind() == Kind::Put && self.matches(entries.value()) {
                // A copy, so that the record does not keep its whole block in memory. If a run may
                // have several versions of a record, its component does not show which is the
                // newest.
                let bring = || {
                    if has_one_version_per_run(self.lookup.settings) {
                        Some((entries.value().into(), Origin::Component(component)))
                    } else {
                        None
                    }
                };
                best.offer_with(entries.seq(), entries.key(), bring);
            }
        }
        Ok(())
    }
}
