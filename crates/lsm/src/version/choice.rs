//! What compaction policies choose.

use std::sync::Arc;

use super::file::TableFile;

/// What to do with the chosen tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Merge them into tables of a level: into a run of that level, whose overlapped tables must be
    /// included, or into a new run.
    Merge {
        /// The level.
        level: u32,
        /// The number of the run, `None` for a new one.
        run: Option<u64>,
    },
    /// Move them unchanged. They must overlap neither the target nor each other.
    Move {
        /// The level.
        level: u32,
        /// The number of the run, `None` for a new one.
        run: Option<u64>,
    },
    /// Drop them unread. All of their entries must have expired, and those of each older table with
    /// some of their keys, too: otherwise replaced entries would reappear.
    Drop,
}

/// The choice of a policy.
#[derive(Clone)]
pub struct Choice {
    /// The tables, by their run, the newest run first.
    pub inputs: Vec<Vec<Arc<TableFile>>>,
    /// What to do with them.
    pub action: Action,
    /// Where the next pick of a level starts ([`TreeVersion::cursor`](super::TreeVersion::cursor)):
    /// the level, and a key.
    pub cursor: Option<(u32, Vec<u8>)>,
}

impl Choice {
    /// A compaction into a level that has one run, as each below the first of a leveled tree, or at
    /// level 0 into a new run.
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

    /// All chosen tables.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.inputs.iter().flatten()
    }

    /// Bytes to read.
    pub fn size(&self) -> u64 {
        if self.action == Action::Drop {
            return 0;
        }
        self.tables().map(|table| table.meta().size).sum()
    }

    /// True when it includes the table `number`.
    pub(crate) fn takes(&self, number: u64) -> bool {
        self.tables().any(|table| table.meta().number == number)
    }

    /// The target level and run.
    pub(crate) fn target(&self) -> (u32, Option<u64>) {
        match self.action {
            Action::Merge { level, run } | Action::Move { level, run } => (level, run),
            Action::Drop => (0, None),
        }
    }
}
