//! Building an index beside readers and writers: its entries are gathered from the records, or the tables of the data are
//! written again.

use std::ops::ControlFlow;

use lsm::{Cursor, Kind, RunSink, TreeChange, TreeId};
use model::record::RecordRef;
use model::schema::{Extracted, RecordError};

use super::indexes::{IndexProgress, IndexStep, OnProgress};
use crate::catalog::{Building, Layout, Role, TreeConfig};
use crate::error::Error;
use crate::index::VisitFact;
use crate::index::build::{Gathered, Piece, builder, each_staged};
use crate::store::Handle;

/// Bytes that the passes over records and index entries read ahead.
const READAHEAD: usize = 256 << 10;

/// Records that are read with one snapshot, at most: snapshots keep files and memtables alive.
const ROUND: usize = 4096;

/// Index entries that are written between two checks for cancellation.
const FACTS: u64 = 4096;

/// Why a build stopped before its end.
pub(super) enum Stop {
    /// The progress said so.
    Broke,
    /// A record that is there does not fit the attribute.
    Refused(RecordError),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl From<lsm::Error> for Stop {
    fn from(error: lsm::Error) -> Stop {
        Stop::Failed(error.into())
    }
}

/// A change under way.
pub(super) struct Build<'b, 'p> {
    pub(super) dataset: &'b Handle,
    pub(super) layout: &'b Layout,
    pub(super) building: &'b Building,
    pub(super) progress: &'b mut OnProgress<'p>,
    /// About how many records there are.
    pub(super) total: u64,
    pub(super) records: u64,
}

impl Build<'_, '_> {
    fn tell(&mut self, step: IndexStep, done: u64, total: u64) -> std::result::Result<(), Stop> {
        let total = total.max(done);
        match (self.progress)(IndexProgress { step, done, total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::Broke),
        }
    }

    /// What the definition will be, without the old index's tree.
    fn last_step(&self) -> TreeChange {
        let attributes = self.layout.attributes.iter();
        let mut old = attributes.filter(|a| a.id == self.building.attribute.id);
        let old = old.next();
        // The keys written since the index began serve the next one as well.
        let keys = old.filter(|_| !self.building.attribute.kind.is_standalone());
        let keys = keys.and_then(|old| old.deleted);
        TreeChange {
            created: Vec::new(),
            configured: vec![(self.layout.data, self.layout.stored.changed().to_bytes())],
            dropped: old
                .and_then(|old| old.tree)
                .into_iter()
                .chain(keys)
                .chain(old.and_then(|old| old.widened))
                .collect(),
        }
    }

    pub(super) fn standalone(
        &mut self,
        tree: TreeId,
        staging: TreeId,
    ) -> std::result::Result<(), Stop> {
        let gathered = self.gather(staging)?;
        self.records = gathered.records;
        // Where no record was left there was no piece to sync the log for: a power cut must not bring back
        // what was deleted while the index was built without it.
        self.dataset.shared.group.sync()?;
        let snapshot = self.dataset.shared.group.snapshot();
        let attribute = &self.building.attribute;
        let mut oldest = builder(attribute.kind)?;
        let (mut written, mut stop) = (0, None);
        let group = &self.dataset.shared.group;
        let mut change = self.last_step();
        let config = TreeConfig::new(Role::Index(attribute.kind), &self.layout.stored.settings);
        change.configured.push((tree, config.to_bytes()));
        change.dropped.push(staging);
        let mut write = |sink: &mut RunSink<'_>| {
            let result = each_staged(
                &snapshot,
                staging,
                attribute,
                READAHEAD,
                &mut |value, key, seq| {
                    if written % FACTS == 0
                        && let Err(now) =
                            self.tell(IndexStep::Writing, written, gathered.index_entries)
                    {
                        stop = Some(now);
                        return Err(Error::bad_input("broken off"));
                    }
                    written += 1;
                    Ok(oldest.add(value, key, seq, sink)?)
                },
            );
            if let Err(error) = result {
                let text = error.to_string();
                stop.get_or_insert(Stop::Failed(error));
                return Err(lsm::Error::Invalid(text));
            }
            oldest.finish(sink)
        };
        let result = group.ingest_oldest(tree, &mut write, &mut || Ok(change.clone()));
        match (result, stop) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some(stop)) => Err(stop),
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Brings the index entries of the records up to the begin of the change into the staging tree.
    fn gather(&mut self, staging: TreeId) -> std::result::Result<Gathered, Stop> {
        let group = &self.dataset.shared.group;
        let mut gathered = Gathered::read(&group.snapshot(), staging)?;
        let mut piece = Piece::new(self.building.attribute.kind);
        // Nothing was written before the change.
        gathered.complete |= self.building.since == 0;
        let loan = self.dataset.shared.borrow(lsm::Account::Builds);
        let limit = loan.bytes();
        while !gathered.complete {
            let mut index_entries = 0;
            let after = (gathered.records > 0).then(|| gathered.last.clone());
            let (read, last) = self.round(after, &mut |value, key, seq| {
                piece.add(value, key, seq);
                index_entries += 1;
                Ok(())
            })?;
            gathered.records += read;
            gathered.index_entries += index_entries;
            gathered.complete = last.is_none();
            gathered.last = last.unwrap_or_default();
            // Where nothing was found there is nothing to gather, and in an empty store no number for a piece. Where all
            // records are deleted, older versions of them may have been found.
            let found = gathered.records > 0 || gathered.index_entries > 0;
            let last = gathered.complete && found;
            if last || piece.size() >= limit {
                gathered.pieces += 1;
                // Where a record was passed over because it was replaced since the change began, a power
                // cut must not bring it back.
                group.sync()?;
                group.ingest_newest(staging, &mut |sink| piece.write(&gathered, sink))?;
                piece.clear();
            }
            self.tell(IndexStep::Reading, gathered.records, self.total)?;
        }
        Ok(gathered)
    }

    /// Reads the next records, and shows the index entries of those that were there when the change began: of all versions
    /// that are there, where several are kept. A newest version has to fit the attribute; older ones that do not have
    /// no index entries. Returns how many records were read, and the key of the last one; no key at the end of the data.
    fn round(
        &mut self,
        after: Option<Vec<u8>>,
        show: &mut VisitFact<'_>,
    ) -> std::result::Result<(u64, Option<Vec<u8>>), Stop> {
        let group = &self.dataset.shared.group;
        let limit = (group.options().memory_budget >> 14).clamp(1, ROUND);
        let snapshot = group.snapshot();
        let versions = self.layout.stored.settings.versions;
        let mut cursor = snapshot.entries(self.layout.data, READAHEAD);
        match after {
            Some(mut key) => {
                key.push(0);
                cursor.seek(&key, lsm::MAX_SEQ)?;
            }
            None => cursor.seek_first()?,
        }
        let (mut read, mut out) = (0, Extracted::default());
        let attribute = &self.building.attribute;
        let mut last: Option<Vec<u8>> = None;
        while cursor.valid() {
            let (key, seq) = (cursor.key(), cursor.seq());
            let is_newest = last.as_deref() != Some(key);
            if is_newest {
                if read >= limit as u64 {
                    break;
                }
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
                read += u64::from(cursor.kind() == Kind::Put);
            }
            let is_wanted = is_newest || versions > 1;
            if is_wanted && cursor.kind() == Kind::Put && seq <= self.building.since {
                let record = RecordRef::parse(cursor.value())
                    .ok_or_else(|| Error::damaged("a stored record is malformed"))?;
                match attribute.values_of(&record, &mut out) {
                    Ok(values) => {
                        let values = values.iter().map(Vec::as_slice);
                        let show = |token: &[u8]| show(token, key, seq);
                        attribute.tokenizer.each(values, show)?;
                    }
                    Err(error) if is_newest => return Err(Stop::Refused(error)),
                    Err(_) => {}
                }
            }
            cursor.next()?;
        }
        let more = cursor.valid();
        group.count(&cursor.cost());
        Ok((read, last.filter(|_| more)))
    }

    /// A change to a kind without a tree.
    pub(super) fn in_place(&mut self) -> std::result::Result<(), Stop> {
        let group = &self.dataset.shared.group;
        let attribute = &self.building.attribute;
        if self.building.is_new {
            // Every record has to fit the type.
            let mut after = None;
            loop {
                let (read, last) = self.round(after, &mut |_, _, _| Ok(()))?;
                self.records += read;
                self.tell(IndexStep::Reading, self.records, self.total)?;
                after = match last {
                    Some(last) => Some(last),
                    None => break,
                };
            }
        }
        if attribute.kind.is_embedded() {
            let mut written = 0;
            // What was written since has the new synopses.
            let lacks = |meta: &lsm::table::TableMeta| meta.number <= self.building.tables;
            while let Some(entries) = group.rewrite_table(self.layout.data, &lacks)? {
                written += entries;
                self.tell(IndexStep::Writing, written, self.total)?;
            }
            self.records = self.records.max(written);
        }
        let change = self.last_step();
        group.change_trees(&mut |_| Ok(change.clone()))?;
        Ok(())
    }
}
