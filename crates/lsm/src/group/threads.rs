//! The threads of a group: one flushes, one syncs for periodic durability, and a pool compacts, each of its threads
//! one job at a time. A flush never queues behind a compaction. Without threads the calls that make work necessary do
//! it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Inner;
use super::compact::{compact_inline, compact_once};
use super::failures::RETRY;
use super::flush::flush_full;
use super::scheduler::Workers;
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
    let flush = |inner: &Inner| {
        flush_full(&inner.sequencer, &inner.versions, &inner.scheduler).map(|()| false)
    };
    inner.work_loop(flush, Inner::note_flush_failure);
}

fn compact_loop(inner: &Inner) {
    // Failures of trees are recorded with them; an error here is the store's, which writers hit as well.
    let note = |inner: &Inner, _| Counters::add(&inner.core.counters.background_failures, 1);
    let compact = |inner: &Inner| compact_once(&inner.sequencer, &inner.versions, &inner.scheduler);
    inner.work_loop(compact, note);
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

impl Inner {
    /// Runs `job` whenever there may be work, and repeats it while it reports more.
    fn work_loop(
        &self,
        job: impl Fn(&Inner) -> Result<bool>,
        note_failure: impl Fn(&Inner, Error),
    ) {
        while !self.core.closing.load(Ordering::SeqCst) {
            let looked = self.scheduler.signals.lock().work;
            let wait = match job(self) {
                Ok(true) => continue,
                Ok(false) => IDLE,
                Err(error) => {
                    note_failure(self, error);
                    RETRY
                }
            };
            let mut signals = self.scheduler.signals.lock();
            // After a failure the thread pauses, whatever else is due.
            let more = signals.work != looked && wait != RETRY;
            if !self.core.closing.load(Ordering::SeqCst) && !more {
                self.scheduler.wake.wait_for(&mut signals, wait);
            }
        }
    }

    /// Records a failed flush: writers that wait for it get the error.
    fn note_flush_failure(&self, error: Error) {
        if self.core.closing.load(Ordering::SeqCst) {
            return;
        }
        Counters::add(&self.core.counters.background_failures, 1);
        let mut signals = self.scheduler.signals.lock();
        let times = signals
            .flush_failure
            .as_ref()
            .map_or(0, |(_, times)| *times);
        signals.flush_failure = Some((error, times + 1));
        self.scheduler.flushed.notify_all();
    }

    /// Does the work of the background threads inline. A failure is kept for the writers that run into it.
    pub(super) fn work_inline(&self) {
        if self.versions.view.load().full.is_empty() {
            return;
        }
        match flush_full(&self.sequencer, &self.versions, &self.scheduler) {
            Ok(()) => compact_inline(&self.sequencer, &self.versions, &self.scheduler),
            Err(error) => self.note_flush_failure(error),
        }
    }
}

/// Counted until this is dropped.
pub(super) struct Counted<'a>(&'a AtomicUsize);

impl Counted<'_> {
    pub(super) fn new(count: &AtomicUsize) -> Counted<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
