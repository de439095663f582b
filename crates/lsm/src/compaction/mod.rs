//! Merging components: policies decide (a pure function from a tree's version to a choice), the job
//! carries the choice out.

pub(crate) mod job;
mod leveled;
pub(crate) mod shared;
pub(crate) mod sweep;
mod tiered;

use std::sync::Arc;

use crate::entry::Seq;
use crate::options::{Policy, Tiered};
use crate::version::{Run, TableFile, TreeVersion};

pub use job::{RunSink, WriteRun};
pub use sweep::held;

/// What a policy chose.
#[derive(Clone)]
pub(crate) struct Choice {
    /// The tables to merge.
    pub(crate) inputs: Vec<Arc<TableFile>>,
    /// The inputs by the run they are in, newest run first.
    pub(crate) runs: Vec<Vec<Arc<TableFile>>>,
    /// The level of the result; at level 0 it becomes a run of its own.
    pub(crate) level: u32,
    /// Where the next merge of a level starts: (level, key).
    pub(crate) cursor: Option<(u32, Vec<u8>)>,
}

impl Choice {
    pub(crate) fn new(runs: Vec<Vec<Arc<TableFile>>>, level: u32) -> Choice {
        let inputs = runs.iter().flatten().cloned().collect();
        Choice {
            inputs,
            runs,
            level,
            cursor: None,
        }
    }

    /// The same components of a tree that follows this choice's.
    pub(crate) fn followed_by(&self, follower: &TreeVersion) -> Choice {
        let spans = self.inputs.iter().map(|table| table.component());
        let Some(span) = spans.reduce(|a, b| a.hull(b)) else {
            return Choice::new(Vec::new(), 0);
        };
        let runs = follower
            .runs
            .iter()
            .filter(|run| span.includes(run.component()));
        Choice::new(runs.map(|run| run.tables.to_vec()).collect(), self.level)
    }

    /// Bytes to be read.
    pub(crate) fn size(&self) -> u64 {
        self.inputs.iter().map(|table| table.meta().size).sum()
    }
}

impl Policy {
    /// What should be merged now, with an urgency of at least 1.
    pub(crate) fn pick(&self, tree: &TreeVersion) -> Option<(f64, Choice)> {
        match self {
            Policy::Leveled(leveled) => leveled.pick(tree),
            Policy::Tiered(tiered) => tiered.pick(tree),
        }
    }

    /// What should be merged of the runs of level 0 that are newer than `above`, among themselves: where older ones
    /// cannot be read.
    pub(crate) fn pick_above(&self, tree: &TreeVersion, above: Seq) -> Option<(f64, Choice)> {
        let newer = |run: &&Run| run.level == 0 && run.component().min > above;
        let runs = tree.runs.iter().take_while(newer);
        let newer = TreeVersion {
            runs: runs.cloned().collect(),
            ..tree.clone()
        };
        let tiered = match self {
            Policy::Leveled(_) => Tiered::default(),
            Policy::Tiered(tiered) => tiered.clone(),
        };
        tiered.pick(&newer)
    }

    /// Everything into one run: what `compact` asks for. `None` when there is nothing to do.
    pub(crate) fn pick_all(&self, tree: &TreeVersion) -> Option<Choice> {
        let worth = tree.runs.len() > 1
            || tree
                .runs
                .iter()
                .any(|run| run.tables.iter().any(|table| table.meta().deletes > 0));
        if worth { self.all(tree) } else { None }
    }

    /// Everything into one run, worth it or not; `None` when the tree is empty.
    pub(crate) fn all(&self, tree: &TreeVersion) -> Option<Choice> {
        if tree.runs.is_empty() {
            return None;
        }
        let level = match self {
            Policy::Leveled(leveled) => leveled.level_for(tree.size()),
            Policy::Tiered(_) => 0,
        };
        Some(Choice::new(
            tree.runs.iter().map(|run| run.tables.to_vec()).collect(),
            level,
        ))
    }

    /// The level at which a run of `bytes` that is older than all of the tree goes.
    pub(crate) fn oldest_level(&self, tree: &TreeVersion, bytes: u64) -> u32 {
        match self {
            Policy::Leveled(leveled) => {
                let deepest = tree.runs.last().map_or(0, |run| run.level);
                leveled.level_for(bytes).max(deepest + 1)
            }
            Policy::Tiered(_) => 0,
        }
    }

    /// How far flushes are ahead of merges: the number of runs in level 0 above which writers are
    /// slowed, and at which they wait.
    pub(crate) fn pressure(&self, tree: &TreeVersion) -> f64 {
        let runs = tree.level0().len() as f64;
        match self {
            Policy::Leveled(leveled) => {
                let (slow, stop) = (
                    2.0 * leveled.level0_runs as f64,
                    6.0 * leveled.level0_runs as f64,
                );
                (runs - slow) / (stop - slow)
            }
            // A tiered tree has a run per size class; only a backlog of fresh flushes is pressure.
            Policy::Tiered(_) => (runs - 60.0) / 60.0,
        }
    }
}

#[cfg(test)]
mod tests;
