//! What a compaction policy is, and what it may choose.

use std::fmt;
use std::sync::Arc;

use super::{TableFile, TreeVersion};

/// Decides which components of a tree are merged, and when: LevelDB's levels, AsterixDB's tiers, and what users of the
/// engine add. A pure function of a tree's version: no clock, no I/O, no memory of its own. It is asked whenever the
/// tree has changed, under the lock of the manifest, so it should be quick.
///
/// The engine checks each choice before it is carried out: of one key, what is newer must stay in front of what is
/// older. So a policy that is wrong costs an error in [`crate::Group::failures`], not an answer.
pub trait CompactionPolicy: Send + Sync + fmt::Debug {
    /// What should be done with the tree now, and how urgent it is: 1 where it just became due, `n` where the tree has
    /// `n` times as much as the policy allows (runs, or bytes of a level). `None` when nothing is due.
    fn pick(&self, tree: &TreeVersion) -> Option<(f64, Choice)>;

    /// The level for a run of `bytes` that is all there is of a tree.
    fn level_for(&self, bytes: u64) -> u32;

    /// How far merges are behind: 0 or less is not at all; from there on who writes to the tree is slowed, and at 1 the most.
    fn pressure(&self, tree: &TreeVersion) -> f64;
}

/// What becomes of the tables that a policy chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// They are merged to tables of a level: of a run of that level, whose tables they overlap must be among them, or of a
    /// new run of their own.
    Merge {
        /// The level.
        level: u32,
        /// The number of the run, `None` for a new one.
        run: Option<u64>,
    },
    /// They are put there as they are. They must overlap nothing there, nor each other.
    Move {
        /// The level.
        level: u32,
        /// The number of the run, `None` for a new one.
        run: Option<u64>,
    },
    /// They are dropped whole, unread. All that is in them must have expired, and where an older table has some of their
    /// keys, all that is in that, too: otherwise something would be seen again that they replaced.
    Drop,
}

/// What a policy chose.
#[derive(Clone)]
pub struct Choice {
    /// The tables, by the run that they are in, the newest run first.
    pub inputs: Vec<Vec<Arc<TableFile>>>,
    /// What becomes of them.
    pub action: Action,
    /// Where the next pick of a level goes on ([`TreeVersion::cursor`]): the level, and a key.
    pub cursor: Option<(u32, Vec<u8>)>,
}

impl Choice {
    /// A merge to a level that has one run, as each below the first of a leveled tree, or at level 0 to a new run.
    pub fn merge(inputs: Vec<Vec<Arc<TableFile>>>, level: u32) -> Choice {
        Choice {
            inputs,
            action: Action::Merge {
                level,
                run: (level > 0).then_some(0),
            },
            cursor: None,
        }
    }

    /// All tables that it takes.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.inputs.iter().flatten()
    }

    /// Bytes that are read.
    pub fn size(&self) -> u64 {
        if self.action == Action::Drop {
            return 0;
        }
        self.tables().map(|table| table.meta().size).sum()
    }

    /// True when it takes the table `number`.
    pub(crate) fn takes(&self, number: u64) -> bool {
        self.tables().any(|table| table.meta().number == number)
    }

    /// The level and the run that they go to.
    pub(crate) fn target(&self) -> (u32, Option<u64>) {
        match self.action {
            Action::Merge { level, run } | Action::Move { level, run } => (level, run),
            Action::Drop => (0, None),
        }
    }
}

/// The policy of tables that belong to no tree.
#[derive(Debug)]
pub(super) struct Never;

impl CompactionPolicy for Never {
    fn pick(&self, _: &TreeVersion) -> Option<(f64, Choice)> {
        None
    }
    fn level_for(&self, _: u64) -> u32 {
        0
    }
    fn pressure(&self, _: &TreeVersion) -> f64 {
        0.0
    }
}
