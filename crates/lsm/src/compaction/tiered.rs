//! The tiered policy.

use super::Leveled;
use crate::version::{Choice, CompactionPolicy, Run, TreeVersion};

/// The tiered policy of AsterixDB: runs of level 0 only; a sequence of them is compacted when the
/// younger ones together outgrow the oldest by a ratio (Luo & Carey section 2.1).
#[derive(Debug, Clone, PartialEq)]
pub struct Tiered {
    /// Ratio of the younger runs' total size to the oldest run of the sequence that triggers its
    /// compaction.
    pub ratio: f64,
    /// A run of more bytes than this is never compacted again.
    pub largest_mergeable: u64,
}

impl Default for Tiered {
    fn default() -> Tiered {
        Tiered {
            ratio: 1.2,
            largest_mergeable: 64 << 30,
        }
    }
}

impl CompactionPolicy for Tiered {
    /// The longest sequence, from the newest run on, whose younger runs outgrow its oldest. Its
    /// score equals that of the same number of level 0 runs under the default leveled policy.
    fn pick(&self, tree: &TreeVersion) -> Option<(f64, Choice)> {
        let mergeable: Vec<&Run> = tree
            .runs
            .iter()
            .take_while(|run| run.size() <= self.largest_mergeable)
            .collect();
        let mut younger: Vec<u64> = Vec::with_capacity(mergeable.len());
        let mut sum = 0;
        for run in &mergeable {
            younger.push(sum);
            sum += run.size();
        }
        let oldest = (1..mergeable.len()).rev().find(|&i| {
            let (run, young) = (mergeable.get(i), younger.get(i));
            run.zip(young)
                .is_some_and(|(run, young)| *young as f64 >= self.ratio * run.size() as f64)
        })?;
        let runs = mergeable
            .iter()
            .take(oldest + 1)
            .map(|run| run.tables.to_vec())
            .collect();
        let urgency = (oldest + 1) as f64 / Leveled::default().level0_runs as f64;
        Some((urgency.max(1.0), Choice::merge(runs, 0)))
    }

    fn level_for(&self, _: u64) -> u32 {
        0
    }

    /// A tiered tree has a run per size class; only a backlog of fresh flushes is pressure.
    fn pressure(&self, tree: &TreeVersion) -> f64 {
        (tree.level0().len() as f64 - 60.0) / 60.0
    }
}
