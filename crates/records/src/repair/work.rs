//! The common parts of the repair methods: threads, progress, the rate limit, and writing the
//! findings to the obsolete set.
//!
//! A method splits its work into tasks ([`RepairRun::run`]). Each task collects the obsolete writes
//! that it finds in an [`ObsoleteCollector`], which also counts entries, keeps the rate limit and
//! notices when the repair must stop.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use esker_lsm::coding::Misplaced;
use esker_lsm::{Account, Component, Cost, Group, Loan, Seq, SeqSet, Snapshot, Superseded, TreeId};
use parking_lot::Mutex;

use super::options::{OnRepair, RepairMethod, RepairOptions, RepairProgress, RepairReport};
use crate::error::{Error, Result};

/// Entries between two checks of the rate and of cancellation.
const STEP: u64 = 1024;

/// The interval of progress reports, and the longest sleep.
const TICK: Duration = Duration::from_millis(50);

/// The least memory of each thread, and of the buffer of findings.
const MIN_SHARE: usize = 16 << 10;

/// Why tasks of a repair ended early.
pub(super) enum Interrupted {
    /// The progress callback has stopped the repair, or another task has failed.
    Stopped,
    Failed(Error),
}

impl From<Error> for Interrupted {
    fn from(error: Error) -> Interrupted {
        Interrupted::Failed(error)
    }
}

impl From<esker_lsm::Error> for Interrupted {
    fn from(error: esker_lsm::Error) -> Interrupted {
        Interrupted::Failed(error.into())
    }
}

impl From<Misplaced> for Interrupted {
    fn from(error: Misplaced) -> Interrupted {
        Interrupted::Failed(error.into())
    }
}

/// The result of tasks.
pub(super) type TaskResult = std::result::Result<(), Interrupted>;

/// A repair under way.
pub(super) struct RepairRun<'a> {
    pub(super) group: &'a Group,
    pub(super) snapshot: Snapshot,
    /// The obsolete set at the beginning.
    pub(super) known: Superseded,
    pub(super) options: &'a RepairOptions,
    /// The memory of sorters and buffers.
    loan: Loan,
    threads: usize,
    /// Every write up to this number is in tables: the next watermark.
    pub(super) target: Seq,
    superseded: TreeId,
    start: Instant,
    /// Findings that are not in the tree yet.
    buffer: Mutex<SeqSet>,
    /// The tasks must stop.
    is_stopping: AtomicBool,
    /// About how many entries the tasks visit.
    total: AtomicU64,
    counts: RepairCounts,
}

/// The counts of a [`RepairReport`].
#[derive(Default)]
pub(super) struct RepairCounts {
    pub(super) entries: AtomicU64,
    pub(super) sorted: AtomicU64,
    pub(super) spilled: AtomicU64,
    pub(super) looked_up: AtomicU64,
    found: AtomicU64,
    bytes_read: AtomicU64,
}

/// The maximum number of threads, even if more are requested.
const MAX_THREADS: usize = 64;

/// The number of reading threads. A store without background threads must run deterministically, so
/// no threads are started for it unless they are requested.
fn threads(options: &RepairOptions, group: &Group) -> usize {
    match options.threads {
        0 if group.options().background => {
            std::thread::available_parallelism().map_or(1, |threads| threads.get())
        }
        threads => threads.min(MAX_THREADS),
    }
}

/// Reports the progress of a repair on the thread of its caller. The reporters of other threads do
/// nothing.
#[derive(Default)]
pub(super) struct Reporter<'p> {
    report: Option<&'p dyn Fn()>,
}

impl Reporter<'_> {
    fn report(&self) {
        if let Some(report) = self.report {
            report();
        }
    }
}

/// The keys from `from` (inclusive) to `to` (exclusive; `None` is the end).
pub(super) struct KeyPiece {
    pub(super) from: Vec<u8>,
    pub(super) to: Option<Vec<u8>>,
}

impl<'a> RepairRun<'a> {
    pub(super) fn new(
        group: &'a Group,
        superseded: TreeId,
        snapshot: Snapshot,
        known: Superseded,
        options: &'a RepairOptions,
    ) -> RepairRun<'a> {
        let threads = threads(options, group);
        let least = (MIN_SHARE * (threads + 1)).min(group.options().memory_budget / 16);
        RepairRun {
            loan: (group.budget()).borrow(Account::Repairs, least, options.memory),
            group,
            target: snapshot.flushed().min(snapshot.seq()),
            snapshot,
            known,
            threads,
            options,
            superseded,
            start: Instant::now(),
            buffer: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            total: AtomicU64::new(0),
            counts: RepairCounts::default(),
        }
    }

    /// All writes that were replaced up to this number are known to be obsolete.
    pub(super) fn watermark(&self) -> Seq {
        self.known.repair_watermark()
    }

    /// The counts so far, of all tasks.
    pub(super) fn counts(&self) -> &RepairCounts {
        &self.counts
    }

    /// The memory of each thread, in bytes.
    pub(super) fn share(&self) -> usize {
        (self.loan.bytes() / (self.threads + 1)).max(MIN_SHARE)
    }

    /// Splits the keys of some components into ranges of similar size, for the threads.
    pub(super) fn ranges(&self, components: &[Component]) -> Result<Vec<KeyPiece>> {
        let pieces = match self.threads {
            1 => 1,
            // More ranges than threads, so that a thread that finishes early can help the others.
            threads => threads * 4,
        };
        let mut ranges = Vec::new();
        let mut from = Vec::new();
        for cut in Component::cuts_of_all(components, pieces)? {
            debug_assert!(cut > from, "the cuts are sorted");
            let to = Some(cut.clone());
            ranges.push(KeyPiece { from, to });
            from = cut;
        }
        ranges.push(KeyPiece { from, to: None });
        Ok(ranges)
    }

    /// Runs `each` on the tasks, which together visit `total` entries, and reports the progress.
    /// Uses the caller's thread if one is enough, else starts as many as the options say.
    ///
    /// # Errors
    /// [`Interrupted::Failed`] with the first error of a task, [`Interrupted::Stopped`] if the
    /// progress callback has stopped the repair before.
    pub(super) fn run<T: Send>(
        &self,
        tasks: Vec<T>,
        total: u64,
        progress: &mut OnRepair<'_>,
        each: impl Fn(T, &Reporter<'_>) -> TaskResult + Sync,
    ) -> TaskResult {
        self.total.store(total, Relaxed);
        let mut notify = || {
            if self.report_progress(progress).is_break() {
                self.is_stopping.store(true, Relaxed);
            }
        };
        notify();
        let threads = self.threads.min(tasks.len());
        let result = if threads <= 1 {
            self.run_here(tasks, &mut notify, &each)
        } else {
            self.run_on(threads, tasks, &mut notify, &each)
        };
        // Too late to cancel.
        let _ = self.report_progress(progress);
        result
    }

    /// Stops the other tasks because one was interrupted. Returns the reason for the end of the
    /// repair: an error after the repair was stopped does not count.
    fn interrupt(&self, reason: Interrupted) -> Interrupted {
        if self.is_stopping.swap(true, Relaxed) {
            Interrupted::Stopped
        } else {
            reason
        }
    }

    /// Runs the tasks on the caller's thread.
    fn run_here<T>(
        &self,
        tasks: Vec<T>,
        notify: &mut dyn FnMut(),
        each: &impl Fn(T, &Reporter<'_>) -> TaskResult,
    ) -> TaskResult {
        let notify = RefCell::new(notify);
        let report = || {
            // The callback is not called from within itself.
            if let Ok(mut notify) = notify.try_borrow_mut() {
                notify();
            }
        };
        let reporter = Reporter {
            report: Some(&report),
        };
        let mut tasks = tasks.into_iter();
        let result = tasks.try_for_each(|task| {
            self.check_stop()?;
            each(task, &reporter)
        });
        result.map_err(|reason| self.interrupt(reason))
    }

    /// Runs the tasks on new threads, and reports the progress on the caller's, which runs them if
    /// no thread can be started.
    fn run_on<T: Send>(
        &self,
        threads: usize,
        tasks: Vec<T>,
        notify: &mut dyn FnMut(),
        each: &(impl Fn(T, &Reporter<'_>) -> TaskResult + Sync),
    ) -> TaskResult {
        let tasks = Mutex::new(tasks.into_iter());
        let next = || tasks.lock().next();
        let mut result = Ok(());
        let mut started = 0;
        std::thread::scope(|scope| {
            let (done, ended) = channel();
            for _ in 0..threads {
                let (done, next) = (done.clone(), &next);
                let work = move || {
                    let mut result = Ok(());
                    while result.is_ok()
                        && let Some(task) = next()
                    {
                        let may_run = self.check_stop();
                        result = may_run.and_then(|()| each(task, &Reporter::default()));
                    }
                    // The receiver is dropped when the caller has returned.
                    let _ = done.send(result);
                };
                // Those that were started do the work of the others.
                if Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
                started += 1;
            }
            drop(done);
            loop {
                match ended.recv_timeout(TICK) {
                    Ok(Err(reason)) if result.is_ok() => result = Err(self.interrupt(reason)),
                    Ok(_) => {}
                    Err(RecvTimeoutError::Timeout) => notify(),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        });
        if started == 0 {
            return self.run_here(tasks.into_inner().collect(), notify, each);
        }
        result
    }

    /// Calls the progress callback with the entries so far.
    fn report_progress(&self, progress: &mut OnRepair<'_>) -> ControlFlow<()> {
        let done = self.counts.entries.load(Relaxed);
        let total = self.total.load(Relaxed).max(done);
        progress(RepairProgress { done, total })
    }

    /// [`Interrupted::Stopped`] if the tasks must stop.
    fn check_stop(&self) -> TaskResult {
        if self.is_stopping.load(Relaxed) {
            Err(Interrupted::Stopped)
        } else {
            Ok(())
        }
    }

    /// Counts entries and bytes read, and sleeps to keep the rate limit.
    fn step(&self, entries: u64, bytes: u64, reporter: &Reporter<'_>) -> TaskResult {
        self.counts.entries.fetch_add(entries, Relaxed);
        let bytes = self.counts.bytes_read.fetch_add(bytes, Relaxed) + bytes;
        reporter.report();
        // A rate of 0 was refused.
        if let Some(rate) = self.options.bytes_per_second {
            let due = Duration::from_secs_f64(bytes as f64 / rate as f64);
            while let Some(rest) = due.checked_sub(self.start.elapsed())
                && !rest.is_zero()
            {
                self.check_stop()?;
                std::thread::sleep(rest.min(TICK));
                reporter.report();
            }
        }
        self.check_stop()
    }

    /// Takes numbers of obsolete writes. A full buffer is written to the tree, for all indexes
    /// together (DELI section V-B's combined deletes).
    fn take(&self, numbers: &mut Vec<Seq>) -> Result<()> {
        let mut buffer = self.buffer.lock();
        let before = buffer.len();
        buffer.extend(numbers.drain(..));
        self.counts.found.fetch_add(buffer.len() - before, Relaxed);
        if buffer.memory() < self.share() {
            return Ok(());
        }
        let full = std::mem::take(&mut *buffer);
        // The lock is kept: other threads wait until the buffer has room.
        self.write(&full, None)
    }

    /// Adds numbers to the obsolete set, and moves the watermark to `watermark` if that is given.
    fn write(&self, numbers: &SeqSet, watermark: Option<Seq>) -> Result<()> {
        let mut numbers = numbers.iter().map(Ok);
        Ok(self
            .group
            .supersede(self.superseded, &mut numbers, watermark)?)
    }

    /// Writes the remaining findings, and moves the watermark if the repair, by `method`, is
    /// complete.
    ///
    /// # Errors
    /// The error of the tasks; also any write error.
    pub(super) fn finish(&self, method: RepairMethod, result: TaskResult) -> Result<RepairReport> {
        let complete = match result {
            Ok(()) => true,
            Err(Interrupted::Stopped) => false,
            Err(Interrupted::Failed(error)) => return Err(error),
        };
        let found = std::mem::take(&mut *self.buffer.lock());
        let before = self.watermark();
        let moved = Some(self.target).filter(|target| complete && *target > before);
        if !found.is_empty() || moved.is_some() {
            self.write(&found, moved)?;
        }
        let counts = &self.counts;
        Ok(RepairReport {
            method,
            entries: counts.entries.load(Relaxed),
            sorted: counts.sorted.load(Relaxed),
            spilled: counts.spilled.load(Relaxed),
            looked_up: counts.looked_up.load(Relaxed),
            found: counts.found.load(Relaxed),
            watermark_before: before,
            watermark: moved.unwrap_or(before),
            bytes_read: counts.bytes_read.load(Relaxed),
            elapsed: self.start.elapsed(),
            complete,
        })
    }
}

/// The counts and findings of one thread.
pub(super) struct ObsoleteCollector<'w> {
    run: &'w RepairRun<'w>,
    reporter: &'w Reporter<'w>,
    /// The cost of lookups.
    pub(super) cost: Cost,
    /// Entries visited.
    entries: u64,
    /// Steps of a validation since its last pause.
    validated: u64,
    /// Bytes reported so far.
    reported_bytes: u64,
    /// Findings that are not in the buffer of the repair yet.
    found: Vec<Seq>,
}

impl<'w> ObsoleteCollector<'w> {
    pub(super) fn new(run: &'w RepairRun<'w>, reporter: &'w Reporter<'w>) -> ObsoleteCollector<'w> {
        ObsoleteCollector {
            run,
            reporter,
            cost: Cost::default(),
            entries: 0,
            validated: 0,
            reported_bytes: 0,
            found: Vec::new(),
        }
    }

    /// Counts an entry of a scan whose cursors have cost `scanned` so far.
    #[inline]
    pub(super) fn entry(&mut self, scanned: impl FnOnce() -> Cost) -> TaskResult {
        self.entries += 1;
        if self.entries.is_multiple_of(STEP) {
            self.step(STEP, &scanned())
        } else {
            Ok(())
        }
    }

    /// Reports entries and the bytes read since the last report.
    fn step(&mut self, entries: u64, scanned: &Cost) -> TaskResult {
        let bytes = scanned.bytes_read.get() + self.cost.bytes_read.get();
        // Costs only grow.
        let new = bytes.checked_sub(self.reported_bytes);
        let new = new.ok_or_else(|| Misplaced::here())?;
        self.reported_bytes = bytes;
        self.run.step(entries, new, self.reporter)
    }

    /// Counts a step of the validation of visited entries, whose reads have cost `scanned` so far.
    #[inline]
    pub(super) fn validation(&mut self, scanned: impl FnOnce() -> Cost) -> TaskResult {
        self.validated += 1;
        if self.validated.is_multiple_of(STEP) {
            self.pause(&scanned())
        } else {
            Ok(())
        }
    }

    /// Reports the bytes read since the last report.
    pub(super) fn pause(&mut self, scanned: &Cost) -> TaskResult {
        self.step(0, scanned)
    }

    /// Adds an obsolete write.
    #[inline]
    pub(super) fn add(&mut self, seq: Seq) -> Result<()> {
        if self.run.known.contains(seq) {
            return Ok(());
        }
        self.found.push(seq);
        if self.found.len() < STEP as usize {
            Ok(())
        } else {
            self.run.take(&mut self.found)
        }
    }

    /// Ends a scan: passes on the findings, and reports the rest of the entries.
    pub(super) fn finish(mut self, scanned: &Cost) -> TaskResult {
        self.run.take(&mut self.found)?;
        let rest = self.entries % STEP;
        let result = self.step(rest, scanned);
        let total = Cost::default();
        total.absorb(scanned);
        total.absorb(&self.cost);
        self.run.group.count(&total);
        result
    }
}
