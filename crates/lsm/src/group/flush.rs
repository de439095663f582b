//! Flushes: write the memtables of a full generation to tables.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::install::{context, is_ingesting, shared_files, work};
use super::jobs::{JobDescription, JobKind, Why};
use super::order::{drop_segments, is_log_kept};
use super::rotate::{rotate_now, start_writing};
use super::scheduler::Scheduler;
use super::sequencer::Sequencer;
use super::version_set::VersionSet;
use crate::compaction::context::CompactionContext;
use crate::error::Result;
use crate::generation::{Generation, View};
use crate::stats::Counters;
use crate::version::Edit;

/// Writes all memtables to tables.
pub(super) fn flush_all(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
) -> Result<()> {
    let core = &*sequencer.core;
    core.check_poison()?;
    sequencer.sync_found(&mut sequencer.writer.lock())?;
    rotate_now(sequencer, versions, scheduler)?;
    flush_full(sequencer, versions, scheduler)
}

/// Flushes the full generations, oldest first.
pub(super) fn flush_full(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
) -> Result<()> {
    let core = &*sequencer.core;
    let _guard = scheduler.flushing.lock();
    loop {
        // A bulk load that ends from here on may not be in the view. One that begins from here on
        // is still running when the context is made: it waits for the lock of flushes.
        let was_ingesting = is_ingesting(scheduler);
        let view = versions.view.load_full();
        let Some(generation) = view.full.last() else {
            return Ok(());
        };
        core.check_poison()?;
        start_writing(sequencer, versions, &mut sequencer.writer.lock())?;
        let flushed = Flushed {
            view: &view,
            generation,
            was_ingesting,
        };
        flush(sequencer, versions, scheduler, &flushed)?;
    }
}

/// Makes everything durable that was written before this call: by a sync of the log, or, where that
/// is the caller's, by a flush.
pub(super) fn make_durable(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
) -> Result<()> {
    let core = &*sequencer.core;
    if core.has_external_log() {
        flush_all(sequencer, versions, scheduler)
    } else {
        sequencer.sync_all()
    }
}

/// A full generation to flush.
struct Flushed<'v> {
    view: &'v View,
    /// The oldest of the view.
    generation: &'v Arc<Generation>,
    /// Whether a bulk load was running before the view was read.
    was_ingesting: bool,
}

fn flush(
    sequencer: &Sequencer,
    versions: &VersionSet,
    scheduler: &Scheduler,
    flushed: &Flushed<'_>,
) -> Result<()> {
    let Flushed {
        view, generation, ..
    } = *flushed;
    let core = &*sequencer.core;
    if sequencer.visible() < generation.last() {
        // A writer may still be waiting for its sync. Tables contain only acknowledged writes, so
        // the sync is done first.
        sequencer.sync_all()?;
        sequencer.publish(generation.last());
    }
    if is_log_kept(sequencer, versions) {
        // The retained part of the log must survive a power cut, too.
        sequencer.sync_all()?;
    }
    let next_file = || versions.new_file();
    // Closing does not abort a flush: it is a part of closing.
    let never = AtomicBool::new(false);
    // The memtables of a dropped tree are skipped.
    let trees = &view.version.trees;
    let of_tree = |(id, memtable)| Some((trees.get(&id)?, memtable));
    let filled: Vec<_> = generation.filled().filter_map(of_tree).collect();
    let shared = shared_files(core, filled.len());
    let mut job = scheduler.jobs.begin(JobDescription {
        kind: JobKind::Flush,
        tree: filled.first().map(|(tree, _)| tree.name.clone()),
        trees: filled.len(),
        levels: None,
        why: Why::Memtables,
        bytes_in: generation.written() as u64,
    });
    let running = job.running.clone();
    let context = context(core, versions, scheduler, &next_file);
    let context = CompactionContext {
        closing: &never,
        shared: shared.as_ref(),
        written: Some(&running.written),
        is_ingesting: flushed.was_ingesting || context.is_ingesting,
        ..context
    };
    let newer = view
        .full
        .len()
        .checked_sub(2)
        .and_then(|at| view.full.get(at));
    let next = newer.unwrap_or(&view.active);
    debug_assert!(
        next.component().min > generation.last(),
        "generations overlap"
    );
    let log = next.log();
    let write = |edit: &mut Edit| {
        for (tree, memtable) in &filled {
            context.flush(tree, memtable, generation.component(), edit)?;
        }
        if let Some(shared) = &shared {
            shared.finish(edit)?;
        }
        // Includes numbers without entries: those of dropped trees.
        edit.last_seq = Some(next.component().min - 1);
        edit.log = log;
        let segments = sequencer.log.segments.lock().clone();
        match segments.iter().find(|live| Some(live.number) == log) {
            Some(segment) => sequencer.name_segment(segment),
            None => Ok(()),
        }
    };
    let done = work(sequencer, versions, scheduler, write, |view, version| {
        View {
            full: view
                .full
                .iter()
                .filter(|full| !Arc::ptr_eq(full, generation))
                .cloned()
                .collect(),
            ..view.with(version)
        }
    });
    job.note(&done);
    drop(job);
    done?;
    generation.mark_flushed();
    core.count_memory(&versions.view.load());
    Counters::add(&core.counters.flushes, 1);
    drop_segments(sequencer, versions);
    scheduler.signals.lock().flush_failure = None;
    scheduler.flushed.notify_all();
    scheduler.wake_background();
    Ok(())
}
