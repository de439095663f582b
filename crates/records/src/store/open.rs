//! The open store: the engine, the datasets in it, and the names that are being created, renamed or
//! dropped.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use esker_lsm::{Account, Durability, Group, Loan, TreeId};
use parking_lot::{Condvar, Mutex, RwLock};

use super::DatasetState;
use crate::catalog::{Layout, dataset_of};
use crate::error::{Error, Result};
use crate::index::IndexTypes;
use crate::telemetry::{self, Usage, UsageCounts};

/// An open store.
pub(crate) struct Store {
    pub(crate) group: Group,
    pub(crate) durability: Durability,
    /// True if background maintenance finishes interrupted changes and runs repairs when they are
    /// due.
    pub(crate) automatic_maintenance: bool,
    /// The number of operations on a dataset after which background maintenance considers another
    /// strategy for it.
    pub(crate) operations_per_choice: u64,
    /// The index types of other crates that the store was opened with.
    pub(crate) index_types: IndexTypes,
    /// By name, so that operations on all datasets run in the same order each time. Never held
    /// across I/O or a wait, because each new handle takes the lock.
    pub(crate) datasets: Mutex<BTreeMap<String, Arc<DatasetState>>>,
    pub(crate) names: ReservedNames,
    /// Held while the file `USAGE` is replaced.
    pub(crate) usage_file: Mutex<()>,
    /// Commits that look up the records they replace hold it shared. A commit that other writers
    /// have overtaken too often holds it exclusively.
    pub(crate) exclusive_commit: RwLock<()>,
}

impl Store {
    /// Borrows memory: an eighth of the budget for a query, a sixteenth for other work. If less
    /// than that is free, the loan is smaller, but at least the budget divided by
    /// [`LEAST_LOAN_DIVISOR`].
    pub(crate) fn borrow(&self, account: Account) -> Loan {
        let budget = self.group.options().memory_budget;
        let want = match account {
            Account::Queries => budget / 8,
            _ => budget / 16,
        };
        let least = budget / LEAST_LOAN_DIVISOR;
        self.group.budget().borrow(account, least, want)
    }
}

/// The memory budget divided by this is the smallest loan: a query or build gets it even if less
/// memory is free.
const LEAST_LOAN_DIVISOR: usize = 128;

/// The names of datasets that are being created, renamed or dropped: one operation at a time per
/// name.
#[derive(Default)]
pub(crate) struct ReservedNames {
    reserved: Mutex<BTreeSet<String>>,
    /// Signalled when a name is released.
    released: Condvar,
}

/// A reserved name: no other thread creates, renames or drops a dataset of this name until this is
/// dropped.
pub(crate) struct Reserved<'a> {
    names: &'a ReservedNames,
    name: &'a str,
}

impl ReservedNames {
    /// Waits until no other thread has reserved the name.
    pub(crate) fn reserve<'a>(&'a self, name: &'a str) -> Reserved<'a> {
        let mut reserved = self.reserved.lock();
        while !reserved.insert(name.to_string()) {
            self.released.wait(&mut reserved);
        }
        Reserved { names: self, name }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let was_reserved = self.names.reserved.lock().remove(self.name);
        debug_assert!(was_reserved, "a name is released once");
        self.names.released.notify_all();
    }
}

impl Store {
    /// The states of the present datasets, by name.
    pub(crate) fn dataset_states(&self) -> Vec<Arc<DatasetState>> {
        self.datasets.lock().values().cloned().collect()
    }

    /// Saves the usage counts if they changed ([`Store::save_usage`]).
    pub(crate) fn save_usage_if_changed(&self) {
        let datasets = self.dataset_states();
        // Not `any`: `take_written` must reset the flag of every dataset.
        let written = datasets
            .iter()
            .filter(|dataset| dataset.usage.take_written());
        if written.count() > 0 {
            self.save_usage();
        }
    }

    /// Makes the obsolete writes that queries found durable, in the datasets that this process has
    /// written to. A failure shows in their statistics.
    pub(crate) fn save_obsolete_notes(&self) {
        for dataset in self.dataset_states() {
            dataset.try_save_obsolete_notes(&self.group);
        }
    }

    /// Saves the usage counts of all datasets; a store opened for reading saves none. A failure
    /// loses statistics only, and is ignored.
    pub(crate) fn save_usage(&self) {
        if self.group.is_reader() {
            return;
        }
        let _file = self.usage_file.lock();
        let counts: BTreeMap<String, UsageCounts> = self
            .dataset_states()
            .into_iter()
            .map(|dataset| (dataset.name(), dataset.usage.read()))
            .collect();
        let _ = telemetry::save(self.group.options().fs.as_ref(), self.group.dir(), &counts);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.save_obsolete_notes();
        self.save_usage_if_changed();
    }
}

/// The datasets of a snapshot, by name. Datasets with a state in `states` keep it, under the name
/// that the snapshot has for them. The others get a new state, with the counts that `usage`
/// returns for their name.
///
/// # Errors
/// Damage if a definition does not fit the trees of its dataset.
pub(crate) fn datasets_in(
    snapshot: &esker_lsm::Snapshot,
    states: &BTreeMap<String, Arc<DatasetState>>,
    types: &IndexTypes,
    usage: impl Fn(&str) -> Usage,
) -> Result<BTreeMap<String, Arc<DatasetState>>> {
    // By data tree, because names change.
    let by_tree: HashMap<TreeId, &Arc<DatasetState>> =
        states.values().map(|state| (state.data, state)).collect();
    let mut datasets = BTreeMap::new();
    for tree in snapshot.version().trees.values() {
        // Other trees are derived from a data tree, or belong to an extension.
        let Some(name) = dataset_of(&tree.name) else {
            continue;
        };
        let state = match by_tree.get(&tree.id) {
            Some(state) => {
                state.rename(name);
                Arc::clone(state)
            }
            None => {
                let layout = Layout::new(name, snapshot.version(), types).ok_or_else(|| {
                    Error::damaged(format!(
                        "dataset {name}: its definition does not fit its trees"
                    ))
                })?;
                Arc::new(DatasetState::new(name, layout, usage(name)))
            }
        };
        datasets.insert(name.to_string(), state);
    }
    Ok(datasets)
}

/// Checks the name of a new dataset: 1 to 64 letters, digits, `-`, `_` and `.`, but not `.` and
/// `..`, which addresses cannot hold.
///
/// # Errors
/// [`Error::BadInput`] for any other name.
pub fn check_dataset_name(name: &str) -> Result<()> {
    Ok(esker_model::definition::check_dataset_name(name)?)
}
