//! Reports how jobs ended to the scheduler, which pauses trees whose compactions fail.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::core::Core;
use super::failures::{Job, JobFailure, RETRY, Retry};
use super::scheduler::Scheduler;
use super::version_set::VersionSet;
use crate::batch::TreeId;
use crate::error::Error;
use crate::stats::Counters;
use crate::version::{TreeVersion, Version};

/// Records a failed compaction of `tree`: one of its policy (`whole`), or of its newer runs.
pub(super) fn compaction_failed(
    core: &Core,
    versions: &VersionSet,
    scheduler: &Scheduler,
    version: &Version,
    tree: &Arc<TreeVersion>,
    error: &Error,
    whole: bool,
) {
    if !core.is_contained(error) {
        return;
    }
    Counters::add(&core.counters.background_failures, 1);
    let mut failures = scheduler.failures.lock();
    failures.note(version, tree, error, whole, core.options.background);
    drop(failures);
    versions.change_pressure(scheduler);
}

/// Records that a compaction chosen by the policy of `tree` succeeded.
pub(super) fn compaction_succeeded(versions: &VersionSet, scheduler: &Scheduler, tree: TreeId) {
    let had_failed = scheduler.failures.lock().clear(tree);
    if had_failed {
        versions.change_pressure(scheduler);
    }
}

/// The current failures.
pub(super) fn list_failures(
    core: &Core,
    versions: &VersionSet,
    scheduler: &Scheduler,
) -> Vec<JobFailure> {
    let view = versions.view.load();
    let flush = scheduler.signals.lock().flush_failure.clone();
    let flush = flush.map(|(error, times)| JobFailure {
        job: Job::Flush,
        tree: None,
        error,
        times,
        retry: if core.options.background {
            Retry::In(RETRY)
        } else {
            Retry::AfterFlushes(0)
        },
    });
    let merges = scheduler.failures.lock().list(&view.version);
    flush.into_iter().chain(merges).collect()
}

/// Records a failed flush: writers that wait for it get the error.
pub(super) fn note_flush_failure(core: &Core, scheduler: &Scheduler, error: Error) {
    if core.closing.load(Ordering::SeqCst) {
        return;
    }
    Counters::add(&core.counters.background_failures, 1);
    let mut signals = scheduler.signals.lock();
    let times = signals
        .flush_failure
        .as_ref()
        .map_or(0, |(_, times)| *times);
    signals.flush_failure = Some((error, times + 1));
    scheduler.flushed.notify_all();
}
