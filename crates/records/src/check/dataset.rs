//! The check of one dataset: its records are read once, and every index, the obsolete set and the
//! expiry times are compared with what they require.

use esker_lsm::{Cursor, Kind, Seq, Snapshot};
use esker_model::record::RecordRef;

use super::entries::{Found, READAHEAD, Sum, current_entries};
use super::expiry::Expiring;
use super::numbers;
use super::obsolete::{Derived, Known};
use super::report::CheckReport;
use crate::bodies::{self, ReadAhead};
use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::staging::{StagingProgress, each_staged};
use crate::index::{self, Attribute, Looks, VisitEntry};
use crate::maintenance;
use crate::store::Handle;
use crate::write::{Duplicates, Holders};

/// Checks a dataset, unless it was dropped in the meantime.
pub(super) fn check(dataset: &Handle, report: &mut CheckReport) -> Result<()> {
    let now = dataset.snapshot();
    if now.is_dropped() {
        return Ok(());
    }
    let (snapshot, layout) = (&now.snapshot, &*now.layout);
    let staging = layout.building.as_ref().and_then(|b| b.staging);
    let gathered = match staging {
        Some(staging) => StagingProgress::read(snapshot, staging)?,
        None => StagingProgress::default(),
    };
    let set = layout.superseded.and_then(|tree| snapshot.superseded(tree));
    let mut check = Check {
        name: dataset.name(),
        snapshot,
        layout,
        known: Known::new(layout, set),
        report,
    };
    for error in numbers::check(layout, snapshot) {
        check.wrong(error);
    }
    let required = check.read_records(&gathered)?;
    check.compare_places(required.heads)?;
    check.compare_indexes(&required.indexes)?;
    check.compare_unique(dataset)?;
    check.compare_build(&required)
}

/// The check of a dataset in one snapshot.
struct Check<'a> {
    name: String,
    snapshot: &'a Snapshot,
    layout: &'a Layout,
    known: Known,
    report: &'a mut CheckReport,
}

/// The entries that the records require.
struct Required {
    /// In the index of each attribute.
    indexes: Vec<Sum>,
    /// In an index that is being built: of new writes, and collected.
    written: Sum,
    staged: Sum,
    /// The heads of records that are stored by location.
    heads: Sum,
}

impl Check<'_> {
    fn wrong(&mut self, error: String) {
        let error = format!("dataset {}: {error}", self.name);
        self.report.errors.push(error);
    }

    /// A part that cannot be read does not prevent the check of the others.
    fn unreadable(&mut self, part: &str, error: Error) -> Result<()> {
        if matches!(error, Error::Cancelled { .. }) {
            return Err(error);
        }
        self.wrong(format!("{part}: {error}"));
        Ok(())
    }

    /// Reads all records, and checks on the way what is compared entry by entry: the obsolete set
    /// and the expiry times.
    fn read_records(&mut self, gathered: &StagingProgress) -> Result<Required> {
        let (snapshot, layout) = (self.snapshot, self.layout);
        let mut expect = Expect {
            layout,
            gathered,
            indexes: vec![Sum::default(); layout.attributes.len()],
            written: Sum::default(),
            staged: Sum::default(),
        };
        // Heads lack the values of attributes that were declared later.
        let late = layout.has_late_attributes();
        let (mut heads, mut ahead) = (Sum::default(), ReadAhead::new());
        let mut expiring = Expiring::default();
        let mut derived = Derived::new(snapshot, layout, &self.known)?;
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
                self.report.records += 1;
                expiring.add(cursor.value(), key, seq);
                let is_head = RecordRef::lacks_body(cursor.value());
                if is_head {
                    heads.add(cursor.value(), key, seq);
                }
                if is_head && late {
                    ahead.push(key, seq, cursor.value_slice());
                } else {
                    expect.add(&record, key, seq);
                }
            }
            cursor.next()?;
            if ahead.is_full() {
                expect.add_buffered(&mut ahead, snapshot)?;
            }
        }
        expect.add_buffered(&mut ahead, snapshot)?;
        let required = Required {
            indexes: expect.indexes,
            written: expect.written,
            staged: expect.staged,
            heads,
        };
        let errors: Vec<String> = derived.finish()?.collect();
        errors.into_iter().for_each(|error| self.wrong(error));
        match expiring.finish(layout, snapshot) {
            Ok(error) => error.into_iter().for_each(|error| self.wrong(error)),
            Err(error) => self.unreadable("the tree of expiry times", error)?,
        }
        Ok(required)
    }

    /// The records in the location tree against their heads.
    fn compare_places(&mut self, heads: Sum) -> Result<()> {
        let Some(attribute) = self.layout.clustered() else {
            if heads.index_entries > 0 {
                self.wrong(format!("{} records have no JSON", heads.index_entries));
            }
            return Ok(());
        };
        let each = |visit: &mut VisitEntry<'_>| {
            bodies::each_required_head(self.snapshot, attribute, visit)
        };
        match current_entries(self.snapshot, self.layout, &Known::nothing(), each) {
            Ok(found) if found.current == heads => Ok(()),
            Ok(found) => {
                self.wrong(format!(
                    "the tree of records by location has {} current records, the tree of keys refers to {}, and they differ",
                    found.current.index_entries, heads.index_entries
                ));
                Ok(())
            }
            Err(error) => self.unreadable("the tree of records by location", error),
        }
    }

    fn compare_indexes(&mut self, required: &[Sum]) -> Result<()> {
        let (snapshot, layout) = (self.snapshot, self.layout);
        for (attribute, required) in layout.attributes.iter().zip(required) {
            if !attribute.kind.is_standalone() {
                continue;
            }
            let name = format!("the {} index of {}", attribute.kind, attribute.path);
            let each = |visit: &mut VisitEntry<'_>| self.each_entry(attribute, visit);
            match current_entries(snapshot, layout, &self.known, each) {
                Ok(found) => self.compare(&format!("{name} has"), *required, &found),
                Err(error) => self.unreadable(&name, error)?,
            }
        }
        Ok(())
    }

    /// No two records have the same value in an index with unique values.
    fn compare_unique(&mut self, dataset: &Handle) -> Result<()> {
        let (snapshot, layout) = (self.snapshot, self.layout);
        for index in layout.unique_indexes() {
            // The build of an index compares them by itself.
            if index.attribute.incomplete {
                continue;
            }
            let holders = Holders::new(&self.name, layout, snapshot, &dataset.shared.group);
            let mut duplicates = Duplicates::new(holders, index);
            let mut duplicate = None;
            let result = self.each_entry(index.attribute, &mut |value, key, seq| {
                if duplicate.is_none() {
                    duplicate = duplicates.add(value, key, seq)?;
                }
                Ok(())
            });
            let found = match (duplicate, result) {
                (Some(duplicate), _) => Ok(Some(duplicate)),
                (None, Ok(())) => duplicates.finish(),
                (None, Err(error)) => Err(error),
            };
            match found {
                Ok(None) => {}
                Ok(Some(duplicate)) => self.report.errors.push(duplicate.to_string()),
                Err(error) => {
                    let name = format!("the index of {}", index.attribute.path);
                    self.unreadable(&name, error)?;
                }
            }
        }
        Ok(())
    }

    /// The unfinished index of a change.
    fn compare_build(&mut self, required: &Required) -> Result<()> {
        let (snapshot, layout) = (self.snapshot, self.layout);
        let Some(building) = &layout.building else {
            return Ok(());
        };
        let Some(staging) = building.staging else {
            return Ok(());
        };
        let attribute = &building.attribute;
        let name = format!("the {} index of {}", attribute.kind, attribute.path);
        let nothing = Known::nothing();
        let each = |visit: &mut VisitEntry<'_>| self.each_entry(attribute, visit);
        let found = current_entries(snapshot, layout, &nothing, each)?;
        self.compare(
            &format!("{name}, being built, has"),
            required.written,
            &found,
        );
        let each = |visit: &mut VisitEntry<'_>| {
            each_staged(snapshot, staging, attribute, None, READAHEAD, visit)
        };
        let found = current_entries(snapshot, layout, &nothing, each)?;
        self.compare(
            &format!("the unfinished build of {name} has"),
            required.staged,
            &found,
        );
        Ok(())
    }

    fn each_entry(&self, attribute: &Attribute, visit: &mut VisitEntry<'_>) -> Result<()> {
        let cost = self.snapshot.cost();
        let looks = Looks::default();
        let lookup = maintenance::lookup(self.layout, self.snapshot, &cost, &cost, looks);
        index::each_entry(&lookup, attribute, None, READAHEAD, visit)
    }

    fn compare(&mut self, index: &str, required: Sum, found: &Found) {
        if found.unknown > 0 {
            self.wrong(format!(
                "{index} {} obsolete entries that the obsolete set does not contain",
                found.unknown
            ));
        }
        let current = found.current.index_entries;
        self.report.index_entries += current;
        if found.current != required {
            let differ = if current == required.index_entries {
                ", and the entries differ"
            } else {
                ""
            };
            self.wrong(format!(
                "{index} {current} current entries, the records {}{differ}",
                required.index_entries
            ));
        }
    }
}

/// The expected contents of the indexes, for the records visited so far.
struct Expect<'a> {
    layout: &'a Layout,
    gathered: &'a StagingProgress,
    /// By attribute.
    indexes: Vec<Sum>,
    /// For an index under construction: entries of new writes, and collected entries.
    written: Sum,
    staged: Sum,
}

impl Expect<'_> {
    /// Adds the record of a key.
    fn add(&mut self, record: &RecordRef<'_>, key: &[u8], seq: Seq) {
        for (attribute, sum) in self.layout.attributes.iter().zip(&mut self.indexes) {
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

    /// Adds the buffered records, with their bodies.
    fn add_buffered(&mut self, ahead: &mut ReadAhead, snapshot: &Snapshot) -> Result<()> {
        ahead.fill(self.layout, snapshot, &snapshot.cost())?;
        while let Some(item) = ahead.pop() {
            if let Some(record) = RecordRef::parse(&item.stored) {
                self.add(&record, &item.key, item.seq);
            }
        }
        Ok(())
    }
}
