//! What a dataset is made of: the names and configurations of its trees, and its definition resolved to them.

mod config;
mod layout;
mod names;

pub(crate) use config::{Role, TreeConfig, new_trees, widens};
pub(crate) use layout::{Attribute, Building, Late, Layout, Step};
pub use names::check_dataset_name;
pub(crate) use names::{
    data_tree, dataset_of, deleted_tree, index_tree, keys_tree, staging_tree, superseded_tree,
    widened_tree,
};
