//! The lazy-leveled policy.

use crate::version::{Choice, CompactionPolicy, Run, TreeVersion};

/// Dostoevsky's (Dayan & Idreos 2018): tiers above, one leveled run at the bottom. Runs of level 0 are merged among
/// themselves as in tiers, and all of them together into the bottom when they are a share of its size. Updates are rewritten
/// about once per tier and then once for each time that the bottom is; a get asks the few runs above and one table of the bottom.
#[derive(Debug, Clone, PartialEq)]
pub struct LazyLeveled {
    /// Runs of one size at which they are merged to one, at least 2.
    pub runs: usize,
    /// Runs above are merged into the bottom when they have this share of its bytes.
    pub share: f64,
    /// Bytes below which everything above is merged into the bottom together.
    pub least: u64,
}

impl Default for LazyLeveled {
    fn default() -> LazyLeveled {
        LazyLeveled {
            runs: 4,
            share: 0.5,
            least: 64 << 20,
        }
    }
}

impl LazyLeveled {
    fn runs(&self) -> usize {
        self.runs.clamp(2, 1 << 20)
    }

    /// How many of the newest runs become one: the longest sequence whose oldest is no larger than the others are on average, about.
    fn tier(&self, runs: &[Run]) -> Option<usize> {
        let (mut newer, mut found) = (0.0, None);
        for (at, run) in runs.iter().enumerate() {
            let size = run.size() as f64;
            // Flushes differ a little.
            if at + 1 >= self.runs() && newer >= 0.8 * size * (self.runs() - 1) as f64 {
                found = Some(at + 1);
            }
            newer += size;
        }
        found
    }
}

impl CompactionPolicy for LazyLeveled {
    fn pick(&self, tree: &TreeVersion) -> Option<(f64, Choice)> {
        let above = tree.level0();
        let below = tree.runs.get(above.len()..).unwrap_or_default();
        let bytes: u64 = above.iter().map(Run::size).sum();
        let bottom: u64 = below.iter().map(Run::size).sum();
        let allowed = ((bottom as f64 * self.share) as u64).max(self.least.max(1));
        let tables = |runs: &[Run]| {
            runs.iter()
                .map(|run| run.tables.to_vec())
                .collect::<Vec<_>>()
        };
        if bytes >= allowed || below.len() > 1 {
            let mut inputs = tables(above);
            match below {
                // What the upper runs do not overlap stays where it is.
                [bottom] => inputs.push(bottom.overlapped(inputs.iter().flatten())),
                several => inputs.extend(tables(several)),
            }
            let score = bytes as f64 / allowed as f64;
            return Some((score.max(1.0), Choice::merge(inputs, 1)));
        }
        let tier = self.tier(above)?;
        let choice = Choice::merge(tables(above.get(..tier)?), 0);
        Some((tier as f64 / self.runs() as f64, choice))
    }

    fn level_for(&self, _: u64) -> u32 {
        1
    }

    fn pressure(&self, tree: &TreeVersion) -> f64 {
        let allowed = 4.0 * self.runs() as f64;
        (tree.level0().len() as f64 - allowed) / (2.0 * allowed)
    }
}
