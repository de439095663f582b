//! Checking a store: the engine's files, and that indexes and data agree.

use lsm::{Cost, Cursor, Seq, Snapshot};

use crate::database::Database;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::index;
use crate::layout::Attribute;
use crate::record::RecordRef;

/// What a check found.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// Everything that is wrong.
    pub errors: Vec<String>,
    /// Table files read.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Entries in them, those of indexes included.
    pub entries: u64,
    /// Records of all datasets.
    pub records: u64,
    /// Facts of stand-alone indexes that were compared with the data.
    pub facts: u64,
}

/// Facts whose keys are looked up in the data together.
const BATCH: usize = 4096;

/// Fewer when they take more than so many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// A sum over facts that does not depend on their order: equal sets have equal sums, and different
/// ones differ but for a chance of 1 in 2^64.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Sum {
    facts: u64,
    hash: u64,
}

impl Sum {
    fn add(&mut self, value: &[u8], key: &[u8], seq: Seq) {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (value, key, seq).hash(&mut hasher);
        self.facts += 1;
        self.hash = self.hash.wrapping_add(hasher.finish());
    }
}

impl Database {
    /// Reads every file and compares every stand-alone index with the data, in bounded memory. All
    /// damage is reported, not the first only.
    pub fn check(&self) -> Result<CheckReport> {
        let engine = self.group().check();
        let mut report = CheckReport {
            errors: engine.errors.iter().map(ToString::to_string).collect(),
            files: engine.tables,
            bytes: engine.bytes,
            entries: engine.entries,
            ..CheckReport::default()
        };
        for name in self.dataset_names() {
            let dataset = self.dataset(&name)?;
            if let Err(error) = check_dataset(&dataset, &mut report) {
                report.errors.push(format!("dataset {name}: {error}"));
            }
        }
        report.errors.sort();
        report.errors.dedup();
        Ok(report)
    }
}

fn check_dataset(dataset: &Dataset, report: &mut CheckReport) -> Result<()> {
    let snapshot = dataset.snapshot().snapshot;
    let layout = &dataset.layout;
    let mut expected = vec![Sum::default(); layout.attributes.len()];
    let mut cursor = snapshot.cursor(layout.data, 256 << 10);
    cursor.seek_first()?;
    while cursor.valid() {
        report.records += 1;
        let record = RecordRef::parse(cursor.value())
            .ok_or_else(|| Error::damaged("a stored record is malformed"))?;
        for (id, value) in record.attributes() {
            let known = layout
                .attributes
                .iter()
                .zip(&mut expected)
                .find(|(a, _)| a.id == id);
            if let Some((_, sum)) = known {
                sum.add(value, cursor.key(), cursor.seq());
            }
        }
        cursor.next()?;
    }
    for (attribute, expected) in layout.attributes.iter().zip(expected) {
        if !attribute.kind.is_standalone() {
            continue;
        }
        let found = current_facts(dataset, &snapshot, attribute)?;
        report.facts += found.facts;
        if found != expected {
            report.errors.push(format!(
                "dataset {}: the {} index of {} has {} current facts, the data has {}{}",
                layout.name,
                attribute.kind,
                attribute.path,
                found.facts,
                expected.facts,
                if found.facts == expected.facts {
                    ", and they differ"
                } else {
                    ""
                },
            ));
        }
    }
    Ok(())
}

/// The sum of an index's facts that the data confirms.
fn current_facts(dataset: &Dataset, snapshot: &Snapshot, attribute: &Attribute) -> Result<Sum> {
    let mut check = Check {
        dataset,
        snapshot,
        batch: Vec::new(),
        bytes: 0,
        sum: Sum::default(),
    };
    let everything = (&[][..], None);
    let cost = Cost::default();
    index::each_fact(
        snapshot,
        attribute,
        everything,
        256 << 10,
        &cost,
        &mut |value, key, seq| {
            check.bytes += key.len() + value.len();
            check.batch.push((key.to_vec(), seq, value.to_vec()));
            if check.batch.len() < BATCH && check.bytes < BATCH_BYTES {
                return Ok(());
            }
            check.flush()
        },
    )?;
    check.flush()?;
    Ok(check.sum)
}

struct Check<'a> {
    dataset: &'a Dataset,
    snapshot: &'a Snapshot,
    batch: Vec<(Vec<u8>, Seq, Vec<u8>)>,
    bytes: usize,
    sum: Sum,
}

impl Check<'_> {
    fn flush(&mut self) -> Result<()> {
        self.batch.sort();
        let keys: Vec<&[u8]> = self
            .batch
            .iter()
            .map(|(key, _, _)| key.as_slice())
            .collect();
        let (data, cost) = (self.dataset.layout.data, Cost::default());
        let (batch, sum) = (&self.batch, &mut self.sum);
        self.snapshot
            .visit_batch(data, &keys, &cost, &mut |at, found| {
                if let Some((key, seq, value)) = batch.get(at)
                    && found.seq == *seq
                {
                    sum.add(value, key, *seq);
                }
            })?;
        self.batch.clear();
        self.bytes = 0;
        Ok(())
    }
}
