//! Running and recent jobs, for diagnosing a busy store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// The number of ended jobs to remember.
const KEPT: usize = 64;

/// Limits of a job that is made of small ones: in bytes, and in parts.
pub(super) const TOGETHER: u64 = 8 << 20;
pub(super) const MAX_BATCH: usize = 1024;

/// The kind of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Writes memtables to tables.
    Flush,
    /// Compacts runs.
    Compaction,
    /// Copies tables out of shared files of which more than half is unused.
    Move,
    /// Looks for numbers that an obsolete set can drop.
    Sweep,
}

impl JobKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Flush => "flush",
            JobKind::Compaction => "compaction",
            JobKind::Move => "move",
            JobKind::Sweep => "sweep",
        }
    }
}

/// The reason of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// Memtables are full, or a flush was requested.
    Memtables,
    /// The tree's policy requests it, with this score: 1 is just due.
    Due(f64),
    /// Compacts the newer runs of a tree whose older ones cannot be read.
    Newer,
    /// A caller requested it.
    Asked,
    /// Space is unused.
    Space,
}

/// The description of a job.
#[derive(Debug, Clone)]
pub struct JobDescription {
    /// Its kind.
    pub kind: JobKind,
    /// The name of its tree, or of the first of several.
    pub tree: Option<String>,
    /// The number of its trees.
    pub trees: usize,
    /// The first and last level that it reads, and the level that it writes to.
    pub levels: Option<((u32, u32), u32)>,
    /// The reason.
    pub why: Why,
    /// Bytes to read.
    pub bytes_in: u64,
}

/// A running job ([`crate::Group::jobs`]).
#[derive(Debug, Clone)]
pub struct RunningJob {
    /// Its description.
    pub about: JobDescription,
    /// Bytes written so far.
    pub written: u64,
    /// Its running time.
    pub age: Duration,
}

/// An ended job ([`crate::Group::ended_jobs`]).
#[derive(Debug, Clone)]
pub struct EndedJob {
    /// Its description.
    pub about: JobDescription,
    /// Bytes written.
    pub written: u64,
    /// Its running time.
    pub took: Duration,
    /// The time since it ended.
    pub ago: Duration,
    /// The error, if it failed.
    pub error: Option<Error>,
}

#[derive(Default)]
pub(super) struct Jobs {
    running: Mutex<Vec<Arc<Running>>>,
    /// In the order of their ends, each with that time.
    ended: Mutex<VecDeque<(EndedJob, Instant)>>,
}

pub(super) struct Running {
    about: JobDescription,
    since: Instant,
    /// Bytes written so far.
    pub(super) written: AtomicU64,
}

/// A running job; its drop ends it.
pub(super) struct ActiveJob<'a> {
    jobs: &'a Jobs,
    pub(super) running: Arc<Running>,
    error: Option<Error>,
}

impl Jobs {
    pub(super) fn begin(&self, about: JobDescription) -> ActiveJob<'_> {
        let running = Arc::new(Running {
            about,
            since: Instant::now(),
            written: AtomicU64::new(0),
        });
        self.running.lock().push(running.clone());
        ActiveJob {
            jobs: self,
            running,
            error: None,
        }
    }

    pub(super) fn list(&self) -> Vec<RunningJob> {
        let running = self.running.lock();
        let jobs = running.iter().map(|job| RunningJob {
            about: job.about.clone(),
            written: job.written.load(Ordering::Relaxed),
            age: job.since.elapsed(),
        });
        jobs.collect()
    }

    pub(super) fn list_ended(&self) -> Vec<EndedJob> {
        let ended = self.ended.lock();
        let jobs = ended.iter().rev().map(|(job, at)| EndedJob {
            ago: at.elapsed(),
            ..job.clone()
        });
        jobs.collect()
    }
}

impl ActiveJob<'_> {
    /// Records the result of the job.
    pub(super) fn note<T>(&mut self, result: &Result<T>) {
        self.error = result.as_ref().err().cloned();
    }
}

impl Drop for ActiveJob<'_> {
    fn drop(&mut self) {
        let own = &self.running;
        self.jobs
            .running
            .lock()
            .retain(|job| !Arc::ptr_eq(job, own));
        let job = EndedJob {
            about: own.about.clone(),
            written: own.written.load(Ordering::Relaxed),
            took: own.since.elapsed(),
            ago: Duration::ZERO,
            error: self.error.take(),
        };
        let mut ended = self.jobs.ended.lock();
        if ended.len() >= KEPT {
            ended.pop_front();
        }
        ended.push_back((job, Instant::now()));
    }
}
