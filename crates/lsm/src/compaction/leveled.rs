//! The leveled policy.

use std::borrow::Cow;
use std::sync::Arc;

use crate::version::{Choice, CompactionPolicy, Run, TableFile, TreeOptions, TreeVersion};

/// Which table of a level is compacted next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum NextTable {
    /// Each in turn, as in LevelDB: in the order of keys, or of the tree's partitioner
    /// ([`crate::Partitioner::turn`]).
    #[default]
    RoundRobin,
    /// The one that overlaps the fewest tables of the next level, of several the next in turn
    /// (pick-best).
    FewestOverlapped,
}

/// The leveled policy of LevelDB: one run per level below level 0, each ten times the size of the
/// one above; a compaction takes one table of a level, by turns unless set otherwise, and the
/// tables that it overlaps below.
#[derive(Debug, Clone, PartialEq)]
pub struct Leveled {
    /// Number of runs of level 0 that triggers their compaction into level 1, at least 1.
    pub level0_runs: usize,
    /// Maximum bytes of level 1, at least 1.
    pub level1_bytes: u64,
    /// Size ratio of adjacent levels, at least 2.
    pub multiplier: u64,
    /// Which table of a level is compacted next.
    pub next: NextTable,
}

impl Default for Leveled {
    fn default() -> Leveled {
        Leveled {
            level0_runs: 4,
            level1_bytes: 64 << 20,
            multiplier: 10,
            next: NextTable::default(),
        }
    }
}

impl Default for TreeOptions {
    fn default() -> TreeOptions {
        TreeOptions::with_policy(Arc::new(Leveled::default()))
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
    /// All of level 0 and the tables of level 1 that it overlaps. While level 0 is small against
    /// these (an index tree beside a large data tree, flushed together), its runs are first
    /// compacted among themselves, so that level 1 is not rewritten for a few entries.
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

    /// One table of `level` and the tables below that it overlaps. A table that is cut by more than
    /// the key may overlap most of the level below, in shapes that no output can be cut around: its
    /// turn is passed over while others overlap fewer.
    pub(super) fn level(&self, tree: &TreeVersion, level: u32) -> Option<Choice> {
        let run = tree.level(level)?;
        let below = tree.level(level + 1);
        let most = match (self.next, run.is_by_key()) {
            (NextTable::FewestOverlapped, _) => 0,
            (NextTable::RoundRobin, true) => usize::MAX,
            (NextTable::RoundRobin, false) => MOST_OVERLAPPED,
        };
        let mut best: Option<(&Turn<'_>, Vec<Arc<TableFile>>)> = None;
        let turns = turns(run, tree.cursors.get(&level));
        for turn in &turns {
            let overlapped = overlapped(&[vec![turn.table.clone()]], below);
            let count = overlapped.len();
            if best.as_ref().is_none_or(|best| count < best.1.len()) {
                best = Some((turn, overlapped));
            }
            if count <= most {
                break;
            }
        }
        let (turn, overlapped) = best?;
        let mut choice = Choice::merge(vec![vec![turn.table.clone()], overlapped], level + 1);
        // A table by key has passed with all of its keys.
        let passed = if run.is_by_key() {
            turn.table.meta().largest.clone()
        } else {
            turn.at.to_vec()
        };
        choice.cursor = Some((level, passed));
        Some(choice)
    }
}

/// A table that may be compacted next.
struct Turn<'r> {
    /// Its place in the order of turns.
    at: Cow<'r, [u8]>,
    table: &'r Arc<TableFile>,
}

/// The tables of a run in the order in which it is their turn, those after `cursor` first.
fn turns<'r>(run: &'r Run, cursor: Option<&Vec<u8>>) -> Vec<Turn<'r>> {
    let turn = |table: &'r Arc<TableFile>| Turn {
        at: run.turn(table),
        table,
    };
    let mut turns: Vec<Turn<'r>> = run.tables.iter().map(turn).collect();
    // Tables are kept by their smallest key, so that is who is first where turns are the same.
    turns.sort_by(|a, b| a.at.cmp(&b.at));
    let next = turns.partition_point(|turn| cursor.is_some_and(|cursor| *turn.at <= **cursor));
    turns.rotate_left(next);
    turns
}

/// The most tables that a table which is cut by more than the key should overlap in the next level,
/// so that its compaction needs fewer than [`MOST_PARTS`](crate::version::MOST_PARTS) tables even
/// where many that stay are between them.
const MOST_OVERLAPPED: usize = 100;

/// The tables of `below` that overlap any of `above`.
fn overlapped(above: &[Vec<Arc<TableFile>>], below: Option<&Run>) -> Vec<Arc<TableFile>> {
    below.map_or_else(Vec::new, |below| below.overlapped(above.iter().flatten()))
}
