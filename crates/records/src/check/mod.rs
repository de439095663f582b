//! The check of a store: the engine's files, and all derived data against its source. Index
//! entries, keys, replaced values and the obsolete set are checked against the records and their
//! versions (`obsolete.rs`); synopses of tables against their entries (by the engine); sequence
//! numbers in definitions against the last write (`numbers.rs`).

mod expiry;
mod numbers;
mod obsolete;
mod placed;

use std::collections::HashSet;
use std::sync::Arc;

use esker_lsm::{Component, Cursor, Expected, Kind, LookupOptions, Seq, Snapshot, Stop, TreeId};
use esker_model::record::RecordRef;
use obsolete::{Derived, Known};

use self::expiry::Expiring;
use crate::catalog::{Attribute, Layout, dataset_of, is_of_extension};
use crate::error::{Error, Result};
use crate::index::build::{Gathered, each_staged};
use crate::index::{self, Looks, Lookup, VisitFact};
use crate::store::{Ahead, Handle, Store};

/// The findings of a check.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Everything that is wrong, one text each.
    pub errors: Vec<String>,
    /// Table files read.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Entries in these files, including index entries.
    pub entries: u64,
    /// Records of all datasets.
    pub records: u64,
    /// Index entries of stand-alone indexes that were compared with the data.
    pub index_entries: u64,
}

/// Read-ahead of scans.
const READAHEAD: usize = 256 << 10;

/// The most index entries whose keys are looked up together.
const BATCH: usize = 4096;

/// The most bytes of these entries.
const BATCH_BYTES: usize = 1 << 20;

/// A sum over index entries that does not depend on their order: equal sets have equal sums;
/// different sets have equal sums with a chance of 1 in 2^64.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Sum {
    index_entries: u64,
    hash: u64,
}

impl Sum {
    fn add(&mut self, value: &[u8], key: &[u8], seq: Seq) {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (value, key, seq).hash(&mut hasher);
        self.index_entries += 1;
        self.hash = self.hash.wrapping_add(hasher.finish());
    }

    /// Adds the index entries of a record.
    fn add_values(&mut self, attribute: &Attribute, record: &RecordRef<'_>, key: &[u8], seq: Seq) {
        attribute.each_token(record, &mut |token| self.add(token, key, seq));
    }
}

/// Checks a store: see [`crate::Database::check`].
pub(crate) fn check(store: &Arc<Store>, stop: Option<&Stop>) -> Result<CheckReport> {
    let engine = store.group.check_until(stop)?;
    let mut report = CheckReport {
        errors: engine.errors.iter().map(ToString::to_string).collect(),
        files: engine.tables,
        bytes: engine.bytes,
        entries: engine.entries,
        ..CheckReport::default()
    };
    report.errors.extend(store.ownerless_trees());
    for current in store.currents() {
        let dataset = Handle {
            stop: stop.cloned(),
            ..Handle::new(store.clone(), current, None)
        };
        match check_dataset(&dataset, &mut report) {
            Err(error @ Error::Cancelled { .. }) => return Err(error),
            Err(error) => report
                .errors
                .push(format!("dataset {}: {error}", dataset.name())),
            Ok(()) => {}
        }
    }
    report.errors.sort();
    report.errors.dedup();
    Ok(report)
}

impl Store {
    /// Trees that belong to no dataset's definition.
    fn ownerless_trees(&self) -> Vec<String> {
        let snapshot = self.group.snapshot();
        let version = snapshot.version();
        let mut known: HashSet<TreeId> = HashSet::new();
        for tree in version.trees.values() {
            let layout = dataset_of(&tree.name).and_then(|name| Layout::new(name, version));
            known.extend(layout.iter().flat_map(Layout::trees));
        }
        let unknown = version
            .trees
            .values()
            .filter(|t| !known.contains(&t.id) && !is_of_extension(&t.name));
        unknown
            .map(|tree| format!("tree {}: it belongs to no dataset", tree.name))
            .collect()
    }
}

fn check_dataset(dataset: &Handle, report: &mut CheckReport) -> Result<()> {
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
    let mut expect = Expect {
        layout,
        gathered: &gathered,
        expected: vec![Sum::default(); layout.attributes.len()],
        written: Sum::default(),
        staged: Sum::default(),
    };
    // Stubs lack the values of attributes that were declared later.
    let late = layout.has_late_attributes();
    let (mut stubs, mut ahead) = (Sum::default(), Ahead::new());
    let set = layout.superseded.and_then(|tree| snapshot.superseded(tree));
    let known = Known::new(layout, set);
    let wrong = |error: String| format!("dataset {}: {error}", dataset.name());
    report
        .errors
        .extend(numbers::check(layout, snapshot).into_iter().map(wrong));
    let mut expiring = Expiring::default();
    let mut derived = Derived::new(snapshot, layout, &known)?;
    let mut cursor = snapshot.entries(layout.data, READAHEAD);
    cursor.seek_first()?;
    let mut last: Option<Vec<u8>> = None;
    while cursor.valid() {
        let (key, seq, kind) = (cursor.key(), cursor.seq(), cursor.kind());
        let record = match kind {
            Kind::Put => Some(
                RecordRef::parse(cursor.value())
                    .ok_or_else(|| Error::damaged("a stored record is malformed"))?,
            ),
            _ => None,
        };
        if last.as_deref() == Some(key) {
            derived.older(seq, kind, record.as_ref())?;
            cursor.next()?;
            continue;
        }
        let last = last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        derived.newest(key, seq, record.as_ref())?;
        if let Some(record) = record {
            report.records += 1;
            expiring.add(cursor.value(), key, seq);
            let is_stub = RecordRef::is_stub(cursor.value());
            if is_stub {
                stubs.add(cursor.value(), key, seq);
            }
            match is_stub && late {
                true => ahead.push(key, seq, cursor.value_slice()),
                false => expect.add(&record, key, seq),
            }
        }
        cursor.next()?;
        if ahead.is_full() {
            expect.add_buffered(&mut ahead, snapshot)?;
        }
    }
    expect.add_buffered(&mut ahead, snapshot)?;
    let Expect {
        expected,
        written,
        staged,
        ..
    } = expect;
    report.errors.extend(derived.finish()?.map(wrong));
    match expiring.finish(layout, snapshot) {
        Ok(error) => report.errors.extend(error.map(wrong)),
        Err(error @ Error::Cancelled { .. }) => return Err(error),
        Err(error) => report
            .errors
            .push(wrong(format!("the tree of expiry times: {error}"))),
    }
    match layout.clustered() {
        Some(attribute) => {
            let each = |visit: &mut VisitFact<'_>| placed::each_stub(snapshot, attribute, visit);
            let by_place = match current_entries(snapshot, layout, &Known::nothing(), each) {
                Err(error @ Error::Cancelled { .. }) => return Err(error),
                found => found.map(|(found, _)| found),
            };
            match by_place {
                Ok(found) if found == stubs => {}
                Ok(found) => report.errors.push(wrong(format!(
                    "the tree of records by location has {} current records, the tree of keys refers to {}, and they differ",
                    found.index_entries, stubs.index_entries
                ))),
                Err(error) => report.errors.push(wrong(format!("the tree of records by location: {error}"))),
            }
        }
        None if stubs.index_entries > 0 => report.errors.push(wrong(format!(
            "{} records have no JSON",
            stubs.index_entries
        ))),
        None => {}
    }
    let mut compare = |index: String, expected: Sum, (found, unknown): (Sum, u64)| {
        if unknown > 0 {
            report.errors.push(format!(
                "dataset {}: {index} {unknown} obsolete entries that the obsolete set does not contain",
                dataset.name(),
            ));
        }
        report.index_entries += found.index_entries;
        if found != expected {
            report.errors.push(format!(
                "dataset {}: {index} {} current entries, the records {}{}",
                dataset.name(),
                found.index_entries,
                expected.index_entries,
                if found.index_entries == expected.index_entries {
                    ", and the entries differ"
                } else {
                    ""
                },
            ));
        }
    };
    let all = |attribute, visit: &mut VisitFact<'_>| {
        let cost = snapshot.cost();
        let lookup = Lookup {
            layout,
            snapshot,
            data_cost: &cost,
            index_cost: &cost,
            looks: Looks::default(),
        };
        index::each_fact(&lookup, attribute, None, READAHEAD, visit)
    };
    let mut unreadable = Vec::new();
    for (attribute, expected) in layout.attributes.iter().zip(expected) {
        if attribute.kind.is_standalone() {
            let name = format!("the {} index of {}", attribute.kind, attribute.path);
            // An unreadable index does not prevent the check of the others.
            match current_entries(snapshot, layout, &known, |visit| all(attribute, visit)) {
                Ok(found) => compare(format!("{name} has"), expected, found),
                Err(error @ Error::Cancelled { .. }) => return Err(error),
                Err(error) => unreadable.push(wrong(format!("{name}: {error}"))),
            }
        }
    }
    if let Some(building) = building
        && let Some(staging) = building.staging
    {
        let attribute = &building.attribute;
        let name = format!("the {} index of {}", attribute.kind, attribute.path);
        let found = current_entries(snapshot, layout, &Known::nothing(), |visit| {
            all(attribute, visit)
        })?;
        compare(format!("{name}, being built, has"), written, found);
        let found = current_entries(snapshot, layout, &Known::nothing(), |visit| {
            each_staged(snapshot, staging, attribute, READAHEAD, visit)
        })?;
        compare(format!("the unfinished build of {name} has"), staged, found);
    }
    report.errors.extend(unreadable);
    Ok(())
}

/// The expected contents of the indexes, for the records visited so far.
struct Expect<'a> {
    layout: &'a Layout,
    gathered: &'a Gathered,
    /// By attribute.
    expected: Vec<Sum>,
    /// For an index under construction: entries of new writes, and collected entries.
    written: Sum,
    staged: Sum,
}

impl Expect<'_> {
    /// Adds the record of a key.
    fn add(&mut self, record: &RecordRef<'_>, key: &[u8], seq: Seq) {
        for (attribute, sum) in self.layout.attributes.iter().zip(&mut self.expected) {
            if attribute.kind.is_standalone() {
                sum.add_values(attribute, record, key, seq);
            }
        }
        if let Some(building) = &self.layout.building {
            let gathered = self.gathered;
            let reached = gathered.complete || (gathered.pieces > 0 && *key <= *gathered.last);
            if seq > building.since {
                self.written
                    .add_values(&building.attribute, record, key, seq);
            } else if reached {
                self.staged
                    .add_values(&building.attribute, record, key, seq);
            }
        }
    }

    /// Adds the records of buffered stubs.
    fn add_buffered(&mut self, ahead: &mut Ahead, snapshot: &Snapshot) -> Result<()> {
        ahead.fill(self.layout, snapshot, &snapshot.cost())?;
        while let Some(item) = ahead.pop() {
            if let Some(record) = RecordRef::parse(&item.stored) {
                self.add(&record, &item.key, item.seq);
            }
        }
        Ok(())
    }
}

/// The sum of the index entries from `each` that the data confirms, and the number of obsolete
/// entries that the obsolete set should contain but does not.
fn current_entries(
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
        let (cost, options) = (self.snapshot.cost(), LookupOptions::default());
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
