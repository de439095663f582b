//! A sample of the data's blocks, and its estimates for an attribute: selectivity of zone maps,
//! number of values.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use esker_lsm::coding::Own;
use esker_lsm::memtable::Memtable;
use esker_lsm::table::BlockHint;
use esker_lsm::version::TableFile;
use esker_lsm::{Component, Cost, Cursor, Kind, LookupOptions, Snapshot};
use esker_model::record::RecordRef;
use esker_model::schema::{Extracted, Extraction};

use crate::bodies::{Bodies, StoredRecord};
use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::Attribute;
use crate::index::cost::AttributeProfile;
use crate::store::{has_expired, records_in};

/// The approximate number of data blocks that are read: at 4 KiB each, some milliseconds from the
/// cache, some tenths of a second from a disk.
const SAMPLED_BLOCKS: u64 = 2048;

/// The assumed block size of memtables, which have no blocks.
const MEMTABLE_BLOCK: usize = 4 << 10;

/// The maximum number of blocks with whose values the zone maps of the others are probed.
const MAX_PROBED: usize = 256;

/// Extracts the values of an attribute from a record.
pub(super) enum Reader<'a> {
    Declared(&'a Attribute),
    Undeclared(Extraction),
}

impl Reader<'_> {
    /// The record's values; none if the record does not fit the attribute: the sample is an
    /// estimate.
    fn values(&self, record: &RecordRef<'_>, out: &mut Extracted) -> Vec<Vec<u8>> {
        match self {
            Reader::Declared(attribute) => attribute.values_of(record, out).unwrap_or_default(),
            Reader::Undeclared(extraction) => match extraction.extract(record.body(), out) {
                Ok(()) => out.values(0).map(<[u8]>::to_vec).collect(),
                Err(_) => Vec::new(),
            },
        }
    }
}

/// The zone map of a block, and one of its values. `min` <= `probe` <= `max`.
struct Zone {
    min: Vec<u8>,
    max: Vec<u8>,
    /// The value with which the zone maps of other blocks are probed.
    probe: Vec<u8>,
}

/// The estimates from a sample.
pub(super) struct Measurements {
    /// About how many records have not expired.
    pub(super) records: u64,
    /// By attribute, in the order of the readers.
    pub(super) profiles: Vec<AttributeProfile>,
}

/// The sampled values of an attribute.
#[derive(Default)]
struct SampledValues {
    /// Of the blocks that have a value.
    zones: Vec<Zone>,
    /// The number of occurrences of each value.
    counts: HashMap<Vec<u8>, u64>,
    /// Sampled records that have a value.
    records: u64,
}

/// Estimates the number of records that have not expired, and the profile of each attribute, from
/// up to about [`SAMPLED_BLOCKS`] blocks, evenly spread over the data. Replaced versions count as
/// records until compactions drop them.
pub(super) fn measure(
    snapshot: &Snapshot,
    layout: &Layout,
    readers: &[&Reader<'_>],
    cost: &Cost,
) -> Result<Measurements> {
    let data = layout.data;
    let needs_json = readers.iter().any(|reader| match reader {
        Reader::Declared(attribute) => !layout.stored.in_all_records(attribute.id),
        Reader::Undeclared(_) => true,
    });
    let mut sample = Sample {
        bodies: if needs_json {
            Bodies::new(layout, snapshot)?
        } else {
            Bodies::not_needed(snapshot)
        },
        cost,
        snapshot,
        readers,
        values: readers.iter().map(|_| SampledValues::default()).collect(),
        entries: 0,
        live: 0,
        out: Extracted::default(),
    };
    let components = snapshot.components(data);
    let entries: u64 = components.iter().map(entries_of).sum();
    let share = |part: u64| (SAMPLED_BLOCKS * part / entries.max(1)).max(1);
    for component in &components {
        match component {
            Component::Memtable(memtable) => {
                sample.memtable(memtable, share(memtable.len() as u64))?;
            }
            Component::Run(run) => {
                for file in run.tables.iter() {
                    sample.table(file, share(file.meta().entries))?;
                }
            }
        }
    }
    let records: u64 = components.iter().map(records_in).sum();
    let scale = records as f64 / sample.entries.max(1) as f64;
    let profiles = sample.values.iter().map(|values| values.profile(scale));
    Ok(Measurements {
        records: (sample.live as f64 * scale).round() as u64,
        profiles: profiles.collect(),
    })
}

/// The number of entries of a component.
fn entries_of(component: &Component) -> u64 {
    match component {
        Component::Memtable(memtable) => memtable.len() as u64,
        Component::Run(run) => run.tables.iter().map(|table| table.meta().entries).sum(),
    }
}

/// The sample so far.
struct Sample<'a> {
    snapshot: &'a Snapshot,
    bodies: Bodies<'a>,
    cost: &'a Cost,
    readers: &'a [&'a Reader<'a>],
    /// By reader.
    values: Vec<SampledValues>,
    /// The number of sampled records.
    entries: u64,
    /// The number of those that have not expired.
    live: u64,
    /// A buffer for extracting values.
    out: Extracted,
}

impl Sample<'_> {
    /// Reads about `share` parts of a memtable of the size of a block each, or all if it has fewer.
    fn memtable(&mut self, memtable: &Memtable, share: u64) -> Result<()> {
        let each = (memtable.memory() / memtable.len().max(1)).max(1);
        let per_block = (MEMTABLE_BLOCK / each).max(2);
        let blocks = (memtable.len() / per_block).max(1) as u64;
        let step = (blocks / share).max(1) as usize;
        let mut cursor = memtable.cursor();
        cursor.seek_first()?;
        let (mut block, mut puts) = (Vec::new(), 0);
        while cursor.valid() {
            self.cost.check()?;
            if cursor.kind() == Kind::Put && cursor.seq() <= self.snapshot.seq() {
                if (puts / per_block).is_multiple_of(step) {
                    block.push(StoredRecord::new(
                        cursor.key(),
                        cursor.seq(),
                        cursor.value_slice(),
                    ));
                }
                puts += 1;
                if puts.is_multiple_of(per_block) && !block.is_empty() {
                    self.block(&mut block)?;
                    block.clear();
                }
            }
            cursor.next()?;
        }
        if block.is_empty() {
            Ok(())
        } else {
            self.block(&mut block)
        }
    }

    /// Reads `share` blocks of a table, or all if it has fewer.
    fn table(&mut self, file: &Arc<TableFile>, share: u64) -> Result<()> {
        let cost = self.cost;
        let table = file.table()?;
        let partitions = table.partitions() as u64;
        let mut hints: Vec<BlockHint> = Vec::new();
        let mut hinted = None;
        let mut last_read = None;
        for nth in 0..share {
            // The middle of the nth of `share` parts, in thousandths of a partition.
            let place = (2 * nth + 1) * partitions * 1000 / (2 * share);
            let partition = (place / 1000) as usize;
            if hinted != Some(partition) {
                hints.clear();
                table.all_blocks(partition, cost, &mut hints)?;
                hinted = Some(partition);
            }
            let block = (place % 1000) as usize * hints.len() / 1000;
            if last_read == Some((partition, block)) {
                continue;
            }
            last_read = Some((partition, block));
            let hint = hints.item(block)?;
            let mut entries = table.block_entries(hint, cost)?;
            let mut records = Vec::new();
            while entries.advance()? {
                if entries.kind() == Kind::Put {
                    let (key, seq) = (entries.key(), entries.seq());
                    records.push(StoredRecord::new(key, seq, entries.value_slice()));
                }
            }
            self.block(&mut records)?;
        }
        Ok(())
    }

    /// Adds the records of a block to the sample.
    fn block(&mut self, records: &mut [StoredRecord]) -> Result<()> {
        for (at, item) in records.iter().enumerate() {
            if self.bodies.lacks(&item.stored) {
                self.bodies.add(at, &item.key, item.seq, &item.stored)?;
            }
        }
        // Some heads are obsolete, and their records may be gone: the head is used then.
        let take = &mut |at: usize, record| {
            records.own_mut(at).stored = record;
            Ok(())
        };
        self.bodies
            .read_existing(LookupOptions::default(), self.cost, take)?;
        let mut zones: Vec<Option<Zone>> = self.readers.iter().map(|_| None).collect();
        debug_assert_eq!(self.values.len(), zones.len());
        for StoredRecord { stored, .. } in &*records {
            let record = RecordRef::parse(stored)
                .ok_or_else(|| Error::damaged("a stored record is malformed"))?;
            self.entries += 1;
            if has_expired(self.snapshot, stored) {
                continue;
            }
            self.live += 1;
            for ((reader, sampled), zone) in
                self.readers.iter().zip(&mut self.values).zip(&mut zones)
            {
                // Sorted, so that the first value of a block represents it.
                let values: BTreeSet<Vec<u8>> =
                    reader.values(&record, &mut self.out).into_iter().collect();
                sampled.records += u64::from(!values.is_empty());
                for value in values {
                    Zone::include(zone, &value);
                    *sampled.counts.entry(value).or_default() += 1;
                }
            }
        }
        for (sampled, zone) in self.values.iter_mut().zip(zones) {
            sampled.zones.extend(zone);
        }
        Ok(())
    }
}

impl Zone {
    /// Extends a zone map, or begins one, so that it includes a value.
    fn include(zone: &mut Option<Zone>, value: &[u8]) {
        match zone {
            Some(zone) if value < zone.min.as_slice() => zone.min = value.to_vec(),
            Some(zone) if value > zone.max.as_slice() => zone.max = value.to_vec(),
            Some(_) => {}
            None => {
                *zone = Some(Zone {
                    min: value.to_vec(),
                    max: value.to_vec(),
                    probe: value.to_vec(),
                });
            }
        }
    }
}

impl SampledValues {
    /// The profile of the attribute; each sampled record stands for `scale` records.
    fn profile(&self, scale: f64) -> AttributeProfile {
        let records = self.records as f64 * scale;
        let counted: u64 = self.counts.values().sum();
        let most = self.counts.values().max().copied().unwrap_or(0);
        AttributeProfile {
            records,
            pruned: self.pruned(),
            distinct: self.distinct(records),
            top_share: most as f64 / counted.max(1) as f64,
        }
    }

    /// The share of zone maps that exclude a value of another block, for the values of up to
    /// [`MAX_PROBED`] blocks.
    fn pruned(&self) -> Option<f64> {
        if self.zones.len() < 2 {
            return None;
        }
        let step = self.zones.len().div_ceil(MAX_PROBED);
        let (mut kept, mut pairs) = (0, 0);
        for (at, probed) in self.zones.iter().enumerate().step_by(step) {
            pairs += self.zones.len() - 1;
            let others = self
                .zones
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != at);
            kept += others
                .filter(|(_, zone)| zone.min <= probed.probe && probed.probe <= zone.max)
                .count();
        }
        Some(1.0 - kept as f64 / pairs as f64)
    }

    /// Chao's lower bound: the sampled values, and an estimate of the others from the numbers of
    /// values that occur once and twice; at most one per record. Exact if the sample has all
    /// records.
    fn distinct(&self, records: f64) -> f64 {
        let seen = self.counts.len() as f64;
        if records <= self.records as f64 {
            return seen;
        }
        let times = |n: u64| self.counts.values().filter(|count| **count == n).count() as f64;
        let (once, twice) = (times(1), times(2));
        let unseen = once * (once - 1.0).max(0.0) / (2.0 * (twice + 1.0));
        (seen + unseen).min(records.max(seen))
    }
}
