//! The settings of a tree, and their provider.

use std::sync::Arc;

use super::partition::Partitioner;
use super::policy::CompactionPolicy;
use crate::attributes::Extractor;
use crate::error::Result;
use crate::merge::{CompactionFilterFactory, MergeOperator};
use crate::options::MAX_BITS;

/// The bitmap tree that says which writes to a tree are obsolete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupersededBy {
    /// Its name. Compactions drop puts whose sequence number is in it; in a tree with a [`CompactionFilterFactory`]
    /// the filter gets the set and decides.
    pub tree: String,
    /// What flushes and compactions do about puts that they drop because newer versions of the key exist.
    pub drop_policy: DropPolicy,
}

/// How flushes and compactions drop a put that has enough newer versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropPolicy {
    /// Nothing is reported.
    Silent,
    /// Its number is added to the bitmap tree, atomically.
    Record,
    /// Only once the bitmap tree's repair watermark has passed the write that replaced it: until then it is kept for
    /// a repair scan to find.
    KeepUntilRepaired,
    /// Nothing is reported, and puts whose number is in the bitmap tree stay, too. Only queries skip them.
    Regardless,
}

/// Settings of one tree. They contain code, so they are not stored: a [`TreeProvider`] supplies them at every
/// opening.
#[derive(Clone)]
pub struct TreeOptions {
    /// Attributes of the tree's entries, for synopses and memtable maps.
    pub extractor: Option<Arc<dyn Extractor>>,
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
    /// The name of a tree whose compactions this one repeats on its own components with the same IDs (correlated
    /// merging, Luo & Carey section 4.1). Needs a tiered policy on both.
    pub follows: Option<String>,
    /// True for a bitmap tree: writes to it are sequence numbers ([`crate::entry::seq_key`]) with empty values, never
    /// deleted; its tables hold chunks of numbers, and are kept in memory as a [`crate::SeqSet`]
    /// ([`crate::Snapshot::superseded`]). Sweeps drop numbers that can no longer be probed.
    pub bitmap: bool,
    /// The obsolete set of this tree, if there is one.
    pub superseded: Option<SupersededBy>,
    /// Older entries will still be ingested ([`crate::Group::ingest_oldest`]), so tombstones are kept even where
    /// nothing older exists yet.
    pub incomplete: bool,
    /// Whether tables that flushes write are compressed, where the store's are at all: not worth its time where most of
    /// what is written is gone before the first compaction.
    pub compresses_flushes: bool,
    /// True for a tree whose writes are in the log alone, for those who follow it ([`crate::Group::tail`]): they go to no
    /// memtable and to no table, and no read shows them.
    pub log_only: bool,
}

impl TreeOptions {
    /// A plain tree with this compaction policy. (The default policy is that of `TreeOptions::default()`.)
    pub fn with_policy(policy: Arc<dyn CompactionPolicy>) -> TreeOptions {
        TreeOptions {
            extractor: None,
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

    /// Clamps each number to its valid range: settings are code, so no caller could handle a refusal.
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

/// Supplies the options of each tree, when a group is opened and when a tree is created or configured.
pub trait TreeProvider: Send + Sync {
    /// The options of the tree with this name and these configuration bytes.
    /// [`Error::Invalid`](crate::Error::Invalid) refuses them; for an existing tree that is damage,
    /// [`Error::Unsupported`](crate::Error::Unsupported) is not.
    fn tree_options(&self, name: &str, config: &[u8]) -> Result<TreeOptions>;
}

/// A provider for groups with plain trees only.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainTrees;

impl TreeProvider for PlainTrees {
    fn tree_options(&self, _name: &str, _config: &[u8]) -> Result<TreeOptions> {
        Ok(TreeOptions::default())
    }
}
