//! The lazy-leveled policy.

use std::sync::Arc;

use super::Leveled;
use crate::coding::Own;
use crate::version::{Choice, CompactionPolicy, Run, TableFile, TreeVersion, are_disjoint};

/// The lazy-leveled policy of Dostoevsky (Dayan & Idreos 2018): tiers above, one leveled run at the
/// bottom. Runs of level 0 are merged among themselves as in tiers, and all together into the
/// bottom when they are a share of its size. An update is rewritten about once per tier and then
/// once per rewrite of the bottom; a get probes the few runs above and one table of the bottom.
///
/// To bound a compaction to [`Leveled::level1_bytes`] and its share, the bottom grows into leveled
/// levels from there on. Runs without overlap, as those of ascending keys, move down unchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct LazyLeveled {
    /// Number of runs of one size that triggers their compaction into one, at least 2.
    pub runs: usize,
    /// Runs above are compacted into the bottom when they have this share of its bytes.
    pub share: f64,
    /// Bytes below which all upper runs are compacted into the bottom together.
    pub least: u64,
    /// The levels below level 0: the first is the bottom until it exceeds its size.
    pub lower: Leveled,
}

impl Default for LazyLeveled {
    fn default() -> LazyLeveled {
        LazyLeveled {
            runs: 4,
            share: 0.5,
            least: 8 << 20,
            lower: Leveled {
                level1_bytes: 2 << 30,
                ..Leveled::default()
            },
        }
    }
}

impl LazyLeveled {
    fn runs(&self) -> usize {
        self.runs.clamp(2, 1 << 20)
    }

    /// How many of the newest runs become one: the longest sequence whose oldest run is about no
    /// larger than the average of the others.
    fn tier(&self, runs: &[Run]) -> Option<usize> {
        let (mut newer, mut found) = (0.0, None);
        for (at, run) in runs.iter().enumerate() {
            let size = run.size() as f64;
            // Flushes differ a little in size.
            if at + 1 >= self.runs() && newer >= 0.8 * size * (self.runs() - 1) as f64 {
                found = Some(at + 1);
            }
            newer += size;
        }
        found
    }

    /// How many of the oldest runs overlap neither each other nor level 1.
    fn apart(&self, tree: &TreeVersion) -> usize {
        let partitioner = tree.options.partitioner.as_ref();
        let mut tables: Vec<&Arc<TableFile>> = Vec::new();
        let oldest = tree.level0().iter().rev().take_while(|run| {
            tables.extend(run.tables.iter());
            let tables = || tables.iter().copied();
            let below = tree.level(1).map(|below| below.overlapped(tables()));
            below.is_none_or(|below| below.is_empty()) && are_disjoint(tables(), partitioner)
        });
        oldest.count()
    }
}

impl LazyLeveled {
    /// The choice for the runs of level 0.
    fn above(&self, tree: &TreeVersion) -> Option<(f64, Choice)> {
        let above = tree.level0();
        let below = tree.runs.own(above.len()..);
        let tables = |runs: &[Run]| {
            let tables = runs.iter().map(|run| run.tables.to_vec());
            tables.collect::<Vec<_>>()
        };
        if above.len() >= self.runs() {
            // A single run waits for another: its table may be small.
            let apart = self.apart(tree);
            if apart > 1 {
                let oldest = above.get(above.len() - apart..)?;
                let score = (apart as f64 / self.runs() as f64).max(1.0);
                return Some((score, Choice::merge(tables(oldest), 1)));
            }
        }
        let bytes: u64 = above.iter().map(Run::size).sum();
        let all: u64 = below.iter().map(Run::size).sum();
        let fits = bytes.saturating_add(all) <= self.lower.capacity(1);
        let bottom = if fits {
            all
        } else {
            tree.level(1).map_or(0, Run::size)
        };
        let allowed = ((bottom as f64 * self.share) as u64).max(self.least.max(1));
        if bytes < allowed {
            let tier = self.tier(above)?;
            let score = tier as f64 / self.runs() as f64;
            return Some((score, Choice::merge(tables(above.get(..tier)?), 0)));
        }
        let mut inputs = tables(above);
        match below {
            // Levels that fit into one become one.
            [lower, ..] if fits && (below.len() > 1 || lower.level != 1) => {
                inputs.extend(tables(below));
            }
            // Tables that the upper runs do not overlap stay in place.
            _ => {
                let bottom = tree.level(1);
                inputs.extend(bottom.map(|run| run.overlapped(inputs.iter().flatten())));
            }
        }
        Some((bytes as f64 / allowed as f64, Choice::merge(inputs, 1)))
    }
}

impl CompactionPolicy for LazyLeveled {
    fn pick(&self, tree: &TreeVersion) -> Option<(f64, Choice)> {
        let above = self.above(tree);
        let score = above.as_ref().map_or(0.0, |(score, _)| *score);
        match self.lower.fullest(tree) {
            Some((fill, level)) if fill >= score => Some((fill, self.lower.level(tree, level)?)),
            _ => above,
        }
    }

    fn level_for(&self, bytes: u64) -> u32 {
        self.lower.level_for(bytes)
    }

    fn pressure(&self, tree: &TreeVersion) -> f64 {
        let allowed = 4.0 * self.runs() as f64;
        (tree.level0().len() as f64 - allowed) / (2.0 * allowed)
    }
}
