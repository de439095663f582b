//! A tree in a version: its runs, its options, and what its policy says of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::file::TableFile;
use super::limits::MAX_TREE;
use super::policy::Never;
use super::run::Run;
use super::tree_options::TreeOptions;
use crate::batch::TreeId;
use crate::entry::{Seq, Time};
use crate::error::{Error, Result};
use crate::obsolete::SeqSet;

/// One tree in a version.
#[derive(Clone)]
pub struct TreeVersion {
    /// The tree's number.
    pub id: TreeId,
    /// Its name, unique in the group.
    pub name: String,
    /// Opaque data of the creator.
    pub config: Arc<Vec<u8>>,
    /// The runs, newest first.
    pub runs: Vec<Run>,
    /// Where the next compaction of each level starts (LevelDB's round-robin cursor).
    pub(crate) cursors: BTreeMap<u32, Vec<u8>>,
    pub(crate) options: TreeOptions,
    /// In a bitmap tree: the numbers in its tables.
    pub(crate) bitmap: Arc<SeqSet>,
    /// In a bitmap tree: why `bitmap` may lack numbers of its tables.
    pub(crate) damage: Option<Arc<Error>>,
    /// In a bitmap tree: the repair watermark, see [`TreeVersion::repair_watermark`].
    pub(crate) repair_watermark: Seq,
    /// In a bitmap tree: the version that last added to `bitmap` ([`Version::ordinal`]).
    pub(crate) changed: u64,
    /// In a bitmap tree: how many numbers were dropped by sweeps.
    pub(crate) forgotten: u64,
    pub(crate) due: Due,
}

/// The policy's answers for a tree, computed once per change of the tree: of thousands of trees a flush or a
/// compaction changes a few.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Due {
    /// The score of a compaction, if one is due, and the bytes that it reads.
    pub(crate) merge: Option<(f64, u64)>,
    /// The compaction backlog.
    pub(crate) pressure: f64,
    /// The earliest expiry time in the tree, if any.
    pub(crate) expiry: Option<Time>,
}

impl TreeVersion {
    /// A tree without tables and name.
    pub(super) fn blank() -> TreeVersion {
        TreeVersion {
            id: MAX_TREE,
            name: String::new(),
            config: Arc::default(),
            runs: Vec::new(),
            cursors: BTreeMap::new(),
            options: TreeOptions {
                filter_bits_per_key: 0,
                ..TreeOptions::with_policy(Arc::new(Never))
            },
            bitmap: Arc::default(),
            damage: None,
            repair_watermark: 0,
            changed: 0,
            forgotten: 0,
            due: Due::default(),
        }
    }

    /// Calls the policy again, after a change.
    pub(super) fn find_due(&mut self) {
        let policy = &self.options.policy;
        let picked = policy.pick(self);
        self.due = Due {
            merge: picked.map(|(score, choice)| (score, choice.size())),
            pressure: policy.pressure(self),
            expiry: self
                .tables()
                .filter_map(|table| Some(table.meta().expiry?.min))
                .min(),
        };
    }

    /// The tree's tables.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.runs.iter().flat_map(|run| run.tables.iter())
    }

    /// Bytes of the tree's tables.
    pub fn size(&self) -> u64 {
        self.runs.iter().map(Run::size).sum()
    }

    /// In a bitmap tree, the repair watermark (Luo & Carey's repaired timestamp, section 4.4): every number that was
    /// superseded by a write up to this one is in the set, or no tree has an entry of it any more. Advanced by
    /// [`crate::Group::supersede`], together with the numbers.
    pub fn repair_watermark(&self) -> Seq {
        self.repair_watermark
    }

    /// In a bitmap tree: the numbers in its tables.
    pub fn bitmap(&self) -> &Arc<SeqSet> {
        &self.bitmap
    }

    /// In a bitmap tree: how many numbers were added so far, those dropped since included.
    pub fn noted(&self) -> u64 {
        self.bitmap.len() + self.forgotten
    }

    /// In a bitmap tree: why its set may lack numbers, if a table could not be read when the group was opened. The
    /// numbers in the set are correct, but [`TreeVersion::repair_watermark`] guarantees nothing.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_deref()
    }

    /// The newest run of a level.
    pub fn level(&self, level: u32) -> Option<&Run> {
        self.runs.iter().find(|run| run.level == level)
    }

    /// The runs of level 0, newest first.
    pub fn level0(&self) -> &[Run] {
        self.runs
            .get(..self.runs.partition_point(|run| run.level == 0))
            .unwrap_or_default()
    }

    /// Where the next pick of `level` starts: the key that its last choice set.
    pub fn cursor(&self, level: u32) -> Option<&[u8]> {
        self.cursors.get(&level).map(Vec::as_slice)
    }

    /// The tree's options in this version.
    pub fn options(&self) -> &TreeOptions {
        &self.options
    }

    /// Sorts the runs and checks their invariants: tables of a run do not overlap in the run's order. Checked at
    /// every change, because everything else relies on it.
    pub(super) fn normalise(&mut self, manifest: &Path) -> Result<()> {
        self.runs.retain(|run| !run.tables.is_empty());
        self.runs
            .sort_by_key(|run| Run::place(run.level, run.component(), run.number));
        for run in &mut self.runs {
            run.normalise().map_err(|what| {
                Error::corruption(manifest, 0, format!("tree {}: {what}", self.name))
            })?;
        }
        Ok(())
    }
}
