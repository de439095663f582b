//! Who supplies the options of trees.

use super::tree::TreeOptions;
use crate::error::Result;

/// Supplies the options of each tree, when a group is opened and when a tree is created or
/// configured.
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
