//! The names of a dataset's trees.
//!
//! A dataset `d` has a tree `d/data` (primary key -> stored record), and one tree `d/index/N` for
//! each attribute N with a stand-alone index: `d/index/N.1` after the first change of its kind, and
//! so on. While an index is built, `d/staging` gathers its facts. Beside them `d/keys` is the primary-key
//! index (keys alone, under the sequence numbers of their records), where the maintenance strategy uses
//! one; `d/superseded` is the bitmap tree of the obsolete writes; and under deleted-key
//! maintenance `d/deleted/N` are the keys written since index N began. Under eager maintenance
//! `d/widened/N` are the values of attribute N that records had before they were replaced, for its range filter.

use crate::error::{Error, Result};

const DATA: &str = "/data";

/// The name of a dataset's data tree.
pub(crate) fn data_tree(dataset: &str) -> String {
    format!("{dataset}{DATA}")
}

/// The name of the tree of attribute `id` that is its `number`th, from 0.
pub(crate) fn index_tree(dataset: &str, id: u32, number: u32) -> String {
    match number {
        0 => format!("{dataset}/index/{id}"),
        _ => format!("{dataset}/index/{id}.{number}"),
    }
}

/// The dataset that a data tree belongs to; `None` for other trees.
pub(crate) fn dataset_of(tree: &str) -> Option<&str> {
    tree.strip_suffix(DATA)
}

/// The name of the tree that gathers the facts of an index that is being built.
pub(crate) fn staging_tree(dataset: &str) -> String {
    format!("{dataset}/staging")
}

/// The name of a dataset's primary-key index.
pub(crate) fn keys_tree(dataset: &str) -> String {
    format!("{dataset}/keys")
}

/// The name of the tree of the writes of a dataset that are over.
pub(crate) fn superseded_tree(dataset: &str) -> String {
    format!("{dataset}/superseded")
}

/// The name of the tree of the keys that were written since the index of attribute `id` began.
pub(crate) fn deleted_tree(dataset: &str, id: u32) -> String {
    format!("{dataset}/deleted/{id}")
}

/// The name of the tree of the values of attribute `id` that writes replaced.
pub(crate) fn widened_tree(dataset: &str, id: u32) -> String {
    format!("{dataset}/widened/{id}")
}

/// Tells whether a dataset can have this name: 1 to 64 letters, digits, `-`, `_` and `.`.
pub fn check_dataset_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
        return Err(Error::bad_input(format!(
            "dataset name `{name}`: 1 to 64 letters, digits, `-`, `_` and `.` are allowed"
        )));
    }
    Ok(())
}
