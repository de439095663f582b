//! About how many candidates a kind has whose index is the summaries of the data's tables.
//!
//! Each table has a sample of the values of its records, and where enough of them are in the range that is all it takes. For
//! rare values the kinds with summaries of blocks look at those: how many blocks may have it, and one that is read, how
//! much of it a block has.

use std::sync::Arc;

use esker_lsm::synopsis::{SampleShare, ValueRange};
use esker_lsm::table::{BlockHint, Table};
use esker_lsm::{Component, Cursor, Kind, MAX_SEQ};
use esker_model::record::RecordRef;

use super::{Lookup, Range, embedded};
use crate::catalog::Attribute;
use crate::error::Result;

/// Partitions whose summaries are looked at, evenly spread over all that may have something.
const PARTITIONS: usize = 16;

/// About the data blocks of a partition.
const BLOCKS: f64 = 64.0;

/// Entries of a memtable that are looked at where its order does not tell which are in the range.
const SHOWN: usize = 256;

/// Records that a block has of a value, before any was seen.
const OF_ONE: f64 = 2.0;

/// The same, where the block that was read has none, and other blocks may.
const OF_UNSEEN: f64 = 0.5;

/// The most tables whose samples are looked at, and about the most entries in these.
const TABLES: usize = 16;
const SAMPLED: u64 = 8192;

/// About the largest sample of a table, and the share of a small table that is in it: one in so many.
const LARGEST_SAMPLE: u64 = 3000;
const ONE_IN: u64 = 8;

/// A table that may have something, and the blocks that its fingerprint map names, if it has one.
struct Part {
    table: Arc<Table>,
    slot: Option<usize>,
    mapped: Option<Vec<BlockHint>>,
}

/// The blocks that may have something.
struct Blocks {
    /// How many they are, and the entries in them.
    count: f64,
    entries: f64,
    /// One in the middle of them.
    middle: Option<(Arc<Table>, BlockHint)>,
    /// False where nothing is known of any.
    are_summarised: bool,
}

/// What a block that was read has.
struct Seen {
    records: f64,
    matches: f64,
}

struct Estimate<'a> {
    lookup: &'a Lookup<'a>,
    attribute: &'a Attribute,
    range: &'a Range,
    values: &'a ValueRange,
}

/// About how many candidates there are of a range, which is `values` for summaries.
pub(super) fn estimate(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    values: &ValueRange,
) -> Result<u64> {
    if !lookup.looks.is_planning() {
        return embedded::read_for(lookup, attribute, range, values);
    }
    let estimate = Estimate {
        lookup,
        attribute,
        range,
        values,
    };
    let (mut sum, mut parts) = (0.0, Vec::new());
    for component in lookup.snapshot.components(lookup.layout.data) {
        match component {
            Component::Memtable(memtable) => sum += estimate.of_memtable(&memtable)?,
            Component::Run(run) => {
                for file in run.tables.iter() {
                    let meta = file.meta();
                    let mut zones = meta.zones.iter();
                    let zone = zones.find(|(id, _)| *id == attribute.id);
                    let overlaps = |(min, max): &(Vec<u8>, Option<Vec<u8>>)| {
                        values.overlaps(min, max.as_deref())
                    };
                    if zone.is_some_and(|(_, zone)| !zone.as_ref().is_some_and(overlaps)) {
                        continue;
                    }
                    parts.push(estimate.part(file.table()?)?);
                }
            }
        }
    }
    Ok((sum + estimate.of_parts(&parts)?).round() as u64)
}

impl Estimate<'_> {
    fn of_memtable(&self, memtable: &esker_lsm::memtable::Memtable) -> Result<f64> {
        let Some(slot) = memtable.slot_of(self.attribute.id) else {
            return Ok(memtable.len() as f64);
        };
        let (lo, hi) = self.range.key_bounds();
        let mut cursor = memtable.attribute_cursor(slot);
        let all = cursor.between(&lo, hi.as_deref()) as f64;
        if self.range.regions.is_empty() {
            return Ok(all);
        }
        let (mut shown, mut inside) = (0, 0);
        cursor.seek(&lo, MAX_SEQ)?;
        while shown < SHOWN && cursor.valid() && hi.as_deref().is_none_or(|hi| cursor.key() < hi) {
            shown += 1;
            inside += usize::from(self.range.contains(cursor.key()));
            cursor.next()?;
        }
        Ok(all * inside as f64 / shown.max(1) as f64)
    }

    fn part(&self, table: &Arc<Table>) -> Result<Part> {
        let slot = table.slot_of(self.attribute.id);
        let mut hints = Vec::new();
        let is_mapped = match slot {
            Some(slot) => {
                table.mapped_blocks(slot, self.values, self.lookup.data_cost, &mut hints)?
            }
            None => false,
        };
        Ok(Part {
            table: table.clone(),
            slot,
            mapped: is_mapped.then_some(hints),
        })
    }

    fn of_parts(&self, parts: &[Part]) -> Result<f64> {
        let all: u64 = parts.iter().map(|part| puts(&part.table)).sum();
        let sample = self.sample(parts, all)?;
        // Of all tables, those that were left out included.
        let scale = all as f64 / sample.entries().max(1) as f64;
        let told = sample.told().map(|told| (told * scale).min(all as f64));
        if let Some(told) = told
            && sample.is_enough()
        {
            return Ok(told);
        }
        let blocks = self.blocks(parts)?;
        if let Some(told) = told
            && !blocks.are_summarised
        {
            return Ok(told);
        }
        let by_block = match &blocks.middle {
            Some((table, hint)) => self.by_block(&blocks, self.look(table, hint)?),
            None => 0.0,
        };
        Ok(match told {
            Some(told) if !sample.leaves_open(blocks.entries / scale) => match sample.has_none() {
                true => told.min(by_block),
                false => told,
            },
            _ => by_block.min(all as f64),
        })
    }

    /// What the samples of the tables tell.
    fn sample(&self, parts: &[Part], all: u64) -> Result<SampleShare> {
        let each = all / parts.len().max(1) as u64;
        let of_one = (each / ONE_IN).clamp(1, LARGEST_SAMPLE);
        let most = ((SAMPLED / of_one) as usize).clamp(2, TABLES);
        let meets = |value: &[u8]| self.range.contains(value);
        let mut sample = SampleShare::default();
        for part in spread(parts, most) {
            let Some(slot) = part.slot else { continue };
            let counted = part.table.sampled(slot, self.lookup.data_cost, &meets)?;
            if let Some(counted) = counted {
                sample.add(puts(&part.table), counted);
            }
        }
        Ok(sample)
    }

    fn by_block(&self, blocks: &Blocks, seen: Option<Seen>) -> f64 {
        match seen {
            Some(seen) if !blocks.are_summarised => {
                blocks.entries * seen.matches.max(OF_UNSEEN) / seen.records.max(1.0)
            }
            // That one need not have it does not mean that none does.
            Some(seen) if seen.matches > 0.0 || blocks.count >= 2.0 => {
                blocks.count * seen.matches.max(OF_UNSEEN)
            }
            Some(_) => 0.0,
            None => blocks.count * OF_ONE,
        }
    }

    /// Reads a block, if one may be read.
    fn look(&self, table: &Table, hint: &BlockHint) -> Result<Option<Seen>> {
        if !self.lookup.looks.take() {
            return Ok(None);
        }
        let mut seen = Seen {
            records: 0.0,
            matches: 0.0,
        };
        let mut entries = table.block_entries(hint, self.lookup.data_cost)?;
        while entries.advance()? {
            if entries.kind() != Kind::Put {
                continue;
            }
            // Damage is an error of those who read the record.
            let Some(record) = RecordRef::parse(entries.value()) else {
                continue;
            };
            seen.records += 1.0;
            let contains = |value: &[u8]| self.range.contains(value);
            if self.attribute.any_value(&record, contains) {
                seen.matches += 1.0;
            }
        }
        Ok(Some(seen))
    }

    /// The blocks that may have something, as the summaries of some partitions tell.
    fn blocks(&self, parts: &[Part]) -> Result<Blocks> {
        let (mut hints, mut partitions) = (Vec::new(), Vec::new());
        let (mut entries, mut are_summarised) = (0.0, false);
        for part in parts {
            if let Some(mapped) = &part.mapped {
                are_summarised = true;
                let table = &part.table;
                let of_blocks = mapped
                    .iter()
                    .map(|hint| table.partition_entries(hint.partition));
                entries += of_blocks.sum::<u64>() as f64 / BLOCKS;
                hints.extend(mapped.iter().map(|hint| (table.clone(), *hint)));
                continue;
            }
            let may_match = |p: &usize| {
                let meets = |slot| part.table.partition_may_match(*p, slot, self.values);
                part.slot.is_none_or(meets)
            };
            let all = (0..part.table.partitions()).filter(may_match);
            partitions.extend(all.map(|p| (part, p)));
        }
        let mut count = hints.len() as f64;
        let some: Vec<_> = spread(&partitions, PARTITIONS).collect();
        let scale = partitions.len() as f64 / some.len().max(1) as f64;
        for (part, p) in some {
            let before = hints.len();
            let mut all = 0_usize;
            let mut show = |hint, zone: Option<(&[u8], Option<&[u8]>)>, may_match| {
                all += 1;
                // Without bounds it is anything: nothing was summarised.
                are_summarised |= zone.is_some_and(|(min, max)| !min.is_empty() || max.is_some());
                if may_match {
                    hints.push((part.table.clone(), hint));
                }
            };
            let cost = self.lookup.data_cost;
            match part.slot {
                Some(slot) => part
                    .table
                    .summaries(*p, slot, self.values, cost, &mut show)?,
                None => {
                    let mut unknown = Vec::new();
                    part.table.all_blocks(*p, cost, &mut unknown)?;
                    unknown.into_iter().for_each(|hint| show(hint, None, true));
                }
            }
            let matching = (hints.len() - before) as f64;
            let of_block = part.table.partition_entries(*p) as f64 / all.max(1) as f64;
            count += matching * scale;
            entries += matching * scale * of_block;
        }
        Ok(Blocks {
            count,
            entries,
            middle: hints.get(hints.len() / 2).cloned(),
            are_summarised,
        })
    }
}

fn puts(table: &Table) -> u64 {
    table.meta().entries - table.meta().deletes.min(table.meta().entries)
}

/// So many at most, evenly spread.
fn spread<T>(all: &[T], most: usize) -> impl Iterator<Item = &T> {
    let step = all.len().div_ceil(most).max(1);
    let first = all.len().saturating_sub(1).min(step / 2);
    all.iter().skip(first).step_by(step)
}
