//! Trees by name, by the tree that they follow and by the set that they read: looked up for each
//! tree that a job writes, so never by a scan of all trees.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::tree::TreeVersion;
use crate::batch::TreeId;

/// Changes only with the trees of a version; shared by all versions between two changes. Each
/// change copies it, so its contents are shared.
#[derive(Clone, Default)]
pub(super) struct Names {
    by_name: HashMap<Arc<str>, TreeId>,
    followers: Lists,
    holders: Lists,
}

/// Trees by the name of another tree in their options, by number.
#[derive(Clone, Default)]
struct Lists(BTreeMap<Arc<str>, Arc<Vec<TreeId>>>);

impl Lists {
    fn of(&self, name: &str) -> &[TreeId] {
        self.0.get(name).map_or(&[], |list| list.as_slice())
    }

    fn add(&mut self, name: Option<&str>, id: TreeId) {
        if let Some(name) = name {
            let list = self.0.entry(Arc::from(name)).or_default();
            let list = Arc::make_mut(list);
            let at = list.partition_point(|other| *other < id);
            list.insert(at, id);
        }
    }

    fn remove(&mut self, name: Option<&str>, id: TreeId) {
        if let Some(name) = name
            && let Some(list) = self.0.get_mut(name)
        {
            Arc::make_mut(list).retain(|other| *other != id);
            if list.is_empty() {
                self.0.remove(name);
            }
        }
    }
}

impl Names {
    pub(super) fn id(&self, name: &str) -> Option<TreeId> {
        self.by_name.get(name).copied()
    }

    /// The trees that follow the tree called `name`, by number.
    pub(super) fn followers(&self, name: &str) -> &[TreeId] {
        self.followers.of(name)
    }

    /// The trees that read the set of the tree called `name`, by number.
    pub(super) fn holders(&self, name: &str) -> &[TreeId] {
        self.holders.of(name)
    }

    pub(super) fn add(&mut self, tree: &TreeVersion) {
        self.by_name.insert(Arc::from(tree.name.as_str()), tree.id);
        self.followers.add(tree.options.follows.as_deref(), tree.id);
        self.holders.add(set_of(tree), tree.id);
    }

    pub(super) fn remove(&mut self, tree: &TreeVersion) {
        // The name of a dropped tree is free, and another tree may have taken it in the same edit.
        if self.id(&tree.name) == Some(tree.id) {
            self.by_name.remove(tree.name.as_str());
        }
        self.followers
            .remove(tree.options.follows.as_deref(), tree.id);
        self.holders.remove(set_of(tree), tree.id);
    }
}

/// The name of the set that a tree reads.
fn set_of(tree: &TreeVersion) -> Option<&str> {
    tree.options.superseded.as_ref().map(|by| by.tree.as_str())
}
