//! Checking a store: the engine's files, that indexes and data agree, and that what is known to be over is.

use lsm::{
    Component, Cost, Cursor, Expected, Kind, LookupOptions, Seq, Snapshot, Superseded, TreeCursor,
};

use crate::database::Database;
use crate::dataset::Dataset;
use crate::def::Maintenance;
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
            // One that is dropped meanwhile has nothing to check.
            let Ok(dataset) = self.dataset(&name) else {
                continue;
            };
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
    if now.is_dropped() {
        return Ok(());
    }
    let (snapshot, layout) = (&now.snapshot, &now.layout);
    let building = layout.building.as_ref();
    let gathered = match building.and_then(|building| building.staging) {
        Some(staging) => Gathered::read(snapshot, staging)?,
        None => Gathered::default(),
    };
    let mut expected = vec![Sum::default(); layout.attributes.len()];
    // Of an index that is being built: what writes have brought, and what was gathered.
    let (mut written, mut staged) = (Sum::default(), Sum::default());
    let over = layout.superseded.and_then(|tree| snapshot.superseded(tree));
    let known = Known::new(layout, over);
    let mut upkeep = UpkeepCheck::new(snapshot, layout, &known)?;
    let mut cursor = snapshot.cursor(layout.data, 256 << 10);
    cursor.seek_first()?;
    while cursor.valid() {
        upkeep.record(cursor.key(), cursor.seq())?;
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
    let wrong = upkeep.finish()?;
    let wrong = wrong.map(|what| format!("dataset {}: {what}", dataset.name()));
    report.errors.extend(wrong);
    let mut compare = |what: String, expected: Sum, (found, unknown): (Sum, u64)| {
        if unknown > 0 {
            report.errors.push(format!(
                "dataset {}: {what} {unknown} facts that are over and not known to be",
                dataset.name(),
            ));
        }
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
        let (everything, cost) = ((&[][..], None), Cost::default());
        if known.maintenance != Maintenance::Eager {
            return index::each_fact(snapshot, attribute, everything, 256 << 10, &cost, visit);
        }
        // What was taken back is no fact any more.
        index::each_live_fact(
            snapshot,
            attribute,
            everything,
            &cost,
            &mut |value, key, seq, _| visit(value, key, seq),
        )
    };
    for (attribute, expected) in layout.attributes.iter().zip(expected) {
        if attribute.kind.is_standalone() {
            let found = current_facts(snapshot, layout, &known, |visit| all(attribute, visit))?;
            let what = format!("the {} index of {} has", attribute.kind, attribute.path);
            compare(what, expected, found);
        }
    }
    if let Some(building) = building
        && let Some(staging) = building.staging
    {
        let attribute = &building.attribute;
        let what = format!("the {} index of {}", attribute.kind, attribute.path);
        let found = current_facts(snapshot, layout, &Known::default(), |visit| {
            all(attribute, visit)
        })?;
        compare(format!("{what}, being built, has"), written, found);
        let found = current_facts(snapshot, layout, &Known::default(), |visit| {
            each_staged(snapshot, staging, attribute, 256 << 10, visit)
        })?;
        compare(format!("for {what} there are"), staged, found);
    }
    Ok(())
}

/// What is known of the writes of a dataset that are over.
#[derive(Default)]
struct Known {
    over: Option<Superseded>,
    maintenance: Maintenance,
    /// Every fact that is over must be known to be.
    exact: bool,
    /// Every fact must be known to be over that was superseded up to here.
    mark: Seq,
}

impl Known {
    fn new(layout: &Layout, over: Option<Superseded>) -> Known {
        let upkeep = &layout.stored.upkeep;
        let mark = over.as_ref().map_or(0, Superseded::mark);
        Known {
            exact: upkeep.maintenance.looks_at_writes() && mark >= upkeep.since,
            // Of several versions all are facts.
            mark: if upkeep.versions == 1 { mark } else { 0 },
            maintenance: upkeep.maintenance,
            over,
        }
    }

    fn is_over(&self, seq: Seq) -> bool {
        self.over.as_ref().is_some_and(|over| over.contains(seq))
    }

    /// True when a fact should be known to be over, given the newest entry of its key.
    fn misses(&self, seq: Seq, newest: Option<Seq>) -> bool {
        let must = self.exact || newest.is_some_and(|newest| newest <= self.mark);
        must && !self.is_over(seq)
    }
}

/// Compares the primary-key index and the set of writes that are over with the records, as these go by.
struct UpkeepCheck<'a> {
    known: &'a Known,
    keys: Option<TreeCursor>,
    /// Records whose keys are not in the primary-key index with their numbers, or the other way round; and
    /// records whose writes are said to be over.
    different: u64,
    hidden: u64,
}

impl<'a> UpkeepCheck<'a> {
    fn new(snapshot: &Snapshot, layout: &Layout, known: &'a Known) -> Result<UpkeepCheck<'a>> {
        let mut keys = layout.keys.map(|tree| snapshot.cursor(tree, 256 << 10));
        if let Some(keys) = &mut keys {
            keys.seek_first()?;
        }
        Ok(UpkeepCheck {
            known,
            keys,
            different: 0,
            hidden: 0,
        })
    }

    fn record(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.hidden += u64::from(self.known.is_over(seq));
        let Some(keys) = &mut self.keys else {
            return Ok(());
        };
        while keys.valid() && keys.key() < key {
            self.different += 1;
            keys.next()?;
        }
        if keys.valid() && keys.key() == key {
            self.different += u64::from(keys.seq() != seq);
            keys.next()?;
        } else {
            self.different += 1;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<impl Iterator<Item = String>> {
        while let Some(keys) = &mut self.keys
            && keys.valid()
        {
            self.different += 1;
            keys.next()?;
        }
        let counted = [
            (
                self.different,
                "keys differ between the primary-key index and the data",
            ),
            (self.hidden, "records are current, and said to be over"),
        ];
        let wrong = counted.into_iter().filter(|(count, _)| *count > 0);
        Ok(wrong.map(|(count, what)| format!("{count} {what}")))
    }
}

/// The sum of those facts that `each` gives that the data confirms, and the number of those that are over and
/// should be known to be.
fn current_facts(
    snapshot: &Snapshot,
    layout: &Layout,
    known: &Known,
    each: impl FnOnce(&mut VisitFact<'_>) -> Result<()>,
) -> Result<(Sum, u64)> {
    let mut check = Check {
        snapshot,
        data: snapshot.components(layout.data),
        known,
        batch: Vec::new(),
        bytes: 0,
        sum: Sum::default(),
        unknown: 0,
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
    Ok((check.sum, check.unknown))
}

struct Check<'a> {
    snapshot: &'a Snapshot,
    data: Vec<Component>,
    known: &'a Known,
    batch: Vec<(Vec<u8>, Seq, Vec<u8>)>,
    bytes: usize,
    sum: Sum,
    unknown: u64,
}

impl Check<'_> {
    fn flush(&mut self) -> Result<()> {
        self.batch.sort();
        let keys: Vec<&[u8]> = self
            .batch
            .iter()
            .map(|(key, _, _)| key.as_slice())
            .collect();
        let (cost, options) = (Cost::default(), LookupOptions::default());
        let mut newest = vec![None; keys.len()];
        self.snapshot
            .lookup(&self.data, &keys, Expected::Unknown, options, &cost)
            .with_deletes()
            .visit_all(&mut |at, found| {
                if let Some(slot) = newest.get_mut(at) {
                    *slot = Some((found.seq, found.kind));
                }
            })?;
        for ((key, seq, value), newest) in self.batch.iter().zip(newest) {
            if newest == Some((*seq, Kind::Put)) {
                self.sum.add(value, key, *seq);
            } else if self.known.misses(*seq, newest.map(|(newest, _)| newest)) {
                self.unknown += 1;
            }
        }
        self.batch.clear();
        self.bytes = 0;
        Ok(())
    }
}
