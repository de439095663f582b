//! The tiered policy.

use super::Choice;
use crate::options::Tiered;
use crate::version::{Run, TreeVersion};

impl Tiered {
    /// The longest sequence, from the newest run on, whose younger runs outgrow its oldest.
    pub(crate) fn pick(&self, tree: &TreeVersion) -> Option<(f64, Choice)> {
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
        Some((1.0 + oldest as f64 / 8.0, Choice::new(runs, 0)))
    }
}
