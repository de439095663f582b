//! The due work of a dataset: deleting expired records, completing an interrupted change of
//! strategy, choosing the strategy, repairing.

use std::ops::ControlFlow;

use esker_lsm::version::TreeVersion;
use esker_lsm::{Component, Snapshot, TreeId};
use esker_model::definition::Repair;

use super::choose::choose;
use super::pacing::{Backlog, due};
use crate::catalog::Layout;
use crate::ddl::MigrationTarget;
use crate::error::{Error, Result};
use crate::maintenance;
use crate::maintenance::cost::WorkPerWrite;
use crate::repair::RepairOptions;
use crate::store::Handle;
use crate::telemetry::{LastRepair, Measured, StrategyChoice};

/// The most bytes that background repairs read per second.
const MAX_BYTES_PER_SECOND: u64 = 64 << 20;

impl Handle {
    /// Runs due work while `may_continue` returns true. An error is kept for the statistics, and
    /// the work retried after growing pauses.
    pub(super) fn run_maintenance(&self, may_continue: &dyn Fn() -> bool) {
        let live = self.state.usage.maintenance();
        if live.state.lock().pauses() {
            return;
        }
        let result = self.try_maintenance(may_continue);
        let ended = !may_continue() || self.now().is_dropped();
        let mut state = live.state.lock();
        match result {
            Ok(()) => state.succeeded(),
            // The dataset is being changed, or an index is unfinished: retry later.
            Err(error) if ended || matches!(error, Error::Busy(_)) => {}
            Err(error) => state.failed(&error),
        }
    }

    /// Runs the due work, one after the other.
    fn try_maintenance(&self, may_continue: &dyn Fn() -> bool) -> Result<()> {
        self.expire(may_continue)?;
        let now = self.now();
        let (layout, snapshot) = (&now.layout, &now.snapshot);
        let settings = &layout.stored.settings;
        if !layout.attributes.iter().any(|a| a.tree.is_some()) || !may_continue() {
            return Ok(());
        }
        if !self.has_migrated() {
            return self.migrate_to(MigrationTarget::Present, may_continue);
        }
        if settings.auto && self.reconsider_strategy(layout, snapshot, may_continue)? {
            return Ok(());
        }
        let repairs = settings.repair == Repair::Merge && !settings.maintenance.looks_at_writes();
        if repairs && let Some(why) = due(&self.backlog(layout, snapshot)) {
            self.repair_now(why, may_continue)?;
        }
        Ok(())
    }

    /// Migrates to another strategy, unless another change of the dataset is requested.
    ///
    /// # Errors
    /// [`Error::Busy`] if it yielded to another change; also any error of the migration.
    fn migrate_to(&self, target: MigrationTarget, may_continue: &dyn Fn() -> bool) -> Result<()> {
        let options = self.repair_options();
        let report = self.yielding(may_continue, |may_continue| {
            self.migrate(target, &options, &mut |_| control_flow(may_continue()))
        })?;
        if !report.complete {
            return Err(self.state.busy());
        }
        if let Some(repair) = report.repair {
            self.note_repair(&repair, "a migration of the strategy");
        }
        Ok(())
    }

    /// The limits of repairs in the background.
    fn repair_options(&self) -> RepairOptions {
        let options = self.store.group.options();
        RepairOptions {
            memory: (options.memory_budget / 16).max(64 << 10),
            threads: 1,
            bytes_per_second: options.background.then_some(MAX_BYTES_PER_SECOND),
            ..RepairOptions::default()
        }
    }

    /// Repairs the flushed writes, unless another change of the dataset is requested.
    ///
    /// # Errors
    /// [`Error::Busy`] if it yielded to another change; also any error of the repair.
    fn repair_now(&self, why: &str, may_continue: &dyn Fn() -> bool) -> Result<()> {
        let options = self.repair_options();
        let report = self.yielding(may_continue, |may_continue| {
            self.repair_flushed(&options, &mut |_| control_flow(may_continue()))
        })?;
        if !report.complete {
            return Err(self.state.busy());
        }
        self.note_repair(&report, why);
        Ok(())
    }

    /// Runs work that yields to any other change of the dataset.
    fn yielding<T>(
        &self,
        may_continue: &dyn Fn() -> bool,
        work: impl FnOnce(&dyn Fn() -> bool) -> Result<T>,
    ) -> Result<T> {
        let state = &self.state;
        let _yields = state.yield_to_claims()?;
        work(&|| may_continue() && !state.has_waiting_claim())
    }

    /// Stores a completed repair for the statistics and for pacing.
    fn note_repair(&self, report: &crate::repair::RepairReport, why: &str) {
        let usage = &self.state.usage;
        let now = self.now();
        let layout = &now.layout;
        // A dataset whose strategy needs no obsolete set has none.
        let known_obsolete = layout
            .superseded
            .and_then(|tree| version(&now.snapshot, tree))
            .map_or(0, TreeVersion::noted);
        let repair = LastRepair {
            up_to: report.watermark,
            writes: usage.writes(),
            known_obsolete,
            entries: report.entries + report.looked_up,
            found: report.found,
            // The statistics are stored in a file, and a store without background threads must be
            // deterministic.
            micros: if self.store.group.options().background {
                report.elapsed.as_micros() as u64
            } else {
                0
            },
            why: why.to_string(),
        };
        let live = usage.maintenance();
        if !layout.stored.settings.maintenance.looks_at_writes() {
            live.learn_update_ratio(&repair);
        }
        live.repaired(repair);
    }

    /// Reconsiders the strategy if enough operations have passed since the last time; true if it
    /// chose another one.
    fn reconsider_strategy(
        &self,
        layout: &Layout,
        snapshot: &Snapshot,
        may_continue: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let live = self.state.usage.maintenance();
        let operations = live.operations();
        let considered_at = live.state.lock().considered_at;
        if operations < considered_at.saturating_add(self.store.operations_per_choice) {
            return Ok(false);
        }
        live.state.lock().considered_at = operations;
        let Some(work) = self.workload(layout, snapshot, &live.read()) else {
            return Ok(false);
        };
        let present = layout.stored.settings.maintenance;
        let choice = choose(&work, present);
        let costs = choice.costs.iter().map(|cost| {
            let rounded = (cost.micros_per_write * 100.0).round() / 100.0;
            (cost.strategy.to_string(), rounded)
        });
        live.state.lock().choice = Some(StrategyChoice {
            strategy: choice.strategy.to_string(),
            why: choice.reason,
            would_change: choice.change,
            micros_per_write: costs.collect(),
        });
        if choice.strategy == present {
            return Ok(false);
        }
        let to = choice.strategy;
        self.migrate_to(MigrationTarget::Chosen { present, to }, may_continue)?;
        Ok(true)
    }

    /// The number of writes that must be known to replace a record or not before their update ratio
    /// counts.
    fn min_known(&self) -> u64 {
        self.store.operations_per_choice / 32
    }

    /// The measured workload; `None` while the update ratio is unknown.
    fn workload(
        &self,
        layout: &Layout,
        snapshot: &Snapshot,
        measured: &Measured,
    ) -> Option<WorkPerWrite> {
        let writes = measured.written.max(1) as f64;
        let cache = self.store.group.cache().capacity() as f64;
        let bytes = |tree| version(snapshot, tree).map_or(0, TreeVersion::size) as f64;
        let cached = |bytes: f64| (cache / bytes.max(1.0)).min(1.0);
        let keys = layout.keys.map_or(0.0, bytes);
        let standalone = layout.attributes.iter().filter(|a| a.tree.is_some());
        let update_ratio = measured.update_ratio(self.min_known())?;
        let strategy = maintenance::strategy_of(layout.stored.settings.maintenance);
        let wasted = strategy.wasted(measured, update_ratio);
        Some(WorkPerWrite {
            update_ratio,
            indexes: standalone.count() as f64,
            entries: measured.entries as f64 / writes,
            fetched: measured.fetched as f64 / writes,
            wasted,
            scanned: measured.filter_scanned as f64 / writes,
            keys_cached: cached(keys),
            data_cached: cached(keys + bytes(layout.data)),
        })
    }

    /// The work of the next repair, and the writes and waste since the last one.
    fn backlog(&self, layout: &Layout, snapshot: &Snapshot) -> Backlog {
        // Without an obsolete set all entries are new.
        let watermark = layout
            .superseded
            .and_then(|tree| version(snapshot, tree))
            .map_or(0, TreeVersion::repair_watermark);
        let mut entries = 0;
        let mut new = 0;
        for component in snapshot.components(layout.keys.unwrap_or(layout.data)) {
            if let Component::Run(run) = &component {
                entries += component.entries();
                if run.component().max > watermark {
                    new += component.entries();
                }
            }
        }
        let usage = &self.state.usage;
        let live = usage.maintenance();
        let wasted = live.wasted();
        let state = live.state.lock();
        let last = state.repair.as_ref();
        // A short repair measures nothing.
        let measured = last
            .filter(|last| last.entries > 1000)
            .map(|last| last.micros as f64 / last.entries as f64);
        let written_before = last.map_or(0, |last| last.writes);
        Backlog {
            // Both are statistics, which can be lost.
            written: usage.writes().saturating_sub(written_before),
            entries,
            new,
            probed: wasted.probed,
            wasted: wasted.fetched_obsolete,
            by_key: layout.keys.is_some(),
            // A store without background threads must be deterministic.
            per_entry: measured.filter(|_| self.store.group.options().background),
        }
    }

    /// The figures that decide when the next repair is due.
    pub(crate) fn pace(&self, layout: &Layout, snapshot: &Snapshot) -> Pace {
        let measured = self.state.usage.maintenance().read();
        let backlog = self.backlog(layout, snapshot);
        Pace {
            update_ratio: measured.update_ratio(self.min_known()),
            wasted_micros: backlog.waste().round() as u64,
            next_repair_micros: backlog.cost().round() as u64,
        }
    }
}

/// The figures that decide when the next repair is due: see [`crate::stats::StrategyStats`]. Times
/// are in microseconds.
pub(crate) struct Pace {
    pub(crate) update_ratio: Option<f64>,
    pub(crate) wasted_micros: u64,
    pub(crate) next_repair_micros: u64,
}

/// The state of a tree in a snapshot; `None` if the tree was dropped.
fn version(snapshot: &Snapshot, tree: TreeId) -> Option<&TreeVersion> {
    snapshot.version().trees.get(&tree).map(AsRef::as_ref)
}

fn control_flow(goes_on: bool) -> ControlFlow<()> {
    if goes_on {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}
