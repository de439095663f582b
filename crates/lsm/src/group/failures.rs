//! Failures of flushes and compactions, tracked separately. A flush concerns every tree, so its
//! failure is reported to writers that wait for room. A compaction concerns one tree: that tree is
//! paused for growing intervals, and all others continue.
//!
//! With background threads a pause is a time; without, a number of compaction rounds that skip the
//! tree, so that a run is deterministic. While the tree is paused, its runs that are newer than the
//! unreadable component are compacted among themselves, so that they do not pile up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::TreeId;
use crate::entry::Seq;
use crate::error::Error;
use crate::version::{TreeVersion, Version, table_number};

/// The pause after a failed flush.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// The pause after the first failure of a compaction; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause, and the longest after a full disk: space may be freed at any time.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
const FULL_DISK_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause in compaction rounds.
const MOST_ROUNDS: u64 = 256;

/// The kind of a failed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// A flush of memtables to tables. Concerns all trees.
    Flush,
    /// A compaction of one tree.
    Merge,
}

/// When a failed job is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// After this time at the latest.
    In(Duration),
    /// After this many flushes: without background threads.
    AfterFlushes(u64),
}

/// A background job that failed and has not succeeded since ([`crate::Group::failures`]).
#[derive(Debug, Clone)]
pub struct JobFailure {
    /// The kind of job.
    pub job: Job,
    /// The number and name of the tree, for a compaction.
    pub tree: Option<(TreeId, String)>,
    /// The last error.
    pub error: Error,
    /// The number of consecutive failures.
    pub times: u64,
    /// When it is retried.
    pub retry: Retry,
}

/// A tree whose compactions fail.
struct Failing {
    error: Error,
    times: u64,
    /// The earliest time, and the earliest round, of the next attempt.
    due: Option<Instant>,
    due_round: u64,
    /// The last sequence number of the newest unreadable component.
    above: Option<Seq>,
}

/// All failing trees.
#[derive(Default)]
pub(super) struct Failures {
    merges: BTreeMap<TreeId, Failing>,
    /// Compaction rounds so far, without background threads.
    round: u64,
}

impl Failures {
    /// True when the last compaction of the tree failed.
    pub(super) fn has(&self, tree: TreeId) -> bool {
        self.merges.contains_key(&tree)
    }
}

/// The compactions allowed for a tree.
pub(super) enum Attempt {
    /// Any choice of the policy.
    Any,
    /// Only runs newer than this number, among themselves.
    Newer(Seq),
    /// None.
    None,
}

impl Failures {
    /// Starts a compaction round.
    pub(super) fn begin_round(&mut self) {
        self.round += 1;
    }

    /// The compactions allowed for a tree now.
    pub(super) fn attempt(&self, tree: TreeId) -> Attempt {
        let Some(failing) = self.merges.get(&tree) else {
            return Attempt::Any;
        };
        let due =
            self.round >= failing.due_round && failing.due.is_none_or(|due| due <= Instant::now());
        match (due, failing.above) {
            (true, _) => Attempt::Any,
            (false, Some(above)) => Attempt::Newer(above),
            (false, None) => Attempt::None,
        }
    }

    /// Records a failed compaction of `tree`: one of its policy (`whole`), or of its newer runs.
    /// With `background` threads the pause is a time.
    pub(super) fn note(
        &mut self,
        version: &Version,
        tree: &Arc<TreeVersion>,
        error: &Error,
        whole: bool,
        background: bool,
    ) {
        let damaged = damaged_component(version, tree, error);
        self.merges.retain(|id, _| version.trees.contains_key(id));
        let before = self.merges.get(&tree.id);
        let times = before.map_or(0, |failing| failing.times) + 1;
        let known = before.and_then(|failing| failing.above);
        // Each failed compaction of newer runs leaves fewer to try, or none.
        let above = if whole || damaged > known {
            known.max(damaged)
        } else {
            None
        };
        let doubled = 1 << (times - 1).min(30);
        let longest = if error.is_disk_full() {
            FULL_DISK_PAUSE
        } else {
            LONGEST_PAUSE
        };
        let pause = FIRST_PAUSE.saturating_mul(doubled).min(longest);
        let due_round = self.round + u64::from(doubled).min(MOST_ROUNDS);
        let failing = Failing {
            error: error.clone(),
            times,
            due: background.then(|| Instant::now() + pause),
            due_round: if background { 0 } else { due_round },
            above,
        };
        self.merges.insert(tree.id, failing);
    }

    /// Records that a compaction chosen by the policy of `tree` succeeded: true if it had failed.
    pub(super) fn clear(&mut self, tree: TreeId) -> bool {
        self.merges.remove(&tree).is_some()
    }

    /// The trees of a version whose compactions fail.
    pub(super) fn list(&self, version: &Version) -> Vec<JobFailure> {
        let failures = self.merges.iter().filter_map(|(id, failing)| {
            let tree = version.trees.get(id)?;
            Some(JobFailure {
                job: Job::Merge,
                tree: Some((*id, tree.name.clone())),
                error: failing.error.clone(),
                times: failing.times,
                retry: match failing.due {
                    Some(due) => Retry::In(due.saturating_duration_since(Instant::now())),
                    None => Retry::AfterFlushes(failing.due_round.saturating_sub(self.round)),
                },
            })
        });
        failures.collect()
    }
}

/// The last sequence number of the component with the file named by an error, in a tree or those
/// that follow it.
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
