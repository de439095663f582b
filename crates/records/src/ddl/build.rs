//! Building an index while the dataset is read and written: collects its entries from the records,
//! or rewrites the tables of the data.

use esker_lsm::table::TableMeta;
use esker_lsm::{RunSink, TreeChange, TreeId};
use esker_model::schema::Extracted;

use super::backfill::{
    Aborted, Backfill, BackfillPosition, BackfillTarget, Phase, READAHEAD, RecordVersion, Result,
};
use crate::catalog::{Building, Layout, Role, TreeConfig};
use crate::index::Attribute;
use crate::index::staging::{StagedPiece, StagingProgress, each_staged};
use crate::record;
use crate::store::{Handle, Remarks};

/// Index entries that are written between two reports of progress.
const ENTRIES_PER_REPORT: u64 = 4096;

/// An index change in progress.
pub(super) struct IndexBuild<'b, 'p> {
    pub(super) layout: &'b Layout,
    pub(super) building: &'b Building,
    pub(super) backfill: Backfill<'b, 'p>,
    /// The number of records read or rewritten.
    pub(super) records: u64,
}

/// Collects the entries of an index in the staging tree.
struct EntryCollector<'a> {
    dataset: &'a Handle,
    staging: TreeId,
    attribute: &'a Attribute,
    progress: StagingProgress,
    piece: StagedPiece,
    /// The size in bytes at which a piece is written.
    limit: usize,
    /// A buffer for the values of a record.
    values: Extracted,
}

/// Visits the tokens of a version, for which an index has one entry each, and adds remarks on
/// values that are not indexed. The newest version must fit the attribute; older ones that do not
/// fit have no index entries.
fn each_token(
    attribute: &Attribute,
    remarks: &Remarks,
    version: &RecordVersion<'_>,
    values: &mut Extracted,
    visit: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    let record = record::parse(version.stored)?;
    match attribute.values_of(&record, values) {
        Ok(encoded) => {
            if attribute.id >= record.known() {
                for (_, remark) in values.remarks() {
                    remarks.add(&attribute.path, attribute.ty, remark);
                }
            }
            let encoded = encoded.iter().map(Vec::as_slice);
            attribute.tokenizer.each(encoded, |token| {
                visit(token);
                Ok(())
            })
        }
        Err(error) if version.is_newest => Err(Aborted::Refused(error.into())),
        Err(_) => Ok(()),
    }
}

impl BackfillTarget for EntryCollector<'_> {
    fn take(&mut self, version: &RecordVersion<'_>) -> Result<()> {
        let remarks = &self.dataset.state.remarks;
        each_token(
            self.attribute,
            remarks,
            version,
            &mut self.values,
            &mut |token| {
                self.piece.add(token, version.key, version.seq);
                self.progress.index_entries += 1;
            },
        )
    }

    fn end_round(&mut self, position: &BackfillPosition) -> Result<()> {
        let progress = &mut self.progress;
        progress.records = position.records;
        progress.complete = position.complete;
        progress.last.clone_from(&position.last);
        // Without records and entries no piece is written: a piece needs the sequence number of a
        // write, and an empty store has none. If all records are deleted, older versions of them
        // may have entries.
        let has_found_any = progress.records > 0 || progress.index_entries > 0;
        let is_last = progress.complete && has_found_any;
        if is_last || self.piece.size() >= self.limit {
            progress.pieces += 1;
            let group = &self.dataset.store.group;
            // A power cut must not bring a record back that the piece lacks because it was deleted
            // (see `backfill.rs`).
            group.sync()?;
            group.ingest_newest(self.staging, &mut |sink| self.piece.write(progress, sink))?;
            self.piece.clear();
        }
        Ok(())
    }
}

impl IndexBuild<'_, '_> {
    /// The final edit: the new definition, without the tree of the old index.
    fn final_edit(&self) -> TreeChange {
        let new = &self.building.attribute;
        let mut attributes = self.layout.attributes.iter();
        let old = attributes.find(|a| a.id == new.id);
        let tree = old.and_then(|old| old.tree);
        // A new stand-alone index keeps the old one's tree of written keys (deleted-key strategy).
        let written_keys = old
            .and_then(|old| old.deleted)
            .filter(|_| !new.kind.is_standalone());
        // A new range filter keeps the old one's tree of replaced values.
        let replaced_values = old
            .and_then(|old| old.widened)
            .filter(|_| new.widened.is_none());
        TreeChange {
            configured: vec![(self.layout.data, self.layout.stored.changed().to_bytes())],
            dropped: tree
                .into_iter()
                .chain(written_keys)
                .chain(replaced_values)
                .collect(),
            ..TreeChange::default()
        }
    }

    /// Completes the change to an index type with a tree: collects the entries of earlier records
    /// in the tree `staging`, and installs them as the oldest run of `tree`.
    pub(super) fn standalone(&mut self, tree: TreeId, staging: TreeId) -> Result<()> {
        let progress = self.collect_entries(staging)?;
        self.records = progress.records;
        self.make_unique(staging)?;
        let snapshot = self.backfill.dataset.store.group.snapshot();
        let attribute = &self.building.attribute;
        let mut run_builder = attribute.builder()?;
        let mut edit = self.final_edit();
        let config = TreeConfig::new(Role::Index(attribute.kind), &self.layout.stored.settings);
        edit.configured.push((tree, config.to_bytes()));
        edit.dropped.push(staging);
        let mut write = |backfill: &mut Backfill<'_, '_>, sink: &mut RunSink<'_>| {
            let mut written = 0;
            let mut add = |value: &[u8], key: &[u8], seq| -> Result<()> {
                if written % ENTRIES_PER_REPORT == 0 {
                    backfill.report(Phase::Writing, written, progress.index_entries)?;
                }
                written += 1;
                Ok(run_builder.add(value, key, seq, sink)?)
            };
            each_staged(&snapshot, staging, attribute, None, READAHEAD, &mut add)?;
            Ok(run_builder.finish(sink)?)
        };
        self.backfill
            .install(tree, &mut write, &mut |_| edit.clone())
    }

    /// Collects the index entries of the records written before the change in the staging tree.
    fn collect_entries(&mut self, staging: TreeId) -> Result<StagingProgress> {
        let dataset = self.backfill.dataset;
        let progress = StagingProgress::read(&dataset.store.group.snapshot(), staging)?;
        let attribute = &self.building.attribute;
        let loan = dataset.store.borrow(esker_lsm::Account::Builds);
        let position = BackfillPosition {
            records: progress.records,
            last: progress.last.clone(),
            // Without writes before the change there are no records to read.
            complete: progress.complete || self.building.since == 0,
        };
        let mut collector = EntryCollector {
            dataset,
            staging,
            attribute,
            progress,
            piece: StagedPiece::new(attribute)?,
            limit: loan.bytes(),
            values: Extracted::default(),
        };
        self.backfill.run(position, &mut collector)?;
        Ok(collector.progress)
    }

    /// Completes a change to an index type without a tree: tests that every record fits a new
    /// attribute, and rewrites the tables of the data for an embedded index.
    pub(super) fn in_place(&mut self) -> Result<()> {
        let group = &self.backfill.dataset.store.group;
        let attribute = &self.building.attribute;
        if self.building.is_new {
            let mut values = Extracted::default();
            let remarks = &self.backfill.dataset.state.remarks;
            let mut check = |version: &RecordVersion<'_>| {
                each_token(attribute, remarks, version, &mut values, &mut |_| {})
            };
            let begin = BackfillPosition::default();
            self.records = self.backfill.run(begin, &mut check)?.records;
        }
        if attribute.kind.is_embedded() {
            let mut written = 0;
            // Tables written since the change began have the new synopses.
            let is_older = |meta: &TableMeta| meta.number <= self.building.tables;
            while let Some(entries) = group.rewrite_table(self.layout.data, &is_older)? {
                written += entries;
                self.backfill.report_records(Phase::Writing, written)?;
            }
            self.records = self.records.max(written);
        }
        let edit = self.final_edit();
        group.change_trees(&mut |_| Ok(edit.clone()))?;
        Ok(())
    }
}
