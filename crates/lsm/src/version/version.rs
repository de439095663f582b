//! A version: the state of all trees, with the kept versions beside it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::file::TableFile;
use super::names::Names;
use super::tree::TreeVersion;
use crate::batch::TreeId;
use crate::entry::{Seq, Time};

/// The state of all trees of a group.
#[derive(Clone, Default)]
pub struct Version {
    /// The trees, by number.
    pub trees: BTreeMap<TreeId, Arc<TreeVersion>>,
    pub(super) names: Arc<Names>,
    pub(super) changes: u64,
    /// How many edits created it, in this process.
    pub(super) ordinal: u64,
    /// In a read-only group: all writes up to it are in tables.
    pub(super) flushed: Seq,
    /// Whether entries in it expire, or did.
    pub(super) timed: bool,
    /// Named snapshots beside it.
    pub(super) kept: Arc<BTreeMap<String, Arc<Kept>>>,
}

impl Version {
    /// The tree called `name`.
    pub fn tree_named(&self, name: &str) -> Option<&Arc<TreeVersion>> {
        self.trees.get(&self.names.id(name)?)
    }

    /// The trees that follow the compactions of the tree called `name`, by number.
    pub(crate) fn followers(&self, name: &str) -> impl Iterator<Item = &Arc<TreeVersion>> {
        let ids = self.names.followers(name).iter();
        ids.filter_map(|id| self.trees.get(id))
    }

    /// The trees that read the set of the tree called `name`, by number.
    pub(crate) fn holders(&self, name: &str) -> impl Iterator<Item = &Arc<TreeVersion>> {
        let ids = self.names.holders(name).iter();
        ids.filter_map(|id| self.trees.get(id))
    }

    /// How often trees were created, configured, renamed or dropped since the group was opened: two
    /// versions with the same number have the same trees, with the same configurations.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// True when entries in its tables expire, or did.
    pub(crate) fn is_timed(&self) -> bool {
        self.timed
    }

    /// The version's number in this process: from 1 up, ascending with age.
    pub(crate) fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// Every table of every tree.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.trees.values().flat_map(|tree| tree.tables())
    }

    /// The kept versions beside this one, by name.
    pub(crate) fn kept(&self) -> &BTreeMap<String, Arc<Kept>> {
        &self.kept
    }

    /// Every table of this version and of the kept ones beside it: some occur several times.
    pub(crate) fn all_tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        let kept = self.kept.values();
        self.tables()
            .chain(kept.flat_map(|kept| kept.picture().tables()))
    }
}

/// A kept version, with the sequence number and time of its snapshot.
pub(crate) struct Kept {
    /// The last visible write.
    pub(crate) seq: Seq,
    /// The time by which it hides expired entries; 0 where nothing expired.
    pub(crate) time: Time,
    version: Version,
    /// The version with the sets of its bitmap trees, which are read on first use.
    ready: OnceLock<Arc<Version>>,
}

impl Kept {
    pub(super) fn new(seq: Seq, time: Time, version: Version) -> Kept {
        Kept {
            seq,
            time,
            version,
            ready: OnceLock::new(),
        }
    }

    /// The version, for reads.
    pub(crate) fn version(&self) -> &Arc<Version> {
        self.ready.get_or_init(|| {
            let mut version = self.version.clone();
            version.load_bitmaps();
            Arc::new(version)
        })
    }

    /// Its trees and tables; its sets may not be loaded.
    pub(crate) fn picture(&self) -> &Version {
        &self.version
    }

    /// Bytes of its loaded sets.
    pub(crate) fn set_bytes(&self) -> usize {
        let trees = self.ready.get().map(|version| version.trees.values());
        let sets = trees.into_iter().flatten();
        sets.map(|tree| tree.bitmap().memory()).sum()
    }
}
