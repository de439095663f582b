//! The meaning of a dataset's definition in one version of the store: its attributes and trees
//! (`layout.rs`), and the names and configurations of its trees (`names.rs`). A layout does not
//! change; another version of the definition has another one.

mod layout;
mod names;

pub(crate) use layout::{Building, CompactionStep, Layout, UniqueIndex};
pub(crate) use names::{
    EXTENSION, Role, TreeConfig, data_tree, dataset_of, deleted_tree, expiry_tree, index_tree,
    is_of_extension, keys_tree, notes_tree, old_tree, renamed_trees, staging_tree, superseded_tree,
    widened_tree,
};
