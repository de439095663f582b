//! What the definition of a dataset comes to: its attributes and trees in one version of the store, the names and configurations
//! of its trees, and what its obsolete set is known to hold. Nothing here changes.

mod coverage;
mod layout;
mod names;

pub(crate) use coverage::{Complete, Coverage, Source};
pub use layout::Attribute;
pub(crate) use layout::{Building, Layout, Step};
pub(crate) use names::{
    EXTENSION, Role, TreeConfig, data_tree, dataset_of, deleted_tree, expiry_tree, index_tree,
    is_of_extension, keys_tree, notes_tree, old_tree, renamed_trees, staging_tree, superseded_tree,
    widened_tree,
};
