//! Trees by name, and by what they follow: looked up for each tree that a job writes, so never by going through all.

use std::collections::{BTreeMap, HashMap};

use super::TreeVersion;
use crate::batch::TreeId;

/// Changes with the trees of a version only; shared by all versions between two changes.
#[derive(Clone, Default)]
pub(super) struct Names {
    by_name: HashMap<String, TreeId>,
    followers: BTreeMap<String, Vec<TreeId>>,
}

impl Names {
    pub(super) fn id(&self, name: &str) -> Option<TreeId> {
        self.by_name.get(name).copied()
    }

    /// The trees that follow the tree called `name`, by number.
    pub(super) fn followers(&self, name: &str) -> &[TreeId] {
        self.followers.get(name).map_or(&[], Vec::as_slice)
    }

    pub(super) fn add(&mut self, tree: &TreeVersion) {
        self.by_name.insert(tree.name.clone(), tree.id);
        if let Some(lead) = &tree.options.follows {
            let followers = self.followers.entry(lead.clone()).or_default();
            let at = followers.partition_point(|id| *id < tree.id);
            followers.insert(at, tree.id);
        }
    }

    pub(super) fn remove(&mut self, tree: &TreeVersion) {
        // A tree that is dropped leaves its name free, which another may have taken in the same edit.
        if self.id(&tree.name) == Some(tree.id) {
            self.by_name.remove(&tree.name);
        }
        let lead = tree.options.follows.as_deref().unwrap_or_default();
        if let Some(followers) = self.followers.get_mut(lead) {
            followers.retain(|id| *id != tree.id);
            if followers.is_empty() {
                self.followers.remove(lead);
            }
        }
    }
}
