//! Changing the maintenance strategy of a dataset while it is in use.
//!
//! 1. One edit of the engine stores the new strategy in the definition, with the last write under
//!    the old strategy (*since*), and creates and drops trees. Batches encoded for the old strategy
//!    are encoded again. Queries rely on the new strategy only when the obsolete set is complete up
//!    to *since* (the dataset has *converged*); until then they fetch records.
//! 2. A new primary-key index lacks the older records. Their keys are read from the data in order,
//!    and written below the keys that writers have added by then (`backfill.rs`). Until that is
//!    done the index is written but not read.
//! 3. A repair completes the set up to *since*. If the old strategy recorded every replaced write,
//!    the set is complete without it.
//!
//! An interruption after the first step leaves a dataset that has not converged. Changing it to the
//! same strategy again resumes the change, and so does background maintenance.

use std::ops::ControlFlow;

use esker_lsm::{Kind, RunSink, Seq, TreeChange, TreeId};
use esker_model::definition::{Maintenance, MaintenanceSettings};

use super::backfill::{Aborted, Backfill, BackfillPosition, Needs, RecordVersion};
use crate::catalog::{
    Layout, Role, TreeConfig, deleted_tree, keys_tree, superseded_tree, widened_tree,
};
use crate::coverage::{Coverage, Source};
use crate::error::{Error, Result};
use crate::maintenance;
use crate::repair::{RepairOptions, RepairProgress, RepairReport};
use crate::store::Handle;
use crate::trees::widens;

/// The current step of a change of strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MigrationStep {
    /// Adding the keys of older records to the primary-key index. The numbers count records.
    Keys,
    /// Finding the obsolete index entries of the old strategy. The numbers count index entries.
    Repair,
}

/// The progress of a change of strategy.
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

/// Called with the progress from time to time; returns whether to continue. It may use the dataset,
/// but not change its strategy or its indexes.
pub(crate) type OnMigration<'p> = dyn FnMut(MigrationProgress) -> ControlFlow<()> + 'p;

/// The result of a change of strategy.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// False if the progress callback stopped the change: the new strategy is in force, but
    /// obsolete entries of the old one remain.
    pub complete: bool,
}

/// The strategy to migrate to. The strategy is decided when the migration has claimed the dataset,
/// so that it does not undo another migration that has just ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MigrationTarget {
    /// This strategy, until the program sets another one.
    Fixed(Maintenance),
    /// An automatic choice from now on. The present strategy stays for now, if an automatic choice
    /// can replace it; otherwise the first automatic one takes its place.
    Auto,
    /// The present strategy: an interrupted migration to it is completed.
    Present,
    /// An automatic choice, which holds only if `present` is still the automatic one.
    Chosen {
        present: Maintenance,
        to: Maintenance,
    },
}

impl MigrationTarget {
    /// The setting to migrate to from the setting `now`; `None` if an automatic choice no longer
    /// holds.
    fn resolve(self, now: Setting) -> Option<Setting> {
        let automatic = |to| Setting {
            strategy: to,
            is_auto: true,
        };
        match self {
            MigrationTarget::Fixed(to) => Some(Setting {
                strategy: to,
                is_auto: false,
            }),
            MigrationTarget::Auto if now.strategy.uses_keys() => Some(automatic(now.strategy)),
            MigrationTarget::Auto => Some(automatic(maintenance::cost::FIRST)),
            MigrationTarget::Present => Some(now),
            MigrationTarget::Chosen { present, to } => {
                (now == automatic(present)).then_some(automatic(to))
            }
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
        progress: &mut OnMigration<'_>,
    ) -> Result<MigrationReport> {
        let target = MigrationTarget::Fixed(maintenance);
        self.migrate(target, &RepairOptions::default(), progress)
    }

    /// See [`crate::Dataset::set_auto`].
    pub(crate) fn set_auto(&self, progress: &mut OnMigration<'_>) -> Result<MigrationReport> {
        self.migrate(MigrationTarget::Auto, &RepairOptions::default(), progress)
    }

    /// Changes the strategy to `target` and completes the change, with a repair if one is needed.
    /// A strategy that is in force already is only completed.
    pub(crate) fn migrate(
        &self,
        target: MigrationTarget,
        repair: &RepairOptions,
        progress: &mut OnMigration<'_>,
    ) -> Result<MigrationReport> {
        let claim = self.current.claim()?;
        let layout = self.layout();
        let settings = &layout.stored.settings;
        let now = Setting {
            strategy: settings.maintenance,
            is_auto: settings.auto,
        };
        let Some(to) = target.resolve(now) else {
            return Err(self.current.busy());
        };
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
        if report.complete && !self.has_converged() {
            let mut progress = |RepairProgress { done, total }| {
                let step = MigrationStep::Repair;
                progress(MigrationProgress { step, done, total })
            };
            let repair = self.repair(repair, &mut progress)?;
            report.complete = repair.complete;
            report.repair = Some(repair);
        }
        Ok(report)
    }

    /// True if the obsolete set has all obsolete writes of earlier strategies.
    pub(crate) fn has_converged(&self) -> bool {
        self.converged().is_some()
    }

    /// The coverage of the obsolete set, if the dataset has converged.
    fn converged(&self) -> Option<Coverage> {
        let now = self.now();
        let layout = &now.layout;
        let known = layout
            .superseded
            .and_then(|tree| now.snapshot.superseded(tree));
        let coverage = Coverage::new(&layout.stored.settings, known.as_ref());
        let converged = layout.stored.settings.keys_after.is_none() && coverage.has_converged();
        converged.then_some(coverage)
    }

    /// The first step: from here on writes follow the new strategy.
    fn begin_migration(&self, layout: &Layout, to: Setting) -> Result<()> {
        let group = &self.shared.group;
        let mut stored = layout.stored.clone();
        let is_other = stored.settings.maintenance != to.strategy;
        let set_was_complete = self
            .converged()
            .is_some_and(|set| set.complete_for(Source::IndexEntries).is_always());
        stored.settings.maintenance = to.strategy;
        stored.settings.auto = to.is_auto;
        stored.def().validate()?;
        group.change_trees(&mut |last| {
            let mut change = TreeChange::default();
            if is_other {
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
            Some(tree) if set_was_complete && is_other => {
                let since = Some(stored.settings.since);
                Ok(group.supersede(tree, &mut std::iter::empty(), since)?)
            }
            _ => Ok(()),
        }
    }

    /// The trees that a migration to the strategy in `settings` creates and drops.
    fn trees_of_migration(&self, layout: &Layout, settings: &MaintenanceSettings) -> TreeChange {
        let (name, to) = (&self.name(), settings.maintenance);
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
            for attribute in layout.attributes.iter().filter(|a| a.tree.is_some()) {
                let tree = deleted_tree(name, attribute.id);
                created.push((tree, config(Role::Deleted).to_bytes()));
            }
        }
        let attributes = layout.attributes.iter();
        for filter in attributes.filter(|a| widens(settings, a.kind)) {
            let tree = widened_tree(name, filter.id);
            created.push((tree, config(Role::Widened).to_bytes()));
        }
        let attributes = layout.attributes.iter();
        let of_old = attributes.flat_map(|a| a.deleted.into_iter().chain(a.widened));
        let keys = layout.keys_written.filter(|_| !to.uses_keys());
        TreeChange {
            created,
            dropped: of_old.chain(keys).collect(),
            ..TreeChange::default()
        }
    }

    /// Adds the keys that the primary-key index lacks, if the strategy uses it. Returns their
    /// number; `None` if the progress callback stopped it.
    fn complete_keys(&self, progress: &mut OnMigration<'_>) -> Result<Option<u64>> {
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
        progress: &mut OnMigration<'_>,
    ) -> Result<Option<u64>> {
        let mut stored = layout.stored.clone();
        let since = stored.settings.since;
        stored.settings.keys_after = None;
        let config = TreeConfig::new(Role::Keys, &stored.settings);
        let mut progress = |_, done, total| {
            let step = MigrationStep::Keys;
            progress(MigrationProgress { step, done, total })
        };
        let mut backfill = Backfill::new(self, layout.data, after, Needs::default(), &mut progress);
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
        // A repair by key cannot find a replacement that the scan missed, so the dataset converges
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
mod tests {
    use super::*;

    #[test]
    fn a_choice_does_not_undo_another_change() {
        let (old, new) = (Maintenance::Validation, Maintenance::MutableBitmap);
        let fixed = |strategy| Setting {
            strategy,
            is_auto: false,
        };
        let auto = |strategy| Setting {
            strategy,
            is_auto: true,
        };
        let chosen = MigrationTarget::Chosen {
            present: old,
            to: new,
        };
        assert_eq!(chosen.resolve(auto(old)), Some(auto(new)));
        assert_eq!(chosen.resolve(fixed(old)), None);
        assert_eq!(chosen.resolve(auto(new)), None);
        let present = MigrationTarget::Present;
        assert_eq!(present.resolve(auto(new)), Some(auto(new)));
        let to_auto = MigrationTarget::Auto;
        assert_eq!(to_auto.resolve(fixed(new)), Some(auto(new)));
        let to_old = MigrationTarget::Fixed(old);
        assert_eq!(to_old.resolve(auto(new)), Some(fixed(old)));
    }
}
