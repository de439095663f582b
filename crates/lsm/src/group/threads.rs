//! The threads of a group: one flushes, one syncs for periodic durability, and a pool compacts,
//! each of its threads one job at a time. A flush never queues behind a compaction. Without threads
//! the calls that make work necessary do it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::compact::compact_once;
use super::core::Core;
use super::failures::RETRY;
use super::flush::flush_full;
use super::inner::Inner;
use super::report::note_flush_failure;
use super::scheduler::{Scheduler, Workers};
use crate::error::{Error, Result};
use crate::stats::Counters;

/// How long an idle thread waits before it checks for work.
const IDLE: Duration = Duration::from_secs(1);

/// Starts the threads of a group.
pub(super) fn start(inner: &Arc<Inner>, threads: &mut Vec<JoinHandle<()>>) {
    let mut start = |name: String, run: fn(&Inner), begin: fn(&Workers), end: fn(&Workers)| {
        let shared = inner.clone();
        // Counted before it runs: a caller that needs the thread then waits for it.
        begin(&inner.scheduler.workers);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let _alive = Alive(&shared.scheduler.workers, end);
            run(&shared);
        });
        match thread {
            Ok(thread) => threads.push(thread),
            Err(_) => end(&inner.scheduler.workers),
        }
    };
    start(
        "esker-flush".to_string(),
        flush_loop,
        |workers| workers.flush.store(true, Ordering::SeqCst),
        |workers| workers.flush.store(false, Ordering::SeqCst),
    );
    start(
        "esker-sync".to_string(),
        sync_loop,
        |workers| workers.sync.store(true, Ordering::SeqCst),
        |workers| workers.sync.store(false, Ordering::SeqCst),
    );
    for number in 0..inner.scheduler.slots.all() {
        start(
            format!("esker-merge-{number}"),
            compact_loop,
            |workers| {
                let _ = workers.compact.fetch_add(1, Ordering::SeqCst);
            },
            |workers| {
                let _ = workers.compact.fetch_sub(1, Ordering::SeqCst);
            },
        );
    }
}

/// Uncounts a thread that has ended, by panic too.
struct Alive<'a>(&'a Workers, fn(&Workers));

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        (self.1)(self.0);
    }
}

fn flush_loop(inner: &Inner) {
    let (sequencer, versions, scheduler) = inner.parts();
    let flush = || flush_full(sequencer, versions, scheduler).map(|()| false);
    let note = |error| note_flush_failure(&inner.core, scheduler, error);
    work_loop(&inner.core, scheduler, flush, note);
}

fn compact_loop(inner: &Inner) {
    // Failures of trees are recorded with them; an error here is the store's, which writers hit as
    // well.
    let (sequencer, versions, scheduler) = inner.parts();
    let note = |_| Counters::add(&inner.core.counters.background_failures, 1);
    let compact = || compact_once(sequencer, versions, scheduler);
    work_loop(&inner.core, scheduler, compact, note);
}

/// Syncs the log when the first unsynced periodic write is due.
fn sync_loop(inner: &Inner) {
    let mut signals = inner.scheduler.signals.lock();
    while !inner.core.closing.load(Ordering::SeqCst) {
        match signals.sync_at {
            None => inner.scheduler.wake.wait(&mut signals),
            Some(due) if due > Instant::now() => {
                inner.scheduler.wake.wait_until(&mut signals, due);
            }
            Some(_) => {
                signals.sync_at = None;
                parking_lot::MutexGuard::unlocked(&mut signals, || {
                    // A failure has poisoned the group, and the next write reports it.
                    let _ = inner.sequencer.sync_all();
                });
            }
        }
    }
}

/// Runs `job` whenever there may be work, and repeats it while it reports more.
fn work_loop(
    core: &Core,
    scheduler: &Scheduler,
    job: impl Fn() -> Result<bool>,
    note_failure: impl Fn(Error),
) {
    while !core.closing.load(Ordering::SeqCst) {
        let looked = scheduler.signals.lock().work;
        let wait = match job() {
            Ok(true) => continue,
            Ok(false) => IDLE,
            Err(error) => {
                note_failure(error);
                RETRY
            }
        };
        let mut signals = scheduler.signals.lock();
        // After a failure the thread pauses, whatever else is due.
        let more = signals.work != looked && wait != RETRY;
        if !core.closing.load(Ordering::SeqCst) && !more {
            scheduler.wake.wait_for(&mut signals, wait);
        }
    }
}
