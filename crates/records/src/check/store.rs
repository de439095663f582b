//! The check of all datasets of a store.

use std::collections::HashSet;
use std::sync::Arc;

use esker_lsm::{Stop, TreeId};

use super::dataset;
use super::report::CheckReport;
use crate::catalog::{Layout, dataset_of, is_of_extension};
use crate::error::{Error, Result};
use crate::store::{Handle, Store};

/// Checks a store: see [`crate::Database::check`].
pub(crate) fn check(store: &Arc<Store>, stop: Option<&Stop>) -> Result<CheckReport> {
    let engine = store.group.check_until(stop)?;
    let mut report = CheckReport {
        errors: engine.errors.iter().map(ToString::to_string).collect(),
        files: engine.tables,
        bytes: engine.bytes,
        entries: engine.entries,
        ..CheckReport::default()
    };
    report.errors.extend(ownerless_trees(store));
    for state in store.dataset_states() {
        let handle = Handle {
            stop: stop.cloned(),
            ..Handle::new(store.clone(), state, None)
        };
        match dataset::check(&handle, &mut report) {
            Err(error @ Error::Cancelled { .. }) => return Err(error),
            Err(error) => report
                .errors
                .push(format!("dataset {}: {error}", handle.name())),
            Ok(()) => {}
        }
    }
    report.errors.sort();
    report.errors.dedup();
    Ok(report)
}

/// Errors for trees that belong to no dataset's definition.
fn ownerless_trees(store: &Store) -> Vec<String> {
    let snapshot = store.group.snapshot();
    let version = snapshot.version();
    let mut known: HashSet<TreeId> = HashSet::new();
    for tree in version.trees.values() {
        // If the layout is unreadable, its trees are reported.
        let layout =
            dataset_of(&tree.name).and_then(|name| Layout::new(name, version, &store.index_types));
        known.extend(layout.iter().flat_map(Layout::trees));
    }
    let unknown = version
        .trees
        .values()
        .filter(|t| !known.contains(&t.id) && !is_of_extension(&t.name));
    unknown
        .map(|tree| format!("tree {}: it belongs to no dataset", tree.name))
        .collect()
}
