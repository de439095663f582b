//! The common parts of the repair methods: threads, progress, the rate limit, and writing the
//! findings to the set.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use esker_lsm::{Account, Component, Cost, Group, Loan, Seq, SeqSet, Snapshot, Superseded, TreeId};
use parking_lot::Mutex;

use super::options::{OnRepair, RepairMethod, RepairOptions, RepairProgress, RepairReport};
use crate::error::{Error, Result};

/// Entries between two checks of the rate and of cancellation.
const STEP: u64 = 1024;

/// The interval of progress reports, and the longest sleep.
const TICK: Duration = Duration::from_millis(50);

/// The least memory of each thread, and of the buffer of findings.
const LEAST_SHARE: usize = 16 << 10;

/// A repair under way.
pub(super) struct Work<'a> {
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
    /// The threads must stop.
    broken: AtomicBool,
    /// They stop because of an error, not because the progress callback stopped the repair.
    failed: AtomicBool,
    total: AtomicU64,
    counts: Counts,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) entries: AtomicU64,
    pub(super) sorted: AtomicU64,
    pub(super) spilled: AtomicU64,
    pub(super) looked_up: AtomicU64,
    found: AtomicU64,
    bytes: AtomicU64,
}

/// The most threads, even if more are requested.
const MOST_THREADS: usize = 64;

/// The number of reading threads. A store without background threads must run deterministically, so
/// no threads are started for it unless they are requested.
fn threads(options: &RepairOptions, group: &Group) -> usize {
    match options.threads {
        0 if group.options().background => {
            std::thread::available_parallelism().map_or(1, |threads| threads.get())
        }
        threads => threads.min(MOST_THREADS),
    }
}

/// Reports the progress of a repair on the thread of its caller. Other threads have a reporter that
/// does nothing.
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

impl<'a> Work<'a> {
    pub(super) fn new(
        group: &'a Group,
        superseded: TreeId,
        snapshot: Snapshot,
        known: Superseded,
        options: &'a RepairOptions,
    ) -> Work<'a> {
        let threads = threads(options, group);
        let least = (LEAST_SHARE * (threads + 1)).min(group.options().memory_budget / 16);
        Work {
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
            broken: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            total: AtomicU64::new(0),
            counts: Counts::default(),
        }
    }

    /// Everything that was superseded up to this number is known.
    pub(super) fn watermark(&self) -> Seq {
        self.known.repair_watermark()
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The memory of each thread, in bytes.
    pub(super) fn share(&self) -> usize {
        (self.loan.bytes() / (self.threads + 1)).max(LEAST_SHARE)
    }

    /// Splits the keys of some components into ranges of similar size, for the threads.
    pub(super) fn ranges(&self, components: &[Component]) -> Result<Vec<KeyPiece>> {
        let pieces = match self.threads {
            1 => 1,
            // More ranges than threads, so that a thread that finishes early can help the others.
            threads => threads * 4,
        };
        let mut ranges = vec![KeyPiece {
            from: Vec::new(),
            to: None,
        }];
        for cut in Component::cuts_of_all(components, pieces)? {
            if let Some(last) = ranges.last_mut() {
                last.to = Some(cut.clone());
            }
            ranges.push(KeyPiece {
                from: cut,
                to: None,
            });
        }
        Ok(ranges)
    }

    /// Runs `each` on the tasks, which together visit `total` entries, and reports the progress.
    /// Uses the caller's thread if one is enough, else starts as many as the options say.
    pub(super) fn run<T: Send>(
        &self,
        tasks: Vec<T>,
        total: u64,
        progress: &mut OnRepair<'_>,
        each: impl Fn(T, &Reporter<'_>) -> Result<()> + Sync,
    ) -> Result<()> {
        self.total.store(total, Relaxed);
        let mut notify = || {
            if self.report_progress(progress).is_break() {
                self.broken.store(true, Relaxed);
            }
        };
        notify();
        let threads = self.threads.min(tasks.len());
        let result = match threads {
            0 | 1 => {
                let notify = RefCell::new(&mut notify);
                let report = || {
                    if let Ok(mut notify) = notify.try_borrow_mut() {
                        notify();
                    }
                };
                let reporter = Reporter {
                    report: Some(&report),
                };
                let mut tasks = tasks.into_iter();
                let result = tasks.try_for_each(|task| {
                    self.go_on()?;
                    each(task, &reporter)
                });
                self.fail(result)
            }
            threads => self.run_on(threads, tasks, &mut notify, &each),
        };
        // Too late to cancel.
        let _ = self.report_progress(progress);
        result
    }

    /// Records that an error ended a task, unless the repair was cancelled before.
    fn fail(&self, result: Result<()>) -> Result<()> {
        if result.is_err() && !self.broken.swap(true, Relaxed) {
            self.failed.store(true, Relaxed);
        }
        result
    }

    fn run_on<T: Send>(
        &self,
        threads: usize,
        tasks: Vec<T>,
        notify: &mut dyn FnMut(),
        each: &(impl Fn(T, &Reporter<'_>) -> Result<()> + Sync),
    ) -> Result<()> {
        let tasks = Mutex::new(tasks.into_iter());
        let next = || tasks.lock().next();
        let mut result = Ok(());
        std::thread::scope(|scope| {
            let (done, ended) = channel();
            for _ in 0..threads {
                let (done, next) = (done.clone(), &next);
                scope.spawn(move || {
                    let mut result = Ok(());
                    while result.is_ok()
                        && let Some(task) = next()
                    {
                        result = self.go_on().and_then(|()| each(task, &Reporter::default()));
                    }
                    // The receiver is dropped when the caller has returned.
                    let _ = done.send(result);
                });
            }
            drop(done);
            loop {
                match ended.recv_timeout(TICK) {
                    // The other tasks can stop.
                    Ok(Err(error)) if result.is_ok() => result = self.fail(Err(error)),
                    Ok(_) => {}
                    Err(RecvTimeoutError::Timeout) => notify(),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        });
        result
    }

    fn report_progress(&self, progress: &mut OnRepair<'_>) -> ControlFlow<()> {
        let done = self.counts.entries.load(Relaxed);
        let total = self.total.load(Relaxed).max(done);
        progress(RepairProgress { done, total })
    }

    fn go_on(&self) -> Result<()> {
        if self.broken.load(Relaxed) {
            Err(Error::Cancelled { deadline: false })
        } else {
            Ok(())
        }
    }

    /// Counts entries and bytes read, and sleeps to keep the rate limit.
    fn step(&self, entries: u64, bytes: u64, reporter: &Reporter<'_>) -> Result<()> {
        self.counts.entries.fetch_add(entries, Relaxed);
        let bytes = self.counts.bytes.fetch_add(bytes, Relaxed) + bytes;
        reporter.report();
        let rate = self.options.bytes_per_second.unwrap_or(0);
        if rate > 0 {
            let due = Duration::from_secs_f64(bytes as f64 / rate as f64);
            while let Some(rest) = due.checked_sub(self.start.elapsed())
                && !rest.is_zero()
            {
                self.go_on()?;
                std::thread::sleep(rest.min(TICK));
                reporter.report();
            }
        }
        self.go_on()
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

    fn write(&self, numbers: &SeqSet, watermark: Option<Seq>) -> Result<()> {
        let mut numbers = numbers.iter().map(Ok);
        Ok(self
            .group
            .supersede(self.superseded, &mut numbers, watermark)?)
    }

    /// Writes the remaining findings, and moves the watermark if the repair is complete.
    pub(super) fn finish(&self, result: Result<()>) -> Result<RepairReport> {
        let broke = result.is_err() && !self.failed.load(Relaxed);
        if !broke {
            result?;
        }
        let found = std::mem::take(&mut *self.buffer.lock());
        let watermark = Some(self.target).filter(|target| !broke && *target > self.watermark());
        if !found.is_empty() || watermark.is_some() {
            self.write(&found, watermark)?;
        }
        let counts = &self.counts;
        Ok(RepairReport {
            method: RepairMethod::Auto,
            entries: counts.entries.load(Relaxed),
            sorted: counts.sorted.load(Relaxed),
            spilled: counts.spilled.load(Relaxed),
            looked_up: counts.looked_up.load(Relaxed),
            found: counts.found.load(Relaxed),
            watermark_before: self.watermark(),
            watermark: self.watermark(),
            bytes_read: counts.bytes.load(Relaxed),
            elapsed: self.start.elapsed(),
            complete: !broke,
        })
    }
}

/// The counts and findings of one thread.
pub(super) struct ObsoleteCollector<'w> {
    work: &'w Work<'w>,
    reporter: &'w Reporter<'w>,
    /// The cost of lookups.
    pub(super) cost: Cost,
    entries: u64,
    /// Bytes reported so far.
    reported: u64,
    found: Vec<Seq>,
}

impl<'w> ObsoleteCollector<'w> {
    pub(super) fn new(work: &'w Work<'w>, reporter: &'w Reporter<'w>) -> ObsoleteCollector<'w> {
        ObsoleteCollector {
            work,
            reporter,
            cost: Cost::default(),
            entries: 0,
            reported: 0,
            found: Vec::new(),
        }
    }

    /// Counts an entry of a scan whose cursors have cost `scanned` so far.
    #[inline]
    pub(super) fn entry(&mut self, scanned: impl FnOnce() -> Cost) -> Result<()> {
        self.entries += 1;
        if self.entries.is_multiple_of(STEP) {
            self.step(STEP, &scanned())
        } else {
            Ok(())
        }
    }

    fn step(&mut self, entries: u64, scanned: &Cost) -> Result<()> {
        let bytes = scanned.bytes_read.get() + self.cost.bytes_read.get();
        let new = bytes.saturating_sub(self.reported);
        self.reported = bytes;
        self.work.step(entries, new, self.reporter)
    }

    /// Reports the bytes read since the last report.
    pub(super) fn pause(&mut self, scanned: &Cost) -> Result<()> {
        self.step(0, scanned)
    }

    /// Adds an obsolete write.
    #[inline]
    pub(super) fn add(&mut self, seq: Seq) -> Result<()> {
        if self.work.known.contains(seq) {
            return Ok(());
        }
        self.found.push(seq);
        if self.found.len() < STEP as usize {
            Ok(())
        } else {
            self.work.take(&mut self.found)
        }
    }

    /// Ends a scan.
    pub(super) fn finish(mut self, scanned: &Cost) -> Result<()> {
        self.work.take(&mut self.found)?;
        let rest = self.entries % STEP;
        let result = self.step(rest, scanned);
        let total = Cost::default();
        total.absorb(scanned);
        total.absorb(&self.cost);
        self.work.group.count(&total);
        result
    }
}
