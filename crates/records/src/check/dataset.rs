//! The check of one dataset: reads its records once, and compares every index, the obsolete set and
//! the expiry times with the records. Indexes are compared by sums over their entries
//! (`entries.rs`), so memory is bounded.

use esker_lsm::{Cursor, Kind, Seq, Snapshot};
use esker_model::record::RecordRef;

use super::entries::{EntrySum, FoundEntries, current_entries};
use super::expiry::ExpiringRecords;
use super::numbers;
use super::obsolete::{DerivedData, KnownObsolete, READAHEAD};
use super::report::CheckReport;
use crate::bodies::{self, ReadAhead};
use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::staging::{StagingProgress, each_staged};
use crate::index::{self, Attribute, Looks, VisitEntry, VisitEntryOr, VisitError, WalkEnd};
use crate::maintenance;
use crate::record;
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
    let staging_progress = match staging {
        Some(staging) => StagingProgress::read(snapshot, staging)?,
        None => StagingProgress::default(),
    };
    let set = layout.superseded.and_then(|tree| snapshot.superseded(tree));
    let mut check = DatasetCheck {
        name: dataset.name(),
        snapshot,
        layout,
        known_obsolete: KnownObsolete::new(layout, set),
        report,
    };
    for error in numbers::check(layout, snapshot) {
        check.report_error(error);
    }
    let required = check.read_records(&staging_progress)?;
    check.compare_heads(required.heads)?;
    check.compare_indexes(&required.indexes)?;
    check.compare_unique(dataset)?;
    check.compare_build(&required)
}

/// The check of a dataset in one snapshot.
struct DatasetCheck<'a> {
    name: String,
    snapshot: &'a Snapshot,
    layout: &'a Layout,
    known_obsolete: KnownObsolete,
    report: &'a mut CheckReport,
}

/// The entries that the records require.
struct RequiredEntries {
    /// In the index of each attribute.
    indexes: Vec<EntrySum>,
    /// In the index that is being built, of the writes since the build began.
    written: EntrySum,
    /// In the staging tree of that index, of the earlier records that the build has gathered.
    staged: EntrySum,
    /// The heads of records that are stored by location.
    heads: EntrySum,
}

impl DatasetCheck<'_> {
    /// Reports an error.
    fn report_error(&mut self, error: String) {
        let error = format!("dataset {}: {error}", self.name);
        self.report.errors.push(error);
    }

    /// Reports a part that cannot be read: that does not prevent the check of the others.
    fn report_unreadable(&mut self, part: &str, error: Error) -> Result<()> {
        if matches!(error, Error::Cancelled { .. }) {
            return Err(error);
        }
        self.report_error(format!("{part}: {error}"));
        Ok(())
    }

    /// Reads all records, and checks during the scan the data that is compared entry by entry: the
    /// obsolete set and the expiry times.
    fn read_records(&mut self, staging_progress: &StagingProgress) -> Result<RequiredEntries> {
        let (snapshot, layout) = (self.snapshot, self.layout);
        let mut entries = RecordEntries::new(layout, staging_progress);
        // Heads lack the values of attributes that were declared later, which are in the bodies.
        let needs_bodies = layout.has_late_attributes();
        let mut ahead = ReadAhead::new();
        let mut expiring = ExpiringRecords::default();
        let mut derived = DerivedData::new(snapshot, layout, &self.known_obsolete)?;
        let mut cursor = snapshot.entries(layout.data, READAHEAD);
        cursor.seek_first()?;
        let mut last_key: Option<Vec<u8>> = None;
        while cursor.valid() {
            let (key, seq, kind) = (cursor.key(), cursor.seq(), cursor.kind());
            let record = match kind {
                Kind::Put => Some(record::parse(cursor.value())?),
                _ => None,
            };
            if last_key.as_deref() == Some(key) {
                derived.visit_older(seq, kind, record.as_ref())?;
                cursor.next()?;
                continue;
            }
            let last_key = last_key.get_or_insert_default();
            last_key.clear();
            last_key.extend_from_slice(key);
            derived.visit_newest(key, seq, record.as_ref())?;
            if let Some(record) = record {
                self.report.records += 1;
                expiring.add(cursor.value(), key, seq);
                let is_head = RecordRef::lacks_body(cursor.value());
                if is_head {
                    entries.required.heads.add(cursor.value(), key, seq);
                }
                if is_head && needs_bodies {
                    ahead.push(key, seq, cursor.value_slice());
                } else {
                    entries.add(&record, key, seq);
                }
            }
            cursor.next()?;
            if ahead.is_full() {
                entries.add_buffered(&mut ahead, snapshot)?;
            }
        }
        entries.add_buffered(&mut ahead, snapshot)?;
        let errors: Vec<String> = derived.finish()?.collect();
        errors
            .into_iter()
            .for_each(|error| self.report_error(error));
        match expiring.finish(layout, snapshot) {
            Ok(error) => error.into_iter().for_each(|error| self.report_error(error)),
            Err(error) => self.report_unreadable("the tree of expiry times", error)?,
        }
        Ok(entries.required)
    }

    /// Compares the records in the location tree with their heads.
    fn compare_heads(&mut self, heads: EntrySum) -> Result<()> {
        let Some(attribute) = self.layout.clustered() else {
            if heads.index_entries > 0 {
                self.report_error(format!("{} records have no JSON", heads.index_entries));
            }
            return Ok(());
        };
        let each = |visit: &mut VisitEntry<'_>| {
            bodies::each_required_head(self.snapshot, attribute, visit)
        };
        match current_entries(self.snapshot, self.layout, &KnownObsolete::nothing(), each) {
            Ok(found) if found.current == heads => Ok(()),
            Ok(found) => {
                self.report_error(format!(
                    "the tree of records by location has {} current records, the data tree refers to {}, and they differ",
                    found.current.index_entries, heads.index_entries
                ));
                Ok(())
            }
            Err(error) => self.report_unreadable("the tree of records by location", error),
        }
    }

    /// Compares each stand-alone index with the entries that the records require.
    fn compare_indexes(&mut self, required: &[EntrySum]) -> Result<()> {
        let (snapshot, layout) = (self.snapshot, self.layout);
        debug_assert_eq!(required.len(), layout.attributes.len());
        for (attribute, required) in layout.attributes.iter().zip(required) {
            if !attribute.kind.is_standalone() {
                continue;
            }
            let name = format!("the {} index of {}", attribute.kind, attribute.path);
            let each = |visit: &mut VisitEntry<'_>| self.each_entry(attribute, visit);
            match current_entries(snapshot, layout, &self.known_obsolete, each) {
                Ok(found) => self.compare(&format!("{name} has"), *required, &found),
                Err(error) => self.report_unreadable(&name, error)?,
            }
        }
        Ok(())
    }

    /// Checks that no two records have the same value in an index with unique values.
    fn compare_unique(&mut self, dataset: &Handle) -> Result<()> {
        let (snapshot, layout) = (self.snapshot, self.layout);
        for index in layout.unique_indexes() {
            // The build of an index finds duplicates itself (`ddl/unique.rs`).
            if index.attribute.incomplete {
                continue;
            }
            let holders = Holders::new(&self.name, layout, snapshot, &dataset.store.group);
            let mut duplicates = Duplicates::new(holders, index);
            let mut duplicate = None;
            let walked = self.each_entry(index.attribute, &mut |value, key, seq| {
                duplicate = duplicates.add(value, key, seq)?;
                match duplicate {
                    Some(_) => Err(WalkEnd::Broken),
                    None => Ok(()),
                }
            });
            let found = match walked {
                Ok(()) => duplicates.finish(),
                Err(WalkEnd::Broken) => Ok(duplicate),
                Err(WalkEnd::Failed(error)) => Err(error),
            };
            match found {
                Ok(None) => {}
                Ok(Some(duplicate)) => self.report.errors.push(duplicate.to_string()),
                Err(error) => {
                    let name = format!("the index of {}", index.attribute.path);
                    self.report_unreadable(&name, error)?;
                }
            }
        }
        Ok(())
    }

    /// Compares the unfinished index of a change, and the entries collected for it.
    fn compare_build(&mut self, required: &RequiredEntries) -> Result<()> {
        let (snapshot, layout) = (self.snapshot, self.layout);
        let Some(building) = &layout.building else {
            return Ok(());
        };
        let Some(staging) = building.staging else {
            return Ok(());
        };
        let attribute = &building.attribute;
        let name = format!("the {} index of {}", attribute.kind, attribute.path);
        let nothing = KnownObsolete::nothing();
        let each_written = |visit: &mut VisitEntry<'_>| self.each_entry(attribute, visit);
        let written = current_entries(snapshot, layout, &nothing, each_written)?;
        let each_staged = |visit: &mut VisitEntry<'_>| {
            each_staged(snapshot, staging, attribute, None, READAHEAD, visit)
        };
        let staged = current_entries(snapshot, layout, &nothing, each_staged)?;
        let index = format!("{name}, being built, has");
        self.compare(&index, required.written, &written);
        let build = format!("the unfinished build of {name} has");
        self.compare(&build, required.staged, &staged);
        Ok(())
    }

    /// Passes the entries of an index to `visit`.
    fn each_entry<E: VisitError>(
        &self,
        attribute: &Attribute,
        visit: &mut VisitEntryOr<'_, E>,
    ) -> std::result::Result<(), E> {
        let cost = self.snapshot.cost();
        let lookup =
            maintenance::lookup(self.layout, self.snapshot, &cost, &cost, Looks::default());
        index::each_entry(&lookup, attribute, None, READAHEAD, visit)
    }

    /// Compares the entries of an index with the required ones. `index` begins the error text: the
    /// name of the index, and "has".
    fn compare(&mut self, index: &str, required: EntrySum, found: &FoundEntries) {
        if found.unknown > 0 {
            self.report_error(format!(
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
            self.report_error(format!(
                "{index} {current} current entries, the records {}{differ}",
                required.index_entries
            ));
        }
    }
}

/// The entries that the records visited so far require in the indexes.
struct RecordEntries<'a> {
    layout: &'a Layout,
    staging_progress: &'a StagingProgress,
    required: RequiredEntries,
}

impl<'a> RecordEntries<'a> {
    /// Before the first record.
    fn new(layout: &'a Layout, staging_progress: &'a StagingProgress) -> RecordEntries<'a> {
        RecordEntries {
            layout,
            staging_progress,
            required: RequiredEntries {
                indexes: vec![EntrySum::default(); layout.attributes.len()],
                written: EntrySum::default(),
                staged: EntrySum::default(),
                heads: EntrySum::default(),
            },
        }
    }

    /// Adds the record of a key.
    fn add(&mut self, record: &RecordRef<'_>, key: &[u8], seq: Seq) {
        let required = &mut self.required;
        for (attribute, sum) in self.layout.attributes.iter().zip(&mut required.indexes) {
            if attribute.kind.is_standalone() {
                sum.add_values(attribute, record, key, seq);
            }
        }
        if let Some(building) = &self.layout.building {
            let StagingProgress { complete, last, .. } = self.staging_progress;
            let is_gathered = *complete || last.as_deref().is_some_and(|last| key <= last);
            let attribute = &building.attribute;
            if seq > building.since {
                required.written.add_values(attribute, record, key, seq);
            } else if is_gathered {
                required.staged.add_values(attribute, record, key, seq);
            }
        }
    }

    /// Adds the buffered records, with their bodies.
    fn add_buffered(&mut self, ahead: &mut ReadAhead, snapshot: &Snapshot) -> Result<()> {
        ahead.fill(self.layout, snapshot, &snapshot.cost())?;
        while let Some(item) = ahead.pop() {
            let record = record::parse(&item.stored)?;
            self.add(&record, &item.key, item.seq);
        }
        Ok(())
    }
}
