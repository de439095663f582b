//! How a tree is set up, and who says so.

use std::sync::Arc;

use super::{CompactionPolicy, Partitioner};
use crate::attributes::Extractor;
use crate::error::Result;
use crate::merge::{CompactionFilterFactory, MergeOperator};
use crate::options::MAX_BITS;

/// The bitmap tree that says which writes to a tree are obsolete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupersededBy {
    /// Its name. Merges leave out puts whose sequence number is in it; where the tree has a [`CompactionFilterFactory`] it
    /// is for the filter, which learns of it.
    pub tree: String,
    /// What flushes and merges do about puts that they leave out because newer versions of the key are
    /// there.
    pub drop_policy: DropPolicy,
}

/// How flushes and merges leave out a put that has enough newer versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropPolicy {
    /// Nothing is reported.
    Silent,
    /// Its number goes to the bitmap tree, in the same step.
    Record,
    /// Only once the bitmap tree's mark has passed the write that replaced it: until then it is kept, to be
    /// found by a scan.
    KeepUntilRepaired,
    /// Nothing is reported, and puts whose number is in the bitmap tree stay, too. Queries alone pass over them.
    Regardless,
}

/// Settings of one tree. They are code, so they are not stored: a [`TreeProvider`] gives them again
/// at every opening.
#[derive(Clone)]
pub struct TreeOptions {
    /// Attributes of the tree's entries, for synopses and memtable maps.
    pub extractor: Option<Arc<dyn Extractor>>,
    /// Combines operands; a tree without one keeps operands apart.
    pub operator: Option<Arc<dyn MergeOperator>>,
    /// May drop or rewrite entries as they are merged.
    pub filter: Option<Arc<dyn CompactionFilterFactory>>,
    /// Which components are merged, and when.
    pub policy: Arc<dyn CompactionPolicy>,
    /// Where tables are cut, if not by key and size.
    pub partitioner: Option<Arc<dyn Partitioner>>,
    /// How many versions of a key survive merges (at least 1).
    pub versions: usize,
    /// Bits of key filter per key; 0 for none (a tree that is never asked for single keys).
    pub filter_bits_per_key: usize,
    /// The name of a tree whose merges this one repeats on its own components of the same IDs
    /// (correlated merging, Luo & Carey section 4.1). Needs a tiered policy on both.
    pub follows: Option<String>,
    /// True for a bitmap tree: what is written to it are sequence numbers ([`crate::entry::seq_key`]) with empty values,
    /// nothing is ever deleted from it, its tables hold chunks of numbers, and are kept in memory as a [`crate::SeqSet`]
    /// ([`crate::Snapshot::superseded`]). Numbers that nobody can ask about any more are forgotten.
    pub bitmap: bool,
    /// Which writes to this tree are obsolete, where something keeps account of that.
    pub superseded: Option<SupersededBy>,
    /// Older entries are still to come ([`crate::Group::ingest_oldest`]), so tombstones is kept even
    /// where nothing older is there yet.
    pub incomplete: bool,
}

impl TreeOptions {
    /// A plain tree that is merged as `policy` says. (The usual policy is that of `TreeOptions::default()`.)
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
        }
    }

    /// The same with each number where it makes sense: what a provider says is code, so there is nobody to
    /// refuse it to.
    pub(crate) fn bounded(mut self) -> TreeOptions {
        self.versions = self.versions.max(1);
        self.filter_bits_per_key = self.filter_bits_per_key.min(MAX_BITS);
        self
    }

    /// True when flushes and merges leave one version of a key.
    pub(crate) fn keeps_one(&self) -> bool {
        let by = self.superseded.as_ref();
        self.versions <= 1 && by.is_none_or(|by| by.drop_policy != DropPolicy::KeepUntilRepaired)
    }
}

/// Gives each tree its options, when a group is opened and when a tree is created or its
/// configuration changed.
pub trait TreeProvider: Send + Sync {
    /// The options of the tree that was created with this name and these configuration bytes.
    /// [`Error::Invalid`](crate::Error::Invalid) refuses them; of a tree that is there already that is damage,
    /// [`Error::Unsupported`](crate::Error::Unsupported) is not.
    fn tree_options(&self, name: &str, config: &[u8]) -> Result<TreeOptions>;
}

/// A provider for groups whose trees are all plain.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainTrees;

impl TreeProvider for PlainTrees {
    fn tree_options(&self, _name: &str, _config: &[u8]) -> Result<TreeOptions> {
        Ok(TreeOptions::default())
    }
}
