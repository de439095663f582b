//! About how many candidates a kind has whose index is the summaries of the data's tables: from these summaries, and one block.
//!
//! Of one value, filters (or a fingerprint map) tell which blocks have it, and a block tells how often. Of a range, each
//! block's least and greatest value tell. Where values come in the order of the records, blocks lie before it, in it or behind it. Where they
//! do not, nearly all blocks straddle a value, but how many blocks have none below it tells how many records have: with `n` records in a
//! block, the share `F` of records leaves the share `(1 - F)^n` of blocks without. That, with the values of one block between the ends, is a
//! distribution.

use std::sync::Arc;

use lsm::synopsis::ValueRange;
use lsm::table::{BlockHint, Table, part_before};
use lsm::{Component, Cursor, Kind, MAX_SEQ};
use model::record::RecordRef;
use model::schema::Type;

use super::{Lookup, Range, embedded};
use crate::catalog::Attribute;
use crate::error::Result;

/// Partitions whose summaries are looked at, evenly spread over all that may have something.
const PARTITIONS: usize = 16;

/// Entries of a memtable that are looked at where its order does not tell which are in the range.
const SHOWN: usize = 256;

/// Records that a block has of one value, before any was seen.
const OF_ONE: f64 = 2.0;

/// The share of blocks that lie wholly before the middle one's least value, from which on values are said to be in order.
const IN_ORDER: f64 = 0.25;

/// Each so many values of a block are a point of the distribution: single ones lie too unevenly.
const STEP: usize = 4;

/// A partition that may have something.
struct Part {
    table: Arc<Table>,
    partition: usize,
    slot: Option<usize>,
    entries: u64,
}

/// What is known of a data block.
struct Block {
    table: Arc<Table>,
    hint: BlockHint,
    /// The least and the greatest value.
    zone: Option<(Vec<u8>, Option<Vec<u8>>)>,
    /// True when it may have a value of the range.
    may_match: bool,
    /// False of the last of a partition, which may be small.
    is_full: bool,
}

/// What a block that was read has.
#[derive(Default)]
struct Seen {
    records: usize,
    matches: usize,
    /// The values, ascending.
    values: Vec<Vec<u8>>,
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
    let (mut sum, mut in_memory) = (0.0, 0.0);
    let (mut parts, mut mapped) = (Vec::new(), Vec::new());
    for component in lookup.snapshot.components(lookup.layout.data) {
        match component {
            Component::Memtable(memtable) => {
                in_memory += memtable.len() as f64;
                sum += estimate.of_memtable(&memtable)?;
            }
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
                    estimate.table(file.table()?, &mut parts, &mut mapped)?;
                }
            }
        }
    }
    let in_tables = estimate.of_mapped(&mapped)? + estimate.of_parts(&parts, (sum, in_memory))?;
    Ok((sum + in_tables).round() as u64)
}

impl Estimate<'_> {
    fn of_memtable(&self, memtable: &lsm::memtable::Memtable) -> Result<f64> {
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

    /// Notes the blocks that a table's map names, or else its partitions that may have something.
    fn table(
        &self,
        table: &Arc<Table>,
        parts: &mut Vec<Part>,
        mapped: &mut Vec<(Arc<Table>, BlockHint)>,
    ) -> Result<()> {
        let (slot, cost) = (table.slot_of(self.attribute.id), self.lookup.data_cost);
        if let Some(slot) = slot {
            let mut hints = Vec::new();
            if table.mapped_blocks(slot, self.values, cost, &mut hints)? {
                mapped.extend(hints.into_iter().map(|hint| (table.clone(), hint)));
                return Ok(());
            }
        }
        for partition in 0..table.partitions() {
            let may_match = |slot| table.partition_may_match(partition, slot, self.values);
            if slot.is_none_or(may_match) {
                parts.push(Part {
                    table: table.clone(),
                    partition,
                    slot,
                    entries: table.partition_entries(partition),
                });
            }
        }
        Ok(())
    }

    fn of_mapped(&self, mapped: &[(Arc<Table>, BlockHint)]) -> Result<f64> {
        let Some((table, hint)) = mapped.get(mapped.len() / 2) else {
            return Ok(0.0);
        };
        let each = match self.look(table, hint)? {
            Some(seen) => seen.matches as f64,
            None => OF_ONE,
        };
        // That one need not have it does not mean that none does.
        let others = (mapped.len() - 1) as f64;
        Ok(each + others * each.max(0.5))
    }

    /// Reads a block, if one may be read.
    fn look(&self, table: &Table, hint: &BlockHint) -> Result<Option<Seen>> {
        if !self.lookup.looks.take() {
            return Ok(None);
        }
        let mut seen = Seen::default();
        let mut entries = table.block_entries(hint, self.lookup.data_cost)?;
        while entries.advance()? {
            if entries.kind() != Kind::Put {
                continue;
            }
            // Damage is an error of those who read the record.
            let Some(record) = RecordRef::parse(entries.value()) else {
                continue;
            };
            let mut matches = false;
            let before = seen.values.len();
            self.attribute.any_value(&record, |value| {
                matches |= self.range.contains(value);
                seen.values.push(value.to_vec());
                false
            });
            seen.matches += usize::from(matches);
            seen.records += usize::from(seen.values.len() > before);
        }
        seen.values.sort_unstable();
        Ok(Some(seen))
    }

    fn of_parts(&self, parts: &[Part], memory: (f64, f64)) -> Result<f64> {
        if parts.is_empty() {
            return Ok(0.0);
        }
        let total: u64 = parts.iter().map(|part| part.entries).sum();
        let step = parts.len().div_ceil(PARTITIONS).max(1);
        let (mut blocks, mut entries) = (Vec::new(), 0);
        for part in parts
            .iter()
            .skip((parts.len() - 1).min(step / 2))
            .step_by(step)
        {
            self.blocks(part, &mut blocks)?;
            entries += part.entries;
        }
        if blocks.is_empty() || entries == 0 {
            return Ok(total as f64);
        }
        let (all, total) = (blocks.len() as f64, total as f64);
        let in_block = entries as f64 / all;
        let matching: Vec<&Block> = blocks.iter().filter(|block| block.may_match).collect();
        let Some(middle) = matching.get(matching.len() / 2) else {
            return Ok(0.0);
        };
        let share = matching.len() as f64 / all;
        let is_summarised = blocks.iter().any(|block| block.zone.is_some());
        let is_ordered = self.values.boxes.is_none() && self.range.regions.is_empty();
        if is_summarised && is_ordered && self.range.point().is_none() && are_in_order(&blocks) {
            return Ok(self.in_order(&blocks) * total);
        }
        let seen = self.look(&middle.table, &middle.hint)?;
        if self.range.point().is_some() || !is_ordered {
            return Ok(match seen {
                Some(seen) if is_summarised => {
                    let each = match (self.range.point(), seen.matches) {
                        (_, 0) if share * all < 2.0 => 0.0,
                        (_, 0) => 0.5,
                        (_, matches) => matches as f64,
                    };
                    let even = share * all * each * (total / entries as f64);
                    let records = seen.records.max(1) as f64;
                    match seen.matches {
                        // Where boxes leave nothing out: between one record of all and one of a block.
                        0 if self.values.boxes.is_some() => even.min((total / records).sqrt()),
                        _ => even,
                    }
                }
                Some(seen) => self.of_one(&seen, total, memory) * total,
                None => (share * total / in_block * OF_ONE).min(total),
            });
        }
        let (ends, are_texts) = (self.ends(parts), self.attribute.ty == Type::String);
        let distribution = Distribution::new(&blocks, in_block, seen.as_ref(), &ends, are_texts);
        let (lo, hi) = self.range.key_bounds();
        let below_hi = hi.map_or(1.0, |hi| distribution.below(&hi));
        Ok((below_hi - distribution.below(&lo)).max(0.0) * total)
    }

    /// The share of `total` records that have one value, by what a block and the memtables have: as often as there, or as other values
    /// that are rare.
    fn of_one(&self, seen: &Seen, total: f64, (in_memory, of_memory): (f64, f64)) -> f64 {
        let records = seen.records.max(1) as f64 + of_memory;
        let matches = seen.matches as f64 + in_memory;
        if matches > 1.0 {
            return matches / records;
        }
        let runs: Vec<usize> = (seen.values.chunk_by(|a, b| a == b))
            .map(<[_]>::len)
            .collect();
        let of = |times: usize| runs.iter().filter(|run| **run == times).count() as f64;
        // As many values are there as Chao's estimate says, of those that are in the block once or not at all.
        let (once, twice) = (of(1), of(2));
        let unseen = once * (once - 1.0).max(0.0) / (2.0 * (twice + 1.0));
        let least = once / seen.records.max(1) as f64 / (once + unseen).max(1.0);
        match seen.matches {
            // Between the least that it may be, and the most that may have been missed.
            0 => (least.max(1.0 / total.max(1.0)) / (records + 1.0)).sqrt(),
            _ => least.max(0.5 / records),
        }
    }

    /// The least and the greatest value, as far as tables say.
    fn ends(&self, parts: &[Part]) -> Vec<(Vec<u8>, f64)> {
        let (mut least, mut greatest): (Option<&[u8]>, Option<&[u8]>) = (None, None);
        for part in parts {
            let zones = part.table.meta().zones.iter();
            let mut zones = zones.filter(|(id, _)| *id == self.attribute.id);
            if let Some((_, Some((min, Some(max))))) = zones.next() {
                least = Some(least.map_or(min.as_slice(), |least| least.min(min)));
                greatest = Some(greatest.map_or(max.as_slice(), |greatest| greatest.max(max)));
            }
        }
        let ends = [(least, 0.0), (greatest, 1.0)].into_iter();
        ends.filter_map(|(end, share)| Some((end?.to_vec(), share)))
            .collect()
    }

    /// Notes the blocks of a partition.
    fn blocks(&self, part: &Part, out: &mut Vec<Block>) -> Result<()> {
        let (table, cost) = (&part.table, self.lookup.data_cost);
        let Some(slot) = part.slot else {
            let mut hints = Vec::new();
            table.all_blocks(part.partition, cost, &mut hints)?;
            out.extend(hints.into_iter().map(|hint| Block {
                table: table.clone(),
                hint,
                zone: None,
                may_match: true,
                is_full: true,
            }));
            return Ok(());
        };
        let mut show = |hint, zone: Option<(&[u8], Option<&[u8]>)>, may_match| {
            // Without bounds it is anything: nothing was summarised.
            let zone = zone.filter(|(min, max)| !min.is_empty() || max.is_some());
            out.push(Block {
                table: table.clone(),
                hint,
                zone: zone.map(|(min, max)| (min.to_vec(), max.map(<[u8]>::to_vec))),
                may_match,
                is_full: true,
            });
        };
        let (partition, values) = (part.partition, self.values);
        table.summaries(partition, slot, values, cost, &mut show)?;
        if let [.., _, last] = out.as_mut_slice() {
            last.is_full = false;
        }
        Ok(())
    }

    /// The share of records in the range, where blocks lie in the order of their values.
    fn in_order(&self, blocks: &[Block]) -> f64 {
        let (lo, hi) = self.range.key_bounds();
        let zones = blocks.iter().filter_map(|block| block.zone.as_ref());
        let shares = zones.map(|(min, max)| {
            let max = max.as_deref().unwrap_or(min);
            let below = |key: &[u8]| match key <= min.as_slice() {
                true => 0.0,
                false => part_before(min, max, key),
            };
            let below_hi = hi.as_deref().map_or(1.0, |hi| match hi > max {
                true => 1.0,
                false => below(hi),
            });
            (below_hi - below(&lo)).max(0.0)
        });
        shares.sum::<f64>() / blocks.len().max(1) as f64
    }
}

/// True when values come in the order of the records, more or less: many blocks lie wholly before the middle one.
fn are_in_order(blocks: &[Block]) -> bool {
    let mut zones: Vec<_> = blocks
        .iter()
        .filter_map(|block| block.zone.as_ref())
        .collect();
    zones.sort_unstable();
    let Some((middle, _)) = zones.get(zones.len() / 2) else {
        return false;
    };
    let is_before = |max: &Option<Vec<u8>>| max.as_ref().is_some_and(|max| max < middle);
    let before = zones.iter().filter(|(_, max)| is_before(max)).count();
    before as f64 > IN_ORDER * zones.len() as f64
}

/// Bytes of a text that tell where it lies between others.
const LETTERS: usize = 12;

/// So few letters at a place of texts are a sign: the others there do not occur.
const SIGNS: usize = 3;

/// The letters of texts: of bytes that no text has there is nothing between two.
struct Alphabet {
    /// At each place, those that occur, ascending.
    places: [Vec<u8>; LETTERS],
}

impl Alphabet {
    fn of<'v>(texts: impl Iterator<Item = &'v [u8]>) -> Alphabet {
        let (mut all, mut at) = ([false; 256], [[false; 256]; LETTERS]);
        for text in texts {
            for (place, letter) in at.iter_mut().zip(text) {
                for known in [&mut *place, &mut all] {
                    if let Some(known) = known.get_mut(usize::from(*letter)) {
                        *known = true;
                    }
                }
            }
        }
        let letters = |known: &[bool; 256]| -> Vec<u8> {
            let known = known.iter().zip(0..=u8::MAX);
            known
                .filter_map(|(known, letter)| known.then_some(letter))
                .collect()
        };
        let all = letters(&all);
        let places = at.map(|known| {
            let own = letters(&known);
            if own.len() <= SIGNS { own } else { all.clone() }
        });
        Alphabet { places }
    }

    /// A text as a number between 0 and 1, in the order of texts.
    fn number(&self, text: &[u8]) -> f64 {
        let (mut number, mut width) = (0.0, 1.0);
        for (letters, letter) in self.places.iter().zip(text) {
            width /= letters.len() as f64 + 1.0;
            let found = letters.binary_search(letter);
            let rank = found.unwrap_or_else(|rank| rank);
            number += (rank as f64 + 1.0) * width;
            if found.is_err() {
                break;
            }
        }
        number
    }

    fn part_before(&self, lo: &[u8], hi: &[u8], at: &[u8]) -> f64 {
        let (from, to) = (self.number(lo), self.number(hi));
        match to > from {
            true => ((self.number(at) - from) / (to - from)).clamp(0.0, 1.0),
            false => 0.5,
        }
    }
}

/// Points of a distribution of values: how large a share of all is below each, ascending.
struct Distribution {
    points: Vec<(Vec<u8>, f64)>,
    /// Of texts.
    alphabet: Option<Alphabet>,
}

impl Distribution {
    fn new(
        blocks: &[Block],
        in_block: f64,
        seen: Option<&Seen>,
        outer: &[(Vec<u8>, f64)],
        are_texts: bool,
    ) -> Distribution {
        let mut points = outer.to_vec();
        let full = || blocks.iter().filter(|block| block.is_full);
        let zones = || full().filter_map(|block| block.zone.as_ref());
        let mut least: Vec<&[u8]> = zones().map(|(min, _)| min.as_slice()).collect();
        let mut greatest: Vec<&[u8]> = zones().filter_map(|(_, max)| max.as_deref()).collect();
        least.sort_unstable();
        greatest.sort_unstable_by(|a, b| b.cmp(a));
        let alphabet = are_texts.then(|| {
            let values = seen.into_iter().flat_map(|seen| &seen.values);
            let zones = least.iter().chain(&greatest).copied();
            Alphabet::of(zones.chain(values.map(Vec::as_slice)))
        });
        let each = 1.0 / in_block.max(1.0);
        let all = least.len() as f64;
        // Of so many blocks those with something below a value tell the share of records below it; from the other end as well.
        let share = |rank: usize| {
            1.0 - (1.0 - (rank as f64 + 0.5) / all.max(1.0))
                .max(0.0)
                .powf(each)
        };
        for rank in ranks(least.len()) {
            points.extend(least.get(rank).map(|value| (value.to_vec(), share(rank))));
        }
        for rank in ranks(greatest.len()) {
            points.extend(
                greatest
                    .get(rank)
                    .map(|value| (value.to_vec(), 1.0 - share(rank))),
            );
        }
        points.sort_unstable_by(|(a, x), (b, y)| a.cmp(b).then(x.total_cmp(y)));
        // Between those of one end and those of the other the values of the block share what is left.
        let gap = points.partition_point(|(_, share)| *share < 0.5);
        let (before, behind) = (
            gap.checked_sub(1).and_then(|at| points.get(at)),
            points.get(gap),
        );
        if let (Some(seen), Some((lo, below)), Some((hi, above))) = (seen, before, behind) {
            let inside = |value: &&Vec<u8>| *value > lo && *value < hi;
            let values: Vec<&Vec<u8>> = seen.values.iter().filter(inside).collect();
            let each = (above - below) / values.len().max(1) as f64;
            let some = values.iter().enumerate().skip(STEP / 2).step_by(STEP);
            let some = some.map(|(at, value)| (value.to_vec(), below + (at as f64 + 0.5) * each));
            points.extend(some.collect::<Vec<_>>());
            points.sort_unstable_by(|(a, x), (b, y)| a.cmp(b).then(x.total_cmp(y)));
        }
        let mut most = 0.0_f64;
        for (_, share) in &mut points {
            most = most.max(*share);
            *share = most;
        }
        Distribution { points, alphabet }
    }

    /// The share of values below one.
    fn below(&self, value: &[u8]) -> f64 {
        let at = self
            .points
            .partition_point(|(point, _)| point.as_slice() < value);
        let before = at.checked_sub(1).and_then(|at| self.points.get(at));
        match (before, self.points.get(at)) {
            (None, _) => 0.0,
            (Some(_), None) => 1.0,
            (Some((lo, below)), Some((hi, above))) => {
                let part = match &self.alphabet {
                    Some(alphabet) => alphabet.part_before(lo, hi, value),
                    None => part_before(lo, hi, value),
                };
                below + (above - below) * part
            }
        }
    }
}

/// Ranks that are points of a distribution, ascending: closer together at both ends, where shares change most.
fn ranks(all: usize) -> Vec<usize> {
    let half = all.div_ceil(2);
    let (mut ranks, mut next) = (Vec::new(), 0);
    while next < half {
        ranks.push(next);
        next += (next / 4).max(1);
    }
    let mirrored: Vec<usize> = ranks.iter().map(|rank| all - 1 - rank).rev().collect();
    // The last are of blocks that have fewer records than others.
    let most = all * 97 / 100;
    ranks.extend(
        mirrored
            .into_iter()
            .filter(|rank| (half..=most).contains(rank)),
    );
    ranks
}
