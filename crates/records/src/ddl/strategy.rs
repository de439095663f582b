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
use esker_model::definition::Maintenance;

use super::backfill::{Backfill, Place, Stop, Version};
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

/// The strategy to migrate to. It is decided when the change is claimed, so that it does not undo
/// another one that has just ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// This one, until it is set again.
    Fixed(Maintenance),
    /// The present one, or the first one that can be changed automatically, and automatic choices
    /// from now on.
    Auto,
    /// The present one: an interrupted change is completed.
    Present,
    /// An automatic choice, which holds only if `present` is still the automatic one.
    Chosen {
        present: Maintenance,
        to: Maintenance,
    },
}

impl Target {
    /// The strategy, and whether it is chosen automatically; `None` if a choice no longer holds.
    fn of(self, present: Maintenance, auto: bool) -> Option<(Maintenance, bool)> {
        match self {
            Target::Fixed(to) => Some((to, false)),
            Target::Auto if present.uses_keys() => Some((present, true)),
            Target::Auto => Some((maintenance::cost::FIRST, true)),
            Target::Present => Some((present, auto)),
            Target::Chosen { present: of, to } => (auto && of == present).then_some((to, true)),
        }
    }
}

impl Handle {
    /// See [`crate::Dataset::set_maintenance`].
    pub(crate) fn set_maintenance(
        &self,
        maintenance: Maintenance,
        progress: &mut OnMigration<'_>,
    ) -> Result<MigrationReport> {
        let target = Target::Fixed(maintenance);
        self.migrate(target, &RepairOptions::default(), progress)
    }

    /// See [`crate::Dataset::set_auto`].
    pub(crate) fn set_auto(&self, progress: &mut OnMigration<'_>) -> Result<MigrationReport> {
        self.migrate(Target::Auto, &RepairOptions::default(), progress)
    }

    /// Changes the strategy to `target` and completes the change, with a repair if one is needed.
    /// A strategy that is in force already is only completed.
    pub(crate) fn migrate(
        &self,
        target: Target,
        repair: &RepairOptions,
        progress: &mut OnMigration<'_>,
    ) -> Result<MigrationReport> {
        let claim = self.current.claim()?;
        let layout = self.layout();
        let settings = &layout.stored.settings;
        let Some((to, auto)) = target.of(settings.maintenance, settings.auto) else {
            return Err(self.current.busy());
        };
        let mut report = MigrationReport {
            from: settings.maintenance,
            to,
            keys: 0,
            repair: None,
            complete: true,
        };
        if to != settings.maintenance || auto != settings.auto {
            layout.refuse_unfinished()?;
            self.begin_migration(&layout, to, auto)?;
        }
        let layout = self.layout();
        match (layout.stored.settings.keys_after, layout.keys_written) {
            (None, _) => {}
            (Some(_), None) => {
                return Err(Error::damaged(format!(
                    "dataset `{}` has no primary-key index for the keys that its strategy needs",
                    self.name()
                )));
            }
            (Some(after), Some(tree)) => {
                match self.backfill_keys(&layout, tree, after, progress)? {
                    Some(keys) => report.keys = keys,
                    None => report.complete = false,
                }
            }
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
    fn begin_migration(&self, layout: &Layout, to: Maintenance, auto: bool) -> Result<()> {
        let group = &self.shared.group;
        let mut stored = layout.stored.clone();
        let from = stored.settings.maintenance;
        let converged = self.converged();
        let set_was_complete =
            converged.is_some_and(|set| set.of(Source::IndexEntries).is_always());
        stored.settings.maintenance = to;
        stored.settings.auto = auto;
        stored.def().validate()?;
        let mut since = 0;
        group.change_trees(&mut |last| {
            let mut change = TreeChange::default();
            if from != to {
                since = last;
                stored.settings.since = last;
                if !to.uses_keys() {
                    stored.settings.keys_after = None;
                } else if layout.keys_written.is_none() {
                    stored.settings.keys_after = Some(last);
                }
                let config = |role| TreeConfig::new(role, &stored.settings);
                if to.uses_keys() && layout.keys_written.is_none() {
                    let keys = config(Role::Keys).incomplete();
                    change
                        .created
                        .push((keys_tree(&self.name()), keys.to_bytes()));
                }
                if layout.superseded.is_none() {
                    let tree = superseded_tree(&self.name());
                    change
                        .created
                        .push((tree, config(Role::Superseded).to_bytes()));
                }
                let standalone = layout.attributes.iter().filter(|a| a.tree.is_some());
                for attribute in standalone.filter(|_| maintenance::of(to).keeps_written_keys()) {
                    let tree = deleted_tree(&self.name(), attribute.id);
                    change
                        .created
                        .push((tree, config(Role::Deleted).to_bytes()));
                }
                let filters = layout.attributes.iter();
                for attribute in filters.filter(|a| widens(&stored.settings, a.kind)) {
                    let tree = widened_tree(&self.name(), attribute.id);
                    change
                        .created
                        .push((tree, config(Role::Widened).to_bytes()));
                }
                let attributes = layout.attributes.iter();
                let deleted = attributes.flat_map(|a| a.deleted.into_iter().chain(a.widened));
                let keys = layout.keys_written.filter(|_| !to.uses_keys());
                change.dropped = deleted.chain(keys).collect();
            }
            change.configured.push((layout.data, stored.to_bytes()));
            Ok(change)
        })?;
        match layout.superseded {
            // The set is complete: it has everything that was replaced up to `since`.
            Some(tree) if set_was_complete && from != to => {
                Ok(group.supersede(tree, &mut std::iter::empty(), Some(since))?)
            }
            _ => Ok(()),
        }
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
        let mut backfill = Backfill::new(self, layout.data, after, false, &mut progress);
        let mut keys = 0;
        let mut write = |backfill: &mut Backfill<'_, '_>, sink: &mut RunSink<'_>| {
            // Later writes are in the index already. If one replaced a record before the scan
            // reached it, the index lacks the replaced write.
            let mut add = |version: &Version<'_>| {
                keys += 1;
                Ok(sink(version.key, version.seq, Kind::Put, &[])?)
            };
            backfill.run(Place::default(), &mut add).map(drop)
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
            Err(Stop::Broke) => Ok(None),
            Err(Stop::Refused(error)) => Err(error),
            Err(Stop::Failed(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_does_not_undo_another_change() {
        let (old, new) = (Maintenance::Validation, Maintenance::MutableBitmap);
        let chosen = Target::Chosen {
            present: old,
            to: new,
        };
        assert_eq!(chosen.of(old, true), Some((new, true)));
        assert_eq!(chosen.of(old, false), None);
        assert_eq!(chosen.of(new, true), None);
        assert_eq!(Target::Present.of(new, true), Some((new, true)));
        assert_eq!(Target::Auto.of(new, false), Some((new, true)));
        assert_eq!(Target::Fixed(old).of(new, true), Some((old, false)));
    }
}
