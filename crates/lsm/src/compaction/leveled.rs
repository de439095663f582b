//! The leveled policy.

use std::sync::Arc;

use super::Choice;
use crate::options::Leveled;
use crate::version::{Run, TableFile, TreeVersion};

impl Leveled {
    fn capacity(&self, level: u32) -> u64 {
        (1..level).fold(self.level1_bytes, |bytes, _| {
            bytes.saturating_mul(self.multiplier)
        })
    }

    /// The first level that can hold `bytes`.
    pub(crate) fn level_for(&self, bytes: u64) -> u32 {
        let mut level = 1;
        while self.capacity(level) < bytes {
            level += 1;
        }
        level
    }

    pub(crate) fn pick(&self, tree: &TreeVersion) -> Option<(f64, Choice)> {
        let deep = tree
            .runs
            .iter()
            .filter(|run| run.level > 0)
            .map(|run| {
                (
                    run.size() as f64 / self.capacity(run.level) as f64,
                    run.level,
                )
            })
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|(score, _)| *score >= 1.0);
        let shallow = tree.level0().len() as f64 / self.level0_runs.max(1) as f64;
        if shallow >= deep.map_or(1.0, |(score, _)| score)
            && let Some(choice) = self.level0(tree)
        {
            return Some((shallow, choice));
        }
        let (score, level) = deep?;
        Some((score, self.level(tree, level)?))
    }

    /// All of level 0 and what it overlaps in level 1. While level 0 is small against what it
    /// overlaps (an index tree beside a large data tree, flushed together), its runs are first
    /// merged among themselves, so that level 1 is not rewritten for a few entries.
    fn level0(&self, tree: &TreeVersion) -> Option<Choice> {
        let level0 = tree.level0();
        let mut runs: Vec<Vec<Arc<TableFile>>> =
            level0.iter().map(|run| run.tables.to_vec()).collect();
        let below = overlapped(&runs, tree.level(1));
        let above_bytes: u64 = level0.iter().map(Run::size).sum();
        let below_bytes: u64 = below.iter().map(|table| table.meta().size).sum();
        if above_bytes.saturating_mul(2) >= below_bytes || level0.len() >= 3 * self.level0_runs {
            runs.push(below);
            return Some(Choice::new(runs, 1));
        }
        let mut younger = 0;
        let mut sequence = None;
        for (index, run) in level0.iter().enumerate() {
            if index > 0 && younger >= run.size() {
                sequence = Some(index + 1);
            }
            younger += run.size();
        }
        runs.truncate(sequence?);
        Some(Choice::new(runs, 0))
    }

    /// One table of `level`, round robin, and what it overlaps below.
    fn level(&self, tree: &TreeVersion, level: u32) -> Option<Choice> {
        let run = tree.level(level)?;
        let start = tree.cursors.get(&level);
        let table = run
            .tables
            .iter()
            .find(|table| start.is_none_or(|key| table.meta().smallest > *key))
            .or_else(|| run.tables.first())?;
        let mut runs = vec![vec![table.clone()]];
        runs.push(overlapped(&runs, tree.level(level + 1)));
        let mut choice = Choice::new(runs, level + 1);
        choice.cursor = Some((level, table.meta().largest.clone()));
        Some(choice)
    }
}

/// The tables of `below` that overlap any of `above`.
fn overlapped(above: &[Vec<Arc<TableFile>>], below: Option<&Run>) -> Vec<Arc<TableFile>> {
    let Some(below) = below else {
        return Vec::new();
    };
    let tables = || above.iter().flatten();
    let lo = tables().map(|table| &table.meta().smallest).min();
    let hi = tables().map(|table| &table.meta().largest).max();
    match (lo, hi) {
        (Some(lo), Some(hi)) => below.overlapping(lo, hi).to_vec(),
        _ => Vec::new(),
    }
}
