//! The leveled policy.

use std::sync::Arc;

use crate::version::{Choice, CompactionPolicy, Run, TableFile, TreeVersion};

/// The leveled policy of LevelDB: one run per level below level 0, each ten times the size of the one above; a
/// compaction takes one table of a level, round robin over the keys, and the tables that it overlaps below.
#[derive(Debug, Clone, PartialEq)]
pub struct Leveled {
    /// Number of runs of level 0 that triggers their compaction into level 1, at least 1.
    pub level0_runs: usize,
    /// Maximum bytes of level 1, at least 1.
    pub level1_bytes: u64,
    /// Size ratio of adjacent levels, at least 2.
    pub multiplier: u64,
}

impl Default for Leveled {
    fn default() -> Leveled {
        Leveled {
            level0_runs: 4,
            level1_bytes: 64 << 20,
            multiplier: 10,
        }
    }
}

impl CompactionPolicy for Leveled {
    fn pick(&self, tree: &TreeVersion) -> Option<(f64, Choice)> {
        let deep = self.fullest(tree);
        let shallow = tree.level0().len() as f64 / self.level0_runs() as f64;
        if shallow >= deep.map_or(1.0, |(score, _)| score)
            && let Some(choice) = self.level0(tree)
        {
            return Some((shallow, choice));
        }
        let (score, level) = deep?;
        Some((score, self.level(tree, level)?))
    }

    /// The first level whose size is at least `bytes`.
    fn level_for(&self, bytes: u64) -> u32 {
        let mut level = 1;
        while self.capacity(level) < bytes {
            level += 1;
        }
        level
    }

    fn pressure(&self, tree: &TreeVersion) -> f64 {
        let runs = tree.level0().len() as f64;
        let allowed = self.level0_runs() as f64;
        let (slow, stop) = (2.0 * allowed, 6.0 * allowed);
        (runs - slow) / (stop - slow)
    }
}

impl Leveled {
    /// The level below level 0 that exceeds its size the most, if any: the ratio, and its number.
    pub(super) fn fullest(&self, tree: &TreeVersion) -> Option<(f64, u32)> {
        let lower = tree.runs.iter().filter(|run| run.level > 0);
        let fill = |run: &Run| run.size() as f64 / self.capacity(run.level) as f64;
        let fills = lower.map(|run| (fill(run), run.level));
        let fullest = fills.max_by(|a, b| a.0.total_cmp(&b.0));
        fullest.filter(|(fill, _)| *fill >= 1.0)
    }

    pub(super) fn capacity(&self, level: u32) -> u64 {
        let multiplier = self.multiplier.max(2);
        (1..level).fold(self.level1_bytes.max(1), |bytes, _| {
            bytes.saturating_mul(multiplier)
        })
    }

    fn level0_runs(&self) -> usize {
        self.level0_runs.clamp(1, 1 << 20)
    }
    /// All of level 0 and the tables of level 1 that it overlaps. While level 0 is small against these (an index tree
    /// beside a large data tree, flushed together), its runs are first compacted among themselves, so that level 1 is
    /// not rewritten for a few entries.
    fn level0(&self, tree: &TreeVersion) -> Option<Choice> {
        let level0 = tree.level0();
        let mut runs: Vec<Vec<Arc<TableFile>>> =
            level0.iter().map(|run| run.tables.to_vec()).collect();
        let below = overlapped(&runs, tree.level(1));
        let above_bytes: u64 = level0.iter().map(Run::size).sum();
        let below_bytes: u64 = below.iter().map(|table| table.meta().size).sum();
        if above_bytes.saturating_mul(2) >= below_bytes || level0.len() >= 3 * self.level0_runs() {
            runs.push(below);
            return Some(Choice::merge(runs, 1));
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
        Some(Choice::merge(runs, 0))
    }

    /// One table of `level`, round robin, and the tables below that it overlaps. A table that is cut by more than the key
    /// may overlap most of the level below, in shapes that no output can be cut around: it is passed over while others
    /// overlap fewer.
    pub(super) fn level(&self, tree: &TreeVersion, level: u32) -> Option<Choice> {
        let run = tree.level(level)?;
        let below = tree.level(level + 1);
        let start = tree.cursors.get(&level);
        let next = run
            .tables
            .iter()
            .position(|table| start.is_none_or(|key| table.meta().smallest > *key));
        let (before, after) = run.tables.split_at(next.unwrap_or(0));
        let mut best: Option<(&Arc<TableFile>, Vec<Arc<TableFile>>)> = None;
        for table in after.iter().chain(before) {
            let overlapped = overlapped(&[vec![table.clone()]], below);
            let fewer = best.as_ref().is_none_or(|b| overlapped.len() < b.1.len());
            let is_few = run.is_by_key() || overlapped.len() <= MOST_OVERLAPPED;
            if fewer {
                best = Some((table, overlapped));
            }
            if is_few {
                break;
            }
        }
        let (table, overlapped) = best?;
        let mut choice = Choice::merge(vec![vec![table.clone()], overlapped], level + 1);
        // Tables that are cut by more than the key overlap by key: each has its turn in the order of the smallest.
        let passed = match run.is_by_key() {
            true => &table.meta().largest,
            false => &table.meta().smallest,
        };
        choice.cursor = Some((level, passed.clone()));
        Some(choice)
    }
}

/// The most tables that a table which is cut by more than the key should overlap in the next level, so that its compaction
/// needs fewer than [`MOST_PARTS`](crate::version::MOST_PARTS) tables even where many that stay are between them.
const MOST_OVERLAPPED: usize = 100;

/// The tables of `below` that overlap any of `above`.
fn overlapped(above: &[Vec<Arc<TableFile>>], below: Option<&Run>) -> Vec<Arc<TableFile>> {
    below.map_or_else(Vec::new, |below| below.overlapped(above.iter().flatten()))
}
