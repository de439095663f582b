//! Building an index while the dataset is read and written: collects its entries from the records,
//! or rewrites the tables of the data.

use esker_lsm::{RunSink, TreeChange, TreeId};
use esker_model::record::RecordRef;
use esker_model::schema::Extracted;

use super::backfill::{Backfill, Pass, Place, READAHEAD, Result, Stop, Target, Version};
use crate::catalog::{Building, Layout, Role, TreeConfig};
use crate::error::Error;
use crate::index::Attribute;
use crate::index::staging::{Gathered, Piece, each_staged};
use crate::store::{Handle, Remarks};

/// Index entries that are written between two checks for cancellation.
const FACTS: u64 = 4096;

/// An index change in progress.
pub(super) struct Build<'b, 'p> {
    pub(super) layout: &'b Layout,
    pub(super) building: &'b Building,
    pub(super) backfill: Backfill<'b, 'p>,
    pub(super) records: u64,
}

/// Collects the entries of an index in the staging tree.
struct Gather<'a> {
    dataset: &'a Handle,
    staging: TreeId,
    attribute: &'a Attribute,
    /// Its index among the extracted attributes.
    place: usize,
    gathered: Gathered,
    piece: Piece,
    /// The size in bytes at which a piece is written.
    limit: usize,
    out: Extracted,
}

/// Visits the tokens of a version. The newest version must fit the attribute; older ones that do
/// not fit have no index entries.
fn each_token(
    place: usize,
    attribute: &Attribute,
    remarks: &Remarks,
    version: &Version<'_>,
    out: &mut Extracted,
    show: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    let record = RecordRef::parse(version.stored)
        .ok_or_else(|| Error::damaged("a stored record is malformed"))?;
    match attribute.values_of(&record, out) {
        Ok(values) => {
            if attribute.id >= record.known() {
                for (_, remark) in out.remarks() {
                    remarks.add(place, &attribute.path, attribute.ty, remark);
                }
            }
            let values = values.iter().map(Vec::as_slice);
            attribute.tokenizer.each(values, |token| {
                show(token);
                Ok(())
            })
        }
        Err(error) if version.is_newest => Err(Stop::Refused(error.into())),
        Err(_) => Ok(()),
    }
}

impl Target for Gather<'_> {
    fn take(&mut self, version: &Version<'_>) -> Result<()> {
        let remarks = &self.dataset.current.remarks;
        let (place, attribute) = (self.place, self.attribute);
        each_token(
            place,
            attribute,
            remarks,
            version,
            &mut self.out,
            &mut |token| {
                self.piece.add(token, version.key, version.seq);
                self.gathered.index_entries += 1;
            },
        )
    }

    fn end_round(&mut self, place: &Place) -> Result<()> {
        let gathered = &mut self.gathered;
        gathered.records = place.records;
        gathered.complete = place.complete;
        gathered.last = place.last.clone().unwrap_or_default();
        // An empty result needs no piece, and an empty store has no number for one. If all records
        // are deleted, older versions of them may have entries.
        let found = gathered.records > 0 || gathered.index_entries > 0;
        let last = gathered.complete && found;
        if last || self.piece.size() >= self.limit {
            gathered.pieces += 1;
            let group = &self.dataset.shared.group;
            // The invariant of the backfill.
            group.sync()?;
            group.ingest_newest(self.staging, &mut |sink| self.piece.write(gathered, sink))?;
            self.piece.clear();
        }
        Ok(())
    }
}

impl Build<'_, '_> {
    /// The final edit: the new definition, without the tree of the old index.
    fn last_step(&self) -> TreeChange {
        let attributes = self.layout.attributes.iter();
        let mut old = attributes.filter(|a| a.id == self.building.attribute.id);
        let old = old.next();
        // The keys written since the old index began also serve the new one, if that is
        // stand-alone.
        let keys = old.filter(|_| !self.building.attribute.kind.is_standalone());
        let keys = keys.and_then(|old| old.deleted);
        // The replaced values also serve the new index, if it is a range filter.
        let widened = old.and_then(|old| old.widened);
        let widened = widened.filter(|_| self.building.attribute.widened.is_none());
        TreeChange {
            configured: vec![(self.layout.data, self.layout.stored.changed().to_bytes())],
            dropped: old
                .and_then(|old| old.tree)
                .into_iter()
                .chain(keys)
                .chain(widened)
                .collect(),
            ..TreeChange::default()
        }
    }

    pub(super) fn standalone(&mut self, tree: TreeId, staging: TreeId) -> Result<()> {
        let gathered = self.gather(staging)?;
        self.records = gathered.records;
        self.make_unique(staging)?;
        let snapshot = self.backfill.dataset.shared.group.snapshot();
        let attribute = &self.building.attribute;
        let mut oldest = attribute.builder()?;
        let mut change = self.last_step();
        let config = TreeConfig::new(Role::Index(attribute.kind), &self.layout.stored.settings);
        change.configured.push((tree, config.to_bytes()));
        change.dropped.push(staging);
        let mut write = |backfill: &mut Backfill<'_, '_>, sink: &mut RunSink<'_>| {
            let (mut written, mut broke) = (0, false);
            let mut add = |value: &[u8], key: &[u8], seq| {
                if written % FACTS == 0 {
                    let reported = backfill.tell(Pass::Writing, written, gathered.index_entries);
                    broke = reported.is_err();
                }
                if broke {
                    return Err(Error::bad_input("broken off"));
                }
                written += 1;
                Ok(oldest.add(value, key, seq, sink)?)
            };
            match each_staged(&snapshot, staging, attribute, None, READAHEAD, &mut add) {
                Err(_) if broke => Err(Stop::Broke),
                Err(error) => Err(error.into()),
                Ok(()) => Ok(oldest.finish(sink)?),
            }
        };
        let mut change = |_| change.clone();
        self.backfill.install(tree, &mut write, &mut change)
    }

    /// Collects the index entries of the records written before the change in the staging tree.
    fn gather(&mut self, staging: TreeId) -> Result<Gathered> {
        let dataset = self.backfill.dataset;
        let gathered = Gathered::read(&dataset.shared.group.snapshot(), staging)?;
        let attribute = &self.building.attribute;
        let loan = dataset.shared.borrow(esker_lsm::Account::Builds);
        let place = Place {
            records: gathered.records,
            last: (gathered.records > 0).then(|| gathered.last.clone()),
            // Without writes before the change there are no records to read.
            complete: gathered.complete || self.building.since == 0,
        };
        let mut gather = Gather {
            dataset,
            staging,
            attribute,
            place: self.building.place,
            gathered,
            piece: Piece::new(attribute),
            limit: loan.bytes(),
            out: Extracted::default(),
        };
        self.backfill.run(place, &mut gather)?;
        Ok(gather.gathered)
    }

    /// Completes a change to an index type without a tree.
    pub(super) fn in_place(&mut self) -> Result<()> {
        let group = &self.backfill.dataset.shared.group;
        let attribute = &self.building.attribute;
        if self.building.is_new {
            let mut out = Extracted::default();
            // Every record must fit the type.
            let remarks = &self.backfill.dataset.current.remarks;
            let place = self.building.place;
            let mut fits = |version: &Version<'_>| {
                each_token(place, attribute, remarks, version, &mut out, &mut |_| {})
            };
            self.records = self.backfill.run(Place::default(), &mut fits)?.records;
        }
        if attribute.kind.is_embedded() {
            let mut written = 0;
            // Tables written since the change began have the new synopses.
            let lacks = |meta: &esker_lsm::table::TableMeta| meta.number <= self.building.tables;
            while let Some(entries) = group.rewrite_table(self.layout.data, &lacks)? {
                written += entries;
                self.backfill.tell_records(Pass::Writing, written)?;
            }
            self.records = self.records.max(written);
        }
        let change = self.last_step();
        group.change_trees(&mut |_| Ok(change.clone()))?;
        Ok(())
    }
}
