//! The end of the build of an index whose values become unique.
//!
//! While the entries of earlier records are collected, commits only compare new records with each
//! other. Once all are collected, one edit says so in the definition: from then on commits search
//! the staging tree, too, and no new duplicate appears. Then this file searches for the duplicates
//! that exist by now, between two earlier records or an earlier and a later one. If there are none,
//! the index is installed; otherwise the build is undone.

use esker_lsm::coding::Misplaced;
use esker_lsm::{Snapshot, TreeChange, TreeId};
use esker_model::query::Direction;

use super::backfill::{Aborted, Phase, READAHEAD, Result};
use super::build::IndexBuild;
use crate::catalog::{Layout, UniqueIndex};
use crate::error::Error;
use crate::index::staging::each_staged;
use crate::index::{Attribute, InOrder, KeyBounds, Looks};
use crate::maintenance;
use crate::write::{Duplicates, Holders};

/// Entries of the index's tree that are read between two reports of progress.
const ENTRIES_PER_REPORT: u64 = 256;

impl IndexBuild<'_, '_> {
    /// Makes the values of the index unique, if they were not before. `staging` has the entries of
    /// all earlier records.
    ///
    /// # Errors
    /// [`Aborted::Refused`] if two records have the same value.
    pub(super) fn make_unique(&mut self, staging: TreeId) -> Result<()> {
        if !self.building.becomes_unique {
            return Ok(());
        }
        let dataset = self.backfill.dataset;
        if !self.building.gathered {
            self.note_gathered()?;
        }
        self.backfill.report_records(Phase::Reading, self.records)?;
        let (name, group) = (dataset.name(), &dataset.store.group);
        // `latest` includes writes that still wait for their sync.
        let snapshot = group.latest();
        let layout = dataset.state.layout_in(snapshot.version());
        let ended = || Error::damaged("the index is no longer built");
        let attribute = &layout.building.as_ref().ok_or_else(ended)?.attribute;
        let index = UniqueIndex {
            attribute,
            staged: Some(staging),
        };
        let holders = Holders::new(&name, &layout, &snapshot, group);
        let mut duplicates = Duplicates::new(holders, index);
        refuse_among_earlier(&snapshot, staging, attribute, &mut duplicates)?;
        self.refuse_of_later(&snapshot, &layout, attribute, &mut duplicates)
    }

    /// Refuses duplicates among the later records, and between earlier and later ones.
    fn refuse_of_later(
        &mut self,
        snapshot: &Snapshot,
        layout: &Layout,
        attribute: &Attribute,
        duplicates: &mut Duplicates<'_>,
    ) -> Result<()> {
        let cost = snapshot.cost();
        let lookup = maintenance::lookup(layout, snapshot, &cost, &cost, Looks::default());
        let all: KeyBounds = (Vec::new(), None);
        let mut entries =
            InOrder::within(&lookup, attribute, Direction::Ascending, READAHEAD, &all)?;
        for read in 0_u64.. {
            if read % ENTRIES_PER_REPORT == 0 {
                self.backfill.report_records(Phase::Reading, self.records)?;
            }
            let mut duplicate = None;
            let step = entries.step(&mut |value, _, _| {
                if duplicate.is_none() {
                    duplicate = duplicates.add_all_of(value)?;
                }
                Ok(())
            })?;
            refuse(duplicate)?;
            if step.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Notes in the definition that the staging tree has the entries of all earlier records: from
    /// now on commits search it, too.
    fn note_gathered(&self) -> Result<()> {
        let mut stored = self.layout.stored.clone();
        let change = stored.change.as_mut().ok_or_else(|| Misplaced::here())?;
        change.gathered = true;
        let group = &self.backfill.dataset.store.group;
        group.change_trees(&mut |_| {
            Ok(TreeChange {
                configured: vec![(self.layout.data, stored.to_bytes())],
                ..TreeChange::default()
            })
        })?;
        Ok(())
    }
}

/// Refuses duplicates among the earlier records.
fn refuse_among_earlier(
    snapshot: &Snapshot,
    staging: TreeId,
    attribute: &Attribute,
    duplicates: &mut Duplicates<'_>,
) -> Result<()> {
    let mut add = |value: &[u8], key: &[u8], seq| refuse(duplicates.add(value, key, seq)?);
    each_staged(snapshot, staging, attribute, None, READAHEAD, &mut add)?;
    refuse(duplicates.finish()?)
}

/// A duplicate refuses the change; the build has not failed.
fn refuse(duplicate: Option<Error>) -> Result<()> {
    duplicate.map_or(Ok(()), |error| Err(Aborted::Refused(error)))
}
