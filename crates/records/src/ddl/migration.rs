//! The migration of a dataset to another maintenance strategy, while it is in use.
//!
//! 1. One edit of the engine stores the new strategy in the definition, with the last write under
//!    the old strategy (*since*), and creates and drops trees. Batches encoded for the old strategy
//!    are encoded again. Queries rely on the new strategy only when the obsolete set is complete up
//!    to *since* (it has *converged*); until then they fetch records.
//! 2. A new primary-key index lacks the older records. Their keys are read from the data in order,
//!    and written below the keys that writers have added by then (`backfill.rs`). Until that is
//!    done the index is written but not read.
//! 3. A repair completes the set up to *since*. If the old strategy recorded every replaced write,
//!    the set is complete without it.
//!
//! An interruption after the first step leaves an unfinished migration. A migration to the same
//! strategy resumes it, and so does background maintenance.

use std::ops::ControlFlow;

use esker_lsm::{Kind, RunSink, Seq, TreeChange, TreeId};
use esker_model::definition::{Maintenance, MaintenanceSettings};
use serde::{Deserialize, Serialize};

use super::backfill::{Aborted, Backfill, BackfillPosition, Needs, RecordVersion};
use crate::catalog::{
    Layout, Role, TreeConfig, deleted_tree, keys_tree, superseded_tree, widened_tree,
};
use crate::coverage::{Coverage, Source};
use crate::error::{Error, Result};
use crate::maintenance;
use crate::maintenance::cost::{CANDIDATES, DEFAULT};
use crate::repair::{RepairOptions, RepairProgress, RepairReport};
use crate::store::Handle;
use crate::trees::widens;

/// The current step of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MigrationStep {
    /// Adding the keys of older records to the primary-key index. The numbers count records.
    Keys,
    /// Finding the obsolete index entries of the old strategy. The numbers count index entries.
    Repair,
}

/// The progress of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigrationProgress {
    /// The current step.
    pub step: MigrationStep,
    /// How much of the step is done.
    pub done: u64,
    /// About how much the step has to do.
    pub total: u64,
}

impl MigrationProgress {
    /// For stores of other crates.
    pub fn new(step: MigrationStep, done: u64, total: u64) -> MigrationProgress {
        MigrationProgress { step, done, total }
    }
}

/// The result of a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MigrationReport {
    /// The strategy before.
    pub from: Maintenance,
    /// The strategy now.
    pub to: Maintenance,
    /// Keys that were added to the primary-key index.
    pub keys: u64,
    /// The repair, if one was needed.
    pub repair: Option<RepairReport>,
    /// False if the progress callback stopped the migration: the new strategy is in force, but
    /// obsolete entries of the old one remain.
    pub complete: bool,
}

impl MigrationReport {
    /// The report of a migration that was stopped before it began, for stores of other crates.
    pub fn stopped(now: Maintenance) -> MigrationReport {
        MigrationReport {
            from: now,
            to: now,
            keys: 0,
            repair: None,
            complete: false,
        }
    }
}

/// The strategy to migrate to. The strategy is decided when the migration has claimed the dataset,
/// so that it does not undo another migration that has just ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MigrationTarget {
    /// This strategy, until the program sets another one.
    Fixed(Maintenance),
    /// An automatic choice from now on. The present strategy stays for now, if it is one of those
    /// that are chosen automatically; otherwise the default takes its place.
    Auto,
    /// The present strategy: an interrupted migration to it is completed.
    Present,
    /// An automatic choice, made while `present` was the automatic one. If it no longer is, another
    /// migration has come first: the choice is void, and the target is the present strategy.
    Chosen {
        present: Maintenance,
        to: Maintenance,
    },
}

impl MigrationTarget {
    /// The setting to migrate to from the setting `now`.
    fn resolve(self, now: Setting) -> Setting {
        let automatic = |strategy| Setting {
            strategy,
            is_auto: true,
        };
        match self {
            MigrationTarget::Fixed(strategy) => Setting {
                strategy,
                is_auto: false,
            },
            MigrationTarget::Auto if CANDIDATES.contains(&now.strategy) => automatic(now.strategy),
            MigrationTarget::Auto => automatic(DEFAULT),
            MigrationTarget::Chosen { present, to } if now == automatic(present) => automatic(to),
            MigrationTarget::Chosen { .. } | MigrationTarget::Present => now,
        }
    }
}

/// A strategy, and whether it is chosen automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    strategy: Maintenance,
    is_auto: bool,
}

impl Handle {
    /// See [`crate::Dataset::set_maintenance`].
    pub(crate) fn set_maintenance(
        &self,
        maintenance: Maintenance,
        progress: &mut dyn FnMut(MigrationProgress) -> ControlFlow<()>,
    ) -> Result<MigrationReport> {
        let target = MigrationTarget::Fixed(maintenance);
        self.migrate(target, &RepairOptions::default(), progress)
    }

    /// See [`crate::Dataset::set_auto`].
    pub(crate) fn set_auto(
        &self,
        progress: &mut dyn FnMut(MigrationProgress) -> ControlFlow<()>,
    ) -> Result<MigrationReport> {
        self.migrate(MigrationTarget::Auto, &RepairOptions::default(), progress)
    }

    /// Migrates to `target` and completes the migration, with a repair if one is needed. If the
    /// target is in force already, only what is unfinished is completed. `progress` is called from
    /// time to time and returns whether to continue; it may use the dataset, but not change its
    /// strategy or its indexes.
    pub(crate) fn migrate(
        &self,
        target: MigrationTarget,
        repair_options: &RepairOptions,
        progress: &mut dyn FnMut(MigrationProgress) -> ControlFlow<()>,
    ) -> Result<MigrationReport> {
        let claim = self.state.claim()?;
        let layout = self.layout();
        let settings = &layout.stored.settings;
        let now = Setting {
            strategy: settings.maintenance,
            is_auto: settings.auto,
        };
        let to = target.resolve(now);
        let mut report = MigrationReport {
            from: now.strategy,
            to: to.strategy,
            keys: 0,
            repair: None,
            complete: true,
        };
        if to != now {
            layout.refuse_unfinished()?;
            self.begin_migration(&layout, to)?;
        }
        match self.complete_keys(progress)? {
            Some(keys) => report.keys = keys,
            None => report.complete = false,
        }
        drop(claim);
        if report.complete && !self.has_migrated() {
            let mut on_repair = |RepairProgress { done, total }| {
                let step = MigrationStep::Repair;
                progress(MigrationProgress { step, done, total })
            };
            let repair = self.repair(repair_options, &mut on_repair)?;
            report.complete = repair.complete;
            report.repair = Some(repair);
        }
        Ok(report)
    }

    /// True if no migration is unfinished: the primary-key index, if the strategy uses it, has all
    /// keys, and the obsolete set has all obsolete writes of earlier strategies.
    pub(crate) fn has_migrated(&self) -> bool {
        self.coverage_if_migrated().is_some()
    }

    /// The coverage of the obsolete set; `None` if a migration is unfinished.
    fn coverage_if_migrated(&self) -> Option<Coverage> {
        let now = self.now();
        let layout = &now.layout;
        let obsolete_set = layout
            .superseded
            .and_then(|tree| now.snapshot.superseded(tree));
        let coverage = Coverage::new(&layout.stored.settings, obsolete_set.as_ref());
        let has_all_keys = layout.stored.settings.keys_after.is_none();
        (has_all_keys && coverage.has_converged()).then_some(coverage)
    }

    /// The first step: from here on writes follow the new strategy.
    fn begin_migration(&self, layout: &Layout, to: Setting) -> Result<()> {
        let mut stored = layout.stored.clone();
        let is_new_strategy = stored.settings.maintenance != to.strategy;
        let set_was_complete = self
            .coverage_if_migrated()
            .is_some_and(|set| set.complete_for(Source::IndexEntries).is_always());
        stored.settings.maintenance = to.strategy;
        stored.settings.auto = to.is_auto;
        stored.def().validate()?;
        // Of several calls the last one counts: its result is installed, and `stored` is the same.
        self.store.group.change_trees(&mut |last| {
            let mut change = TreeChange::default();
            if is_new_strategy {
                stored.settings.since = last;
                if !to.strategy.uses_keys() {
                    stored.settings.keys_after = None;
                } else if layout.keys_written.is_none() {
                    stored.settings.keys_after = Some(last);
                }
                change = self.trees_of_migration(layout, &stored.settings);
            }
            change.configured.push((layout.data, stored.to_bytes()));
            Ok(change)
        })?;
        match layout.superseded {
            // The set is complete: it has everything that was replaced up to `since`.
            Some(set) if set_was_complete && is_new_strategy => {
                self.advance_repair_watermark(set, stored.settings.since)
            }
            _ => Ok(()),
        }
    }

    /// Advances the repair watermark of the obsolete set, which has all obsolete writes up to it.
    fn advance_repair_watermark(&self, set: TreeId, watermark: Seq) -> Result<()> {
        let no_writes = &mut std::iter::empty();
        let group = &self.store.group;
        Ok(group.supersede(set, no_writes, Some(watermark))?)
    }

    /// The trees that a migration to the strategy in `settings` creates and drops.
    fn trees_of_migration(&self, layout: &Layout, settings: &MaintenanceSettings) -> TreeChange {
        let (name, to) = (&self.name(), settings.maintenance);
        let attributes = &layout.attributes;
        let config = |role| TreeConfig::new(role, settings);
        let mut created = Vec::new();
        if to.uses_keys() && layout.keys_written.is_none() {
            let keys = config(Role::Keys).incomplete();
            created.push((keys_tree(name), keys.to_bytes()));
        }
        if layout.superseded.is_none() {
            created.push((superseded_tree(name), config(Role::Superseded).to_bytes()));
        }
        if maintenance::strategy_of(to).keeps_written_keys() {
            for attribute in attributes.iter().filter(|a| a.tree.is_some()) {
                let tree = deleted_tree(name, attribute.id);
                created.push((tree, config(Role::Deleted).to_bytes()));
            }
        }
        for filter in attributes.iter().filter(|a| widens(settings, a.kind)) {
            let tree = widened_tree(name, filter.id);
            created.push((tree, config(Role::Widened).to_bytes()));
        }
        let old_trees = (attributes.iter()).flat_map(|a| a.deleted.into_iter().chain(a.widened));
        let old_keys = layout.keys_written.filter(|_| !to.uses_keys());
        TreeChange {
            created,
            dropped: old_trees.chain(old_keys).collect(),
            ..TreeChange::default()
        }
    }

    /// Adds the keys that the primary-key index lacks, if the strategy uses it. Returns their
    /// number; `None` if the progress callback stopped it.
    fn complete_keys(
        &self,
        progress: &mut dyn FnMut(MigrationProgress) -> ControlFlow<()>,
    ) -> Result<Option<u64>> {
        let layout = self.layout();
        let Some(after) = layout.stored.settings.keys_after else {
            return Ok(Some(0));
        };
        let tree = layout.keys_written.ok_or_else(|| {
            Error::damaged(format!(
                "dataset `{}` has no primary-key index for the keys that its strategy needs",
                self.name()
            ))
        })?;
        self.backfill_keys(&layout, tree, after, progress)
    }

    /// Adds the keys of the records up to `after` to the primary-key index, which has later writes
    /// only. Returns their number; `None` if the progress callback stopped it.
    fn backfill_keys(
        &self,
        layout: &Layout,
        tree: TreeId,
        after: Seq,
        progress: &mut dyn FnMut(MigrationProgress) -> ControlFlow<()>,
    ) -> Result<Option<u64>> {
        let mut stored = layout.stored.clone();
        let since = stored.settings.since;
        stored.settings.keys_after = None;
        let config = TreeConfig::new(Role::Keys, &stored.settings);
        let mut on_phase = |_, done, total| {
            let step = MigrationStep::Keys;
            progress(MigrationProgress { step, done, total })
        };
        let mut backfill = Backfill::new(self, layout.data, after, Needs::default(), &mut on_phase);
        let mut keys = 0;
        let mut write = |backfill: &mut Backfill<'_, '_>, sink: &mut RunSink<'_>| {
            // Later writes are in the index already. If one replaced a record before the scan
            // reached it, the index lacks the replaced write.
            let mut add = |version: &RecordVersion<'_>| {
                keys += 1;
                Ok(sink(version.key, version.seq, Kind::Put, &[])?)
            };
            backfill
                .run(BackfillPosition::default(), &mut add)
                .map(drop)
        };
        // A repair by key cannot find a replacement that the scan missed, so the set converges
        // only when the watermark reaches the last round of the scan.
        let mut change = |seen: Seq| {
            debug_assert!(seen >= after);
            stored.settings.since = seen.max(since);
            TreeChange {
                configured: vec![(layout.data, stored.to_bytes()), (tree, config.to_bytes())],
                ..TreeChange::default()
            }
        };
        match backfill.install(tree, &mut write, &mut change) {
            Ok(()) => Ok(Some(keys)),
            Err(Aborted::Cancelled) => Ok(None),
            Err(Aborted::Refused(error) | Aborted::Failed(error)) => Err(error),
        }
    }
}

#[cfg(test)]
#[path = "migration_tests.rs"]
mod tests;
