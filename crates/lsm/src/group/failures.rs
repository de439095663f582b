//! Failures of flushes and merges, kept apart. A flush concerns every tree, so its failure is reported to writers that
//! wait for room. A merge concerns one tree: the tree is left alone for growing pauses, and everybody else goes on.
//!
//! With background threads a pause is a time; without, a number of rounds of merges that pass the tree over, so that
//! a run is deterministic. While the tree waits, its runs that are newer than the component that could not be read are
//! merged among themselves, so that they do not pile up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Inner;
use crate::batch::TreeId;
use crate::entry::Seq;
use crate::error::Error;
use crate::stats::Counters;
use crate::version::{TreeVersion, Version, table_number};

/// The pause after the first failure of a merge; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause, and the longest when the disk was full: room may come back at any time.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
const FULL_DISK_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause in rounds of merges.
const MOST_ROUNDS: u64 = 256;

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// Writing memtables to tables. Concerns all trees.
    Flush,
    /// Merging the components of one tree.
    Merge,
}

/// When a failed job is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// After this time at the latest.
    In(Duration),
    /// After so many flushes: without background threads.
    AfterFlushes(u64),
}

/// A background job that failed and has not succeeded since ([`crate::Group::failures`]).
#[derive(Debug, Clone)]
pub struct JobFailure {
    /// What failed.
    pub job: Job,
    /// The tree, where it concerns one: its number and its name.
    pub tree: Option<(TreeId, String)>,
    /// The last error.
    pub error: Error,
    /// How often it failed in a row.
    pub times: u64,
    /// When it is tried again.
    pub retry: Retry,
}

/// A tree whose merges fail.
struct Failing {
    error: Error,
    times: u64,
    /// Not before this moment, and this round.
    due: Option<Instant>,
    due_round: u64,
    /// The last sequence number of the newest component that could not be read.
    above: Option<Seq>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Failures {
    merges: BTreeMap<TreeId, Failing>,
    /// Rounds of merges so far, without background threads.
    round: u64,
}

impl Failures {
    /// True when the last merge of the tree failed.
    pub(super) fn has(&self, tree: TreeId) -> bool {
        self.merges.contains_key(&tree)
    }
}

/// What a merge loop may do with a tree.
pub(super) enum Attempt {
    /// Whatever the policy picks.
    Any,
    /// Merge what is newer than this number among itself.
    Newer(Seq),
    /// Nothing.
    None,
}

impl Inner {
    /// A round of merges begins.
    pub(super) fn begin_round(&self) {
        self.scheduler.failures.lock().round += 1;
    }

    /// What may be done with a tree now.
    pub(super) fn attempt(&self, tree: TreeId) -> Attempt {
        let failures = self.scheduler.failures.lock();
        let Some(failing) = failures.merges.get(&tree) else {
            return Attempt::Any;
        };
        let due = failures.round >= failing.due_round
            && failing.due.is_none_or(|due| due <= Instant::now());
        match (due, failing.above) {
            (true, _) => Attempt::Any,
            (false, Some(above)) => Attempt::Newer(above),
            (false, None) => Attempt::None,
        }
    }

    /// True for an error of one tree's merge, which is no reason not to merge others.
    pub(super) fn is_contained(&self, error: &Error) -> bool {
        !matches!(error, Error::Closed | Error::Poisoned { .. }) && self.core.check_poison().is_ok()
    }

    /// Notes that a merge of `tree` failed: one that its policy asked for (`whole`), or of its newer runs.
    pub(super) fn note_merge_failure(
        &self,
        version: &Version,
        tree: &Arc<TreeVersion>,
        error: &Error,
        whole: bool,
    ) {
        if !self.is_contained(error) {
            return;
        }
        Counters::add(&self.core.counters.background_failures, 1);
        let damaged = damaged_component(version, tree, error);
        let mut failures = self.scheduler.failures.lock();
        failures
            .merges
            .retain(|id, _| version.trees.contains_key(id));
        let before = failures.merges.get(&tree.id);
        let times = before.map_or(0, |failing| failing.times) + 1;
        let known = before.and_then(|failing| failing.above);
        // Each merge of newer runs that fails leaves fewer to try, or ends it.
        let above = match whole || damaged > known {
            true => known.max(damaged),
            false => None,
        };
        let doubled = 1 << (times - 1).min(30);
        let longest = match error.is_disk_full() {
            true => FULL_DISK_PAUSE,
            false => LONGEST_PAUSE,
        };
        let pause = FIRST_PAUSE.saturating_mul(doubled).min(longest);
        let due_round = failures.round + u64::from(doubled).min(MOST_ROUNDS);
        let background = self.core.options.background;
        let failing = Failing {
            error: error.clone(),
            times,
            due: background.then(|| Instant::now() + pause),
            due_round: if background { 0 } else { due_round },
            above,
        };
        failures.merges.insert(tree.id, failing);
        drop(failures);
        self.change_pressure();
    }

    /// Notes that a merge of `tree` succeeded which the tree's policy asked for.
    pub(super) fn clear_merge_failure(&self, tree: TreeId) {
        if self
            .scheduler
            .failures
            .lock()
            .merges
            .remove(&tree)
            .is_some()
        {
            self.change_pressure();
        }
    }

    /// What fails now.
    pub(super) fn list_failures(&self) -> Vec<JobFailure> {
        let view = self.versions.view.load();
        let flush = self.scheduler.signals.lock().flush_failure.clone();
        let flush = flush.map(|(error, times)| JobFailure {
            job: Job::Flush,
            tree: None,
            error,
            times,
            retry: match self.core.options.background {
                true => Retry::In(super::threads::RETRY),
                false => Retry::AfterFlushes(0),
            },
        });
        let failures = self.scheduler.failures.lock();
        let merges = failures.merges.iter().filter_map(|(id, failing)| {
            let tree = view.version.trees.get(id)?;
            Some(JobFailure {
                job: Job::Merge,
                tree: Some((*id, tree.name.clone())),
                error: failing.error.clone(),
                times: failing.times,
                retry: match failing.due {
                    Some(due) => Retry::In(due.saturating_duration_since(Instant::now())),
                    None => Retry::AfterFlushes(failing.due_round.saturating_sub(failures.round)),
                },
            })
        });
        flush.into_iter().chain(merges).collect()
    }
}

/// The last sequence number of the component of a tree, or of those that follow it, that an error names a file of.
fn damaged_component(version: &Version, tree: &Arc<TreeVersion>, error: &Error) -> Option<Seq> {
    let (path, at) = match error {
        Error::Corruption { path, offset, .. } => (path, Some(*offset)),
        Error::NewerFormat { path, .. } | Error::DiskFull { path } | Error::Io { path, .. } => {
            (path, None)
        }
        _ => return None,
    };
    let number = table_number(path)?;
    let trees = version.followers(&tree.name).chain([tree]);
    let tables = trees.flat_map(|tree| tree.tables());
    let tables = tables.filter(|table| {
        let here = table.offset()..table.offset().saturating_add(table.meta().size);
        table.file().number() == number && at.is_none_or(|at| here.contains(&at))
    });
    tables.map(|table| table.component().max).max()
}
