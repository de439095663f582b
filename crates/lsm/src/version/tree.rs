//! A tree in a version: its runs, its options, and what its policy says of it. They are in one file
//! because a policy, which is one of the options, decides by the tree.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::choice::Choice;
use super::file::TableFile;
use super::limits::MAX_TREE;
use super::partition::Partitioner;
use super::run::Run;
use super::superseded::{DropPolicy, SupersededBy};
use crate::attributes::Extractor;
use crate::batch::TreeId;
use crate::coding::Own;
use crate::digest::Digester;
use crate::entry::{Seq, Time};
use crate::error::{Error, Result};
use crate::merge::{CompactionFilterFactory, MergeOperator};
use crate::obsolete::SeqSet;
use crate::options::MAX_BITS;

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

/// The policy's answers for a tree, computed once per change of the tree: of thousands of trees a
/// flush or a compaction changes a few.
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

    /// In a bitmap tree, the repair watermark (Luo & Carey's repaired timestamp, section 4.4):
    /// every number that was superseded by a write up to this one is in the set, or no tree has an
    /// entry of it any more. Advanced by [`crate::Group::supersede`], together with the numbers.
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

    /// In a bitmap tree: why its set may lack numbers, if a table could not be read when the group
    /// was opened. The numbers in the set are correct, but [`TreeVersion::repair_watermark`]
    /// guarantees nothing.
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
            .own(..self.runs.partition_point(|run| run.level == 0))
    }

    /// Where the next pick of `level` starts: the key that its last choice set.
    pub fn cursor(&self, level: u32) -> Option<&[u8]> {
        self.cursors.get(&level).map(Vec::as_slice)
    }

    /// The tree's options in this version.
    pub fn options(&self) -> &TreeOptions {
        &self.options
    }

    /// Sorts the runs and checks their invariants: tables of a run do not overlap in the run's
    /// order. Checked at every change, because everything else relies on it.
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

/// Decides which components of a tree are compacted, and when: LevelDB's levels, AsterixDB's tiers,
/// and policies of users. A pure function of a tree's version: no clock, no I/O, no state of its
/// own. It is called whenever the tree has changed, under the manifest lock, so it should be quick.
///
/// The engine checks each choice before executing it: of one key, newer entries must stay in front
/// of older ones. So a wrong policy causes an error in [`crate::Group::failures`], not a wrong
/// answer.
pub trait CompactionPolicy: Send + Sync + fmt::Debug {
    /// The next compaction of the tree, with a score: 1 where it just became due, `n` where the
    /// tree has `n` times as much as the policy allows (runs, or bytes of a level). `None` when
    /// nothing is due.
    fn pick(&self, tree: &TreeVersion) -> Option<(f64, Choice)>;

    /// The level for a run of `bytes` in an otherwise empty tree.
    fn level_for(&self, bytes: u64) -> u32;

    /// The compaction backlog: 0 or less is none; above that writers to the tree are slowed down,
    /// at 1 the most.
    fn pressure(&self, tree: &TreeVersion) -> f64;
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

/// Settings of one tree. They contain code, so they are not stored: a
/// [`TreeProvider`](super::TreeProvider) supplies them at every opening.
#[derive(Clone)]
pub struct TreeOptions {
    /// Attributes of the tree's entries, for synopses and memtable maps.
    pub extractor: Option<Arc<dyn Extractor>>,
    /// Makes the digests of tables.
    pub digester: Option<Arc<dyn Digester>>,
    /// Combines operands; a tree without one keeps operands apart.
    pub operator: Option<Arc<dyn MergeOperator>>,
    /// Drops or rewrites entries in flushes and compactions.
    pub filter: Option<Arc<dyn CompactionFilterFactory>>,
    /// Decides which components are compacted, and when.
    pub policy: Arc<dyn CompactionPolicy>,
    /// Decides where tables are cut, if not by key and size.
    pub partitioner: Option<Arc<dyn Partitioner>>,
    /// How many versions of a key survive compactions (at least 1).
    pub versions: usize,
    /// Bits of key filter per key; 0 for none (a tree without point lookups).
    pub filter_bits_per_key: usize,
    /// The name of a tree whose compactions this one repeats on its own components with the same
    /// IDs (correlated merging, Luo & Carey section 4.1). Needs a tiered policy on both.
    pub follows: Option<String>,
    /// True for a bitmap tree: writes to it are sequence numbers ([`crate::entry::seq_key`]) with
    /// empty values, never deleted; its tables hold chunks of numbers, and are kept in memory as a
    /// [`crate::SeqSet`] ([`crate::Snapshot::superseded`]). Sweeps drop numbers that can no longer
    /// be probed.
    pub bitmap: bool,
    /// The obsolete set of this tree, if there is one.
    pub superseded: Option<SupersededBy>,
    /// Older entries will still be ingested ([`crate::Group::ingest_oldest`]), so tombstones are
    /// kept even where nothing older exists yet.
    pub incomplete: bool,
    /// Whether tables that flushes write are compressed, where the store's are at all: not worth
    /// its time where most of what is written is gone before the first compaction.
    pub compresses_flushes: bool,
    /// True for a tree whose writes are in the log alone, for those who follow it
    /// ([`crate::Group::tail`]): they go to no memtable and to no table, and no read shows them.
    pub log_only: bool,
}

impl TreeOptions {
    /// A plain tree with this compaction policy. (The default policy is that of
    /// `TreeOptions::default()`.)
    pub fn with_policy(policy: Arc<dyn CompactionPolicy>) -> TreeOptions {
        TreeOptions {
            extractor: None,
            digester: None,
            operator: None,
            filter: None,
            policy,
            partitioner: None,
            versions: 1,
            filter_bits_per_key: 10,
            follows: None,
            bitmap: false,
            superseded: None,
            incomplete: false,
            compresses_flushes: true,
            log_only: false,
        }
    }

    /// Clamps each number to its valid range: settings are code, so no caller could handle a
    /// refusal.
    pub(crate) fn bounded(mut self) -> TreeOptions {
        self.versions = self.versions.max(1);
        self.filter_bits_per_key = self.filter_bits_per_key.min(MAX_BITS);
        self
    }

    /// True when flushes and compactions keep one version of a key.
    pub(crate) fn keeps_one(&self) -> bool {
        let by = self.superseded.as_ref();
        self.versions <= 1 && by.is_none_or(|by| by.drop_policy != DropPolicy::KeepUntilRepaired)
    }
}
