//! What runs now, and what ran lately: for people who ask why a store is busy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// So many ended jobs are remembered.
const KEPT: usize = 64;

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Writes memtables to tables.
    Flush,
    /// Merges runs.
    Compaction,
    /// Copies tables out of shared files of which more than half is unused.
    Move,
    /// Looks for numbers that a obsolete set need not keep.
    Sweep,
}

impl JobKind {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Flush => "flush",
            JobKind::Compaction => "compaction",
            JobKind::Move => "move",
            JobKind::Sweep => "sweep",
        }
    }
}

/// Why a job is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// Memtables are full, or are to be written.
    Memtables,
    /// The tree's policy asks for it, this urgently: 1 is just due.
    Due(f64),
    /// The newer runs of a tree whose older ones cannot be read.
    Newer,
    /// Somebody asked for it.
    Asked,
    /// Space is unused.
    Space,
}

/// What a job is about.
#[derive(Debug, Clone)]
pub struct JobAbout {
    /// What it does.
    pub kind: JobKind,
    /// The name of its tree, of its first where it has several.
    pub tree: Option<String>,
    /// How many trees it works on.
    pub trees: usize,
    /// The levels of what it reads, from the first to the last, and the level that it writes to.
    pub levels: Option<((u32, u32), u32)>,
    /// Why it is done.
    pub why: Why,
    /// Bytes that it reads.
    pub bytes_in: u64,
}

/// A job that runs ([`crate::Group::jobs`]).
#[derive(Debug, Clone)]
pub struct RunningJob {
    /// What it is about.
    pub about: JobAbout,
    /// Bytes that it has written.
    pub written: u64,
    /// How long it has been running.
    pub age: Duration,
}

/// A job that has ended ([`crate::Group::ended_jobs`]).
#[derive(Debug, Clone)]
pub struct EndedJob {
    /// What it was about.
    pub about: JobAbout,
    /// Bytes that it wrote.
    pub written: u64,
    /// How long it took.
    pub took: Duration,
    /// How long ago it ended.
    pub ago: Duration,
    /// Why it failed, if it did.
    pub error: Option<Error>,
}

#[derive(Default)]
pub(super) struct Jobs {
    running: Mutex<Vec<Arc<Running>>>,
    /// The newest last, each with when it ended.
    ended: Mutex<VecDeque<(EndedJob, Instant)>>,
}

pub(super) struct Running {
    about: JobAbout,
    since: Instant,
    /// Bytes written so far.
    pub(super) written: AtomicU64,
}

/// A job at work. Dropped, it has ended.
pub(super) struct AtWork<'a> {
    jobs: &'a Jobs,
    pub(super) running: Arc<Running>,
    error: Option<Error>,
}

impl Jobs {
    pub(super) fn begin(&self, about: JobAbout) -> AtWork<'_> {
        let running = Arc::new(Running {
            about,
            since: Instant::now(),
            written: AtomicU64::new(0),
        });
        self.running.lock().push(running.clone());
        AtWork {
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

impl AtWork<'_> {
    /// Notes how it ended.
    pub(super) fn note<T>(&mut self, result: &Result<T>) {
        self.error = result.as_ref().err().cloned();
    }
}

impl Drop for AtWork<'_> {
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
