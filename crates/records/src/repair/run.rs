//! A repair: the choice of the method, and the work before and after it.

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::version::TreeVersion;
use esker_lsm::{TreeChange, TreeId};
use esker_model::definition::Repair;

use super::options::{Compaction, OnRepair, RepairMethod, RepairOptions, RepairReport};
use super::work::{RepairRun, TaskResult};
use super::{by_index, by_key, primary};
use crate::catalog::{Layout, Role, TreeConfig, superseded_tree};
use crate::coverage::Source;
use crate::error::{Error, Result};
use crate::maintenance;
use crate::store::{Handle, View};

impl Handle {
    /// See [`crate::Dataset::repair`].
    pub(crate) fn repair(
        &self,
        options: &RepairOptions,
        progress: &mut OnRepair<'_>,
    ) -> Result<RepairReport> {
        self.superseded(Readable::Verified)?;
        self.store.group.flush()?;
        self.repair_flushed(options, progress)
    }

    /// As [`Handle::repair`], for the writes that are flushed.
    pub(crate) fn repair_flushed(
        &self,
        options: &RepairOptions,
        progress: &mut OnRepair<'_>,
    ) -> Result<RepairReport> {
        if options.bytes_per_second == Some(0) {
            return Err(Error::bad_input(
                "a repair needs a rate above 0 bytes a second",
            ));
        }
        let group = &self.store.group;
        let superseded = self.superseded(Readable::AsOpened)?;
        self.state.save_obsolete_notes(group)?;
        let before = self.now();
        let method = choose(options.method, &before, superseded)?;
        // An index under construction gets entries that the repair would not see.
        let _claim = match method {
            RepairMethod::Index => {
                let claim = self.state.claim()?;
                self.layout().refuse_unfinished()?;
                Some(claim)
            }
            _ => None,
        };
        let now = match method {
            RepairMethod::Primary {
                compaction: Compaction::After,
            } => {
                let data = before.layout.data;
                // Its snapshot would keep the files that the compaction replaces.
                drop(before);
                group.compact(Some(data))?;
                let now = self.now();
                // If the strategy changed concurrently, compactions may have dropped writes without
                // a report.
                choose(method, &now, superseded)?;
                now
            }
            // An index may have been added before the claim.
            RepairMethod::Index => self.now(),
            _ => before,
        };
        let known = now.snapshot.superseded(superseded);
        let known = known.ok_or_else(|| Error::damaged("the obsolete set is missing"))?;
        let work = RepairRun::new(group, superseded, now.snapshot.clone(), known, options);
        // If every write records what it replaces, a repair finds nothing.
        let coverage = now.layout.coverage_at(Some(work.watermark()));
        let finds_nothing = coverage.complete_for(Source::IndexEntries).is_always();
        let result = if finds_nothing && options.method == RepairMethod::Auto {
            Ok(())
        } else {
            run_method(method, &work, &now.layout, progress)
        };
        let report = work.finish(method, result)?;
        if let RepairMethod::Primary {
            compaction: Compaction::Before,
        } = method
        {
            group.compact(Some(now.layout.data))?;
        }
        Ok(report)
    }

    /// The tree of the obsolete set. Creates it if the store is older than obsolete sets, and
    /// recreates it if its files cannot be read: then its numbers must be found again, as after a
    /// migration.
    fn superseded(&self, required: Readable) -> Result<TreeId> {
        let readable = |layout: &Layout| {
            let snapshot = self.store.group.snapshot();
            let id = layout.superseded?;
            let tree = snapshot.version().trees.get(&id)?;
            let is_readable =
                tree.damage().is_none() && (required == Readable::AsOpened || is_undamaged(tree));
            is_readable.then_some(id)
        };
        if let Some(tree) = readable(&self.layout()) {
            return Ok(tree);
        }
        let _claim = self.state.claim()?;
        let layout = self.layout();
        // Another thread may have created it by now.
        if let Some(tree) = readable(&layout) {
            return Ok(tree);
        }
        let config = TreeConfig::new(Role::Superseded, &layout.stored.settings);
        let mut stored = layout.stored.clone();
        let created = self.store.group.change_trees(&mut |last| {
            if layout.superseded.is_some() {
                stored.settings.since = last;
            }
            Ok(TreeChange {
                created: vec![(superseded_tree(&self.name()), config.to_bytes())],
                // With the definition, so that layouts of it are computed again.
                configured: vec![(layout.data, stored.to_bytes())],
                dropped: layout.superseded.into_iter().collect(),
                ..TreeChange::default()
            })
        })?;
        Ok(*created.item(0)?)
    }
}

/// Runs the tasks of a method.
fn run_method(
    method: RepairMethod,
    work: &RepairRun<'_>,
    layout: &Layout,
    progress: &mut OnRepair<'_>,
) -> TaskResult {
    match method {
        RepairMethod::Key => by_key::run(work, layout, progress),
        RepairMethod::Index => {
            let complete = layout.coverage_at(Some(work.watermark())).loses_nothing();
            let drops_recorded = complete && layout.stored.settings.repair == Repair::Merge;
            by_index::run(work, layout, drops_recorded, progress)?;
            let has_filters = layout.attributes.iter().any(|a| a.is_filtered_scan());
            if has_filters && !complete {
                // The index entries of a range filter are the records themselves, in all stored
                // versions.
                primary::run(work, layout, progress)?;
            }
            Ok(())
        }
        RepairMethod::Primary { .. } => primary::run(work, layout, progress),
        // `choose` has replaced it.
        RepairMethod::Auto => Err(Misplaced::here().into()),
    }
}

/// How thoroughly the files of the obsolete set are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readable {
    /// Their entries were readable when the store was opened.
    AsOpened,
    /// Also, every byte of them is correct now: after a repair `check` must find nothing.
    Verified,
}

/// True if every byte of a tree's tables is correct. Reads all of them.
fn is_undamaged(tree: &TreeVersion) -> bool {
    let mut tables = tree.runs.iter().flat_map(|run| run.tables.iter());
    tables.all(|table| {
        let mut errors = 0;
        table.table().is_ok_and(|table| {
            table.verify(&mut |_| errors += 1);
            errors == 0
        })
    })
}

/// The method to use in a view of the dataset with this obsolete set.
///
/// # Errors
/// [`Error::BadInput`] if the requested method does not fit.
fn choose(method: RepairMethod, now: &View, superseded: TreeId) -> Result<RepairMethod> {
    let layout = &now.layout;
    let tree = now.snapshot.version().trees.get(&superseded);
    let watermark = tree.map(|tree| tree.repair_watermark());
    let complete = layout.coverage_at(watermark).loses_nothing();
    let settings = &layout.stored.settings;
    let by_key = complete && layout.keys.is_some();
    let by_data = complete && maintenance::strategy_of(settings.maintenance).data_reports();
    match method {
        RepairMethod::Auto if by_key => Ok(RepairMethod::Key),
        RepairMethod::Auto if by_data => Ok(RepairMethod::Primary {
            compaction: Compaction::Without,
        }),
        RepairMethod::Auto => Ok(RepairMethod::Index),
        RepairMethod::Key if !by_key => Err(Error::bad_input(
            "a repair by key needs maintenance eager, validation or mutable-bitmap, and repair merge: only then do compactions of the primary-key index record what they drop",
        )),
        RepairMethod::Primary { .. } if !by_data => Err(Error::bad_input(
            "a primary repair needs deferred maintenance, and repair merge or staged: only then do compactions record or keep replaced records",
        )),
        RepairMethod::Key | RepairMethod::Index | RepairMethod::Primary { .. } => Ok(method),
    }
}
