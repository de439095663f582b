//! Checking a store: the engine's files, and that indexes and data agree.

use lsm::{Cost, Cursor, Seq, Snapshot, TreeId};

use crate::database::Database;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::index::build::{Gathered, each_staged};
use crate::index::{self, VisitFact};
use crate::layout::{Attribute, Layout};
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

    /// Adds the facts of a record.
    fn add_values(&mut self, attribute: &Attribute, record: &RecordRef<'_>, key: &[u8], seq: Seq) {
        attribute.each_token(record, &mut |token| self.add(token, key, seq));
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
    let now = dataset.snapshot();
    let (snapshot, layout) = (&now.snapshot, &now.layout);
    let building = layout.building.as_ref();
    let gathered = match building.and_then(|building| building.staging) {
        Some(staging) => Gathered::read(snapshot, staging)?,
        None => Gathered::default(),
    };
    let mut expected = vec![Sum::default(); layout.attributes.len()];
    // Of an index that is being built: what writes have brought, and what was gathered.
    let (mut written, mut staged) = (Sum::default(), Sum::default());
    let mut cursor = snapshot.cursor(layout.data, 256 << 10);
    cursor.seek_first()?;
    while cursor.valid() {
        report.records += 1;
        let record = RecordRef::parse(cursor.value())
            .ok_or_else(|| Error::damaged("a stored record is malformed"))?;
        let (key, seq) = (cursor.key(), cursor.seq());
        for (attribute, sum) in layout.attributes.iter().zip(&mut expected) {
            if attribute.kind.is_standalone() {
                sum.add_values(attribute, &record, key, seq);
            }
        }
        if let Some(building) = building {
            let reached = gathered.complete || (gathered.pieces > 0 && *key <= *gathered.last);
            if seq > building.since {
                written.add_values(&building.attribute, &record, key, seq);
            } else if reached {
                staged.add_values(&building.attribute, &record, key, seq);
            }
        }
        cursor.next()?;
    }
    let mut compare = |what: String, expected: Sum, found: Sum| {
        report.facts += found.facts;
        if found != expected {
            report.errors.push(format!(
                "dataset {}: {what} {} current facts, the data has {}{}",
                dataset.name(),
                found.facts,
                expected.facts,
                if found.facts == expected.facts {
                    ", and they differ"
                } else {
                    ""
                },
            ));
        }
    };
    let all = |attribute, visit: &mut VisitFact<'_>| {
        let everything = (&[][..], None);
        index::each_fact(
            snapshot,
            attribute,
            everything,
            256 << 10,
            &Cost::default(),
            visit,
        )
    };
    for (attribute, expected) in layout.attributes.iter().zip(expected) {
        if attribute.kind.is_standalone() {
            let found = current_facts(snapshot, layout, |visit| all(attribute, visit))?;
            let what = format!("the {} index of {} has", attribute.kind, attribute.path);
            compare(what, expected, found);
        }
    }
    if let Some(building) = building
        && let Some(staging) = building.staging
    {
        let attribute = &building.attribute;
        let what = format!("the {} index of {}", attribute.kind, attribute.path);
        let found = current_facts(snapshot, layout, |visit| all(attribute, visit))?;
        compare(format!("{what}, being built, has"), written, found);
        let found = current_facts(snapshot, layout, |visit| {
            each_staged(snapshot, staging, attribute, 256 << 10, visit)
        })?;
        compare(format!("for {what} there are"), staged, found);
    }
    Ok(())
}

/// The sum of those facts that `each` gives that the data confirms.
fn current_facts(
    snapshot: &Snapshot,
    layout: &Layout,
    each: impl FnOnce(&mut VisitFact<'_>) -> Result<()>,
) -> Result<Sum> {
    let mut check = Check {
        snapshot,
        data: layout.data,
        batch: Vec::new(),
        bytes: 0,
        sum: Sum::default(),
    };
    each(&mut |value, key, seq| {
        check.bytes += key.len() + value.len();
        check.batch.push((key.to_vec(), seq, value.to_vec()));
        if check.batch.len() < BATCH && check.bytes < BATCH_BYTES {
            return Ok(());
        }
        check.flush()
    })?;
    check.flush()?;
    Ok(check.sum)
}

struct Check<'a> {
    snapshot: &'a Snapshot,
    data: TreeId,
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
        let cost = Cost::default();
        let (batch, sum) = (&self.batch, &mut self.sum);
        self.snapshot
            .visit_batch(self.data, &keys, &cost, &mut |at, found| {
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
