//! The end of the build of an index whose values become unique.
//!
//! While the entries of earlier records are collected, commits only compare new records with each
//! other. Once all are collected, one edit says so in the definition: from then on commits search
//! the staging tree, too, and no new duplicate appears. Then this file searches for the duplicates
//! that exist by now, between two earlier records or an earlier and a later one. If there are none,
//! the index is installed; otherwise the build is undone.

use esker_lsm::{TreeChange, TreeId};

use super::backfill::{Pass, READAHEAD, Result, Stop};
use super::build::Build;
use crate::catalog::UniqueIndex;
use crate::error::Error;
use crate::index::staging::each_staged;
use crate::index::{self, Looks};
use crate::maintenance;
use crate::write::{Duplicates, Holders};

/// Values of later records between two checks for cancellation.
const VALUES: u64 = 256;

impl Build<'_, '_> {
    /// Makes the values of the index unique, if they were not before; [`Stop::Refused`] if two
    /// records have the same. `staging` has the entries of all earlier records.
    pub(super) fn make_unique(&mut self, staging: TreeId) -> Result<()> {
        if !self.building.becomes_unique {
            return Ok(());
        }
        let dataset = self.backfill.dataset;
        if !self.building.gathered {
            let mut stored = self.layout.stored.clone();
            if let Some(change) = &mut stored.change {
                change.gathered = true;
            }
            dataset.shared.group.change_trees(&mut |_| {
                Ok(TreeChange {
                    configured: vec![(self.layout.data, stored.to_bytes())],
                    ..TreeChange::default()
                })
            })?;
        }
        self.backfill.tell_records(Pass::Reading, self.records)?;
        let (name, group) = (dataset.name(), &dataset.shared.group);
        // `latest` includes writes that still wait for their sync.
        let snapshot = group.latest();
        let layout = dataset.current.layout_in(snapshot.version());
        let building = layout.building.as_ref();
        let building = building.ok_or_else(|| Error::damaged("the index is no longer built"))?;
        let attribute = &building.attribute;
        let index = UniqueIndex {
            attribute,
            staged: Some(staging),
        };
        let holders = Holders::new(&name, &layout, &snapshot, group);
        let mut duplicates = Duplicates::new(holders, index);
        // Among the earlier records.
        let mut add = |value: &[u8], key: &[u8], seq| duplicates.add(value, key, seq);
        let result = each_staged(&snapshot, staging, attribute, None, READAHEAD, &mut add);
        refuse(duplicates.finish(result)?)?;
        // Among the later ones, and between both.
        let cost = snapshot.cost();
        let lookup = maintenance::lookup(&layout, &snapshot, &cost, &cost, Looks::default());
        let (mut values, mut broke) = (0, false);
        let mut visit = |value: &[u8], _: &[u8], _| {
            if values % VALUES == 0 {
                broke = (self.backfill)
                    .tell_records(Pass::Reading, self.records)
                    .is_err();
            }
            values += 1;
            if broke {
                return Err(Error::bad_input("broken off"));
            }
            duplicates.add_all_of(value)
        };
        let result = index::each_entry(&lookup, attribute, None, READAHEAD, &mut visit);
        if broke {
            return Err(Stop::Broke);
        }
        refuse(duplicates.finish(result)?)
    }
}

/// A duplicate refuses the change; the build has not failed.
fn refuse(duplicate: Option<Error>) -> Result<()> {
    duplicate.map_or(Ok(()), |error| Err(Stop::Refused(error)))
}
