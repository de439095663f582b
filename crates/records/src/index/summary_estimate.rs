//! Estimates how many candidates an index has that consists of the summaries of the data's tables
//! (embedded, fingerprint, filter, embedded points).
//!
//! Each table has a sample of its records' values. If enough of the sample is in the range, it
//! gives the estimate. For rare values, index types with summaries of blocks count the blocks that
//! may match, and read one of them to see how many matches a block has.

use std::sync::Arc;

use esker_lsm::memtable::Memtable;
use esker_lsm::synopsis::{SampleShare, ValueRange};
use esker_lsm::table::{BlockHint, Table};
use esker_lsm::{Component, Cursor, Kind, MAX_SEQ};
use esker_model::range::Range;
use esker_model::record::RecordRef;

use super::kind::Attribute;
use super::lookup::{Lookup, zone_admits};
use crate::error::Result;

/// The most partitions whose summaries are read, evenly spread over those that may match.
const MAX_PARTITIONS: usize = 16;

/// The approximate number of data blocks in a partition.
const BLOCKS_PER_PARTITION: f64 = 64.0;

/// Entries of a memtable that are tested if its order does not show which of them are in the range.
const TESTED_ENTRIES: usize = 256;

/// The assumed number of matches in a block, before any block was read.
const MATCHES_ASSUMED: f64 = 2.0;

/// The assumed number of matches in a block if the one that was read has none.
const MATCHES_IF_NONE_READ: f64 = 0.5;

/// The most tables whose samples are read.
const MAX_SAMPLES: usize = 16;

/// The approximate number of entries in these samples.
const SAMPLED_ENTRIES: u64 = 8192;

/// The approximate size of the largest sample, in entries.
const LARGEST_SAMPLE: u64 = 3000;

/// A small table has one in this many entries in its sample.
const ENTRIES_PER_SAMPLED: u64 = 8;

/// A table that may have matches, by its zone map.
struct AdmittedTable {
    table: Arc<Table>,
    /// The attribute's slot among its summaries; `None` for a table older than the index.
    slot: Option<usize>,
    /// The blocks that its fingerprint map gives, if it has one.
    mapped: Option<Vec<BlockHint>>,
}

/// The blocks that may have matches.
#[derive(Default)]
struct Blocks {
    /// The number of blocks.
    count: f64,
    /// The number of entries in them.
    entries: f64,
    /// Those of them that were found.
    hints: Vec<(Arc<Table>, BlockHint)>,
    /// False if no block has a summary.
    are_summarised: bool,
}

impl Blocks {
    /// Adds the blocks that the fingerprint map of a table gives.
    fn add_mapped(&mut self, table: &Arc<Table>, mapped: &[BlockHint]) {
        self.are_summarised = true;
        let of_partitions = mapped
            .iter()
            .map(|hint| table.partition_entries(hint.partition));
        self.count += mapped.len() as f64;
        self.entries += of_partitions.sum::<u64>() as f64 / BLOCKS_PER_PARTITION;
        self.hints
            .extend(mapped.iter().map(|hint| (table.clone(), *hint)));
    }

    /// A block from the middle.
    fn middle(&self) -> Option<&(Arc<Table>, BlockHint)> {
        self.hints.get(self.hints.len() / 2)
    }
}

/// The counts of a block that was read.
struct BlockCounts {
    records: f64,
    matches: f64,
}

/// An estimate for one attribute and range.
struct Estimate<'a> {
    lookup: &'a Lookup<'a>,
    attribute: &'a Attribute,
    range: &'a Range,
    /// The range in the form of the summaries.
    values: &'a ValueRange,
}

/// Estimates the number of candidates for `range`; `values` is the same range in the form of the
/// summaries.
///
/// # Errors
/// Any read error.
pub(super) fn estimate(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    values: &ValueRange,
) -> Result<u64> {
    let estimate = Estimate {
        lookup,
        attribute,
        range,
        values,
    };
    let (mut sum, mut tables) = (0.0, Vec::new());
    for component in lookup.snapshot.components(lookup.data) {
        match component {
            Component::Memtable(memtable) => sum += estimate.of_memtable(&memtable)?,
            Component::Run(run) => {
                for file in run.tables.iter() {
                    if zone_admits(file.meta(), attribute.id, values).unwrap_or(true) {
                        tables.push(estimate.admitted(file.table()?)?);
                    }
                }
            }
        }
    }
    Ok((sum + estimate.of_tables(&tables)?).round() as u64)
}

impl Estimate<'_> {
    /// Matches in a memtable: exactly those of its ordered map, extrapolated from some of them for
    /// an area.
    fn of_memtable(&self, memtable: &Memtable) -> Result<f64> {
        let Some(slot) = memtable.slot_of(self.attribute.id) else {
            return Ok(memtable.len() as f64);
        };
        let (lo, hi) = self.range.key_bounds();
        let mut cursor = memtable.attribute_cursor(slot);
        let all = cursor.between(&lo, hi.as_deref()) as f64;
        if self.range.regions.is_empty() {
            return Ok(all);
        }
        let (mut tested, mut inside) = (0, 0);
        cursor.seek(&lo, MAX_SEQ)?;
        while tested < TESTED_ENTRIES
            && cursor.valid()
            && hi.as_deref().is_none_or(|hi| cursor.key() < hi)
        {
            tested += 1;
            inside += usize::from(self.range.contains(cursor.key()));
            cursor.next()?;
        }
        Ok(all * inside as f64 / tested.max(1) as f64)
    }

    /// A table, with the blocks that its fingerprint map gives.
    fn admitted(&self, table: &Arc<Table>) -> Result<AdmittedTable> {
        let slot = table.slot_of(self.attribute.id);
        let mut hints = Vec::new();
        let is_mapped = match slot {
            Some(slot) => {
                table.mapped_blocks(slot, self.values, self.lookup.data_cost, &mut hints)?
            }
            None => false,
        };
        Ok(AdmittedTable {
            table: table.clone(),
            slot,
            mapped: is_mapped.then_some(hints),
        })
    }

    /// Matches in the tables: by their samples, if these suffice; otherwise by their blocks.
    fn of_tables(&self, tables: &[AdmittedTable]) -> Result<f64> {
        let all: u64 = tables.iter().map(|admitted| puts(&admitted.table)).sum();
        let sample = self.sample(tables, all)?;
        // Extrapolates to all tables, including those that were skipped.
        let scale = all as f64 / sample.entries().max(1) as f64;
        let estimated = sample.told().map(|share| (share * scale).min(all as f64));
        if let Some(estimated) = estimated
            && sample.is_enough()
        {
            return Ok(estimated);
        }
        let blocks = self.blocks(tables)?;
        if let Some(estimated) = estimated
            && !blocks.are_summarised
        {
            return Ok(estimated);
        }
        let by_block = match blocks.middle() {
            Some((table, hint)) => self.by_block(&blocks, self.read_block(table, hint)?),
            None => 0.0,
        };
        Ok(match estimated {
            Some(estimated) if !sample.leaves_open(blocks.entries / scale) => {
                if sample.has_none() {
                    estimated.min(by_block)
                } else {
                    estimated
                }
            }
            _ => by_block.min(all as f64),
        })
    }

    /// The combined samples of some tables.
    fn sample(&self, tables: &[AdmittedTable], all: u64) -> Result<SampleShare> {
        let each = all / tables.len().max(1) as u64;
        let of_one = (each / ENTRIES_PER_SAMPLED).clamp(1, LARGEST_SAMPLE);
        let most = ((SAMPLED_ENTRIES / of_one) as usize).clamp(2, MAX_SAMPLES);
        let meets = |value: &[u8]| self.range.contains(value);
        let mut sample = SampleShare::default();
        for AdmittedTable { table, slot, .. } in spread(tables, most) {
            // A table older than the index has no sample of the attribute.
            if let Some(slot) = slot
                && let Some(counted) = table.sampled(*slot, self.lookup.data_cost, &meets)?
            {
                sample.add(puts(table), counted);
            }
        }
        Ok(sample)
    }

    /// Matches in the blocks that may match, given the counts of one of them.
    fn by_block(&self, blocks: &Blocks, counts: Option<BlockCounts>) -> f64 {
        match counts {
            Some(counts) if !blocks.are_summarised => {
                blocks.entries * counts.matches.max(MATCHES_IF_NONE_READ) / counts.records.max(1.0)
            }
            // One block without matches does not mean that no block has any.
            Some(counts) if counts.matches > 0.0 || blocks.count >= 2.0 => {
                blocks.count * counts.matches.max(MATCHES_IF_NONE_READ)
            }
            Some(_) => 0.0,
            None => blocks.count * MATCHES_ASSUMED,
        }
    }

    /// Reads a block, if the budget of the estimate allows it.
    fn read_block(&self, table: &Table, hint: &BlockHint) -> Result<Option<BlockCounts>> {
        if !self.lookup.looks.take() {
            return Ok(None);
        }
        let mut counts = BlockCounts {
            records: 0.0,
            matches: 0.0,
        };
        let mut entries = table.block_entries(hint, self.lookup.data_cost)?;
        while entries.advance()? {
            if entries.kind() != Kind::Put {
                continue;
            }
            // Only an estimate: a query that reads the record reports the damage.
            let Some(record) = RecordRef::parse(entries.value()) else {
                continue;
            };
            counts.records += 1.0;
            let contains = |value: &[u8]| self.range.contains(value);
            if self.attribute.any_value(&record, contains) {
                counts.matches += 1.0;
            }
        }
        Ok(Some(counts))
    }

    /// The blocks that may match: those that fingerprint maps give, and of the other tables as many
    /// as the summaries of some partitions show.
    fn blocks(&self, tables: &[AdmittedTable]) -> Result<Blocks> {
        let (mut blocks, mut partitions) = (Blocks::default(), Vec::new());
        for admitted in tables {
            if let Some(mapped) = &admitted.mapped {
                blocks.add_mapped(&admitted.table, mapped);
                continue;
            }
            let may_match = |partition: &usize| {
                let meets =
                    |slot| (admitted.table).partition_may_match(*partition, slot, self.values);
                admitted.slot.is_none_or(meets)
            };
            let all = (0..admitted.table.partitions()).filter(may_match);
            partitions.extend(all.map(|partition| (admitted, partition)));
        }
        let read: Vec<_> = spread(&partitions, MAX_PARTITIONS).collect();
        let scale = partitions.len() as f64 / read.len().max(1) as f64;
        for (admitted, partition) in read {
            self.add_partition(admitted, *partition, scale, &mut blocks)?;
        }
        Ok(blocks)
    }

    /// Adds the blocks of a partition that may match. It stands for `scale` partitions.
    fn add_partition(
        &self,
        AdmittedTable { table, slot, .. }: &AdmittedTable,
        partition: usize,
        scale: f64,
        blocks: &mut Blocks,
    ) -> Result<()> {
        let cost = self.lookup.data_cost;
        let (before, mut all) = (blocks.hints.len(), 0_usize);
        let mut show = |hint, zone: Option<(&[u8], Option<&[u8]>)>, may_match| {
            all += 1;
            // A zone without bounds means that nothing was summarised.
            blocks.are_summarised |=
                zone.is_some_and(|(min, max)| !min.is_empty() || max.is_some());
            if may_match {
                blocks.hints.push((table.clone(), hint));
            }
        };
        match slot {
            Some(slot) => table.summaries(partition, *slot, self.values, cost, &mut show)?,
            None => {
                let mut unknown = Vec::new();
                table.all_blocks(partition, cost, &mut unknown)?;
                unknown.into_iter().for_each(|hint| show(hint, None, true));
            }
        }
        let matching = (blocks.hints.len() - before) as f64 * scale;
        let of_block = table.partition_entries(partition) as f64 / all.max(1) as f64;
        blocks.count += matching;
        blocks.entries += matching * of_block;
        Ok(())
    }
}

/// The number of puts in a table, by the numbers in its file, which `check` compares with its
/// entries.
fn puts(table: &Table) -> u64 {
    let meta = table.meta();
    meta.entries.saturating_sub(meta.deletes)
}

/// At most `most` items, evenly spread.
fn spread<T>(all: &[T], most: usize) -> impl Iterator<Item = &T> {
    let step = all.len().div_ceil(most).max(1);
    let first = all.len().saturating_sub(1).min(step / 2);
    all.iter().skip(first).step_by(step)
}
