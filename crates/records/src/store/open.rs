//! The open store: the engine, and the datasets in it.

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
    /// Whether background maintenance finishes interrupted changes and runs repairs.
    pub(crate) background_maintenance: bool,
    pub(crate) choose_every: u64,
    /// The index types of other crates that the store was opened with.
    pub(crate) index_types: IndexTypes,
    /// By name, so that operations on all datasets run in the same order each time. Never held
    /// across I/O or a wait, because each new handle takes the lock.
    pub(crate) datasets: Mutex<BTreeMap<String, Arc<DatasetState>>>,
    pub(crate) names: Names,
    /// Serialises the replacements of `USAGE`.
    pub(crate) usage_file: Mutex<()>,
    /// Commits that look up the records they replace hold it shared. A commit that was overtaken
    /// too often holds it alone.
    pub(crate) turns: RwLock<()>,
}

impl Store {
    /// Borrows memory: an eighth of the budget for a query, a sixteenth for each of the two steps
    /// that it holds; a sixteenth for other work.
    pub(crate) fn borrow(&self, account: Account) -> Loan {
        let budget = self.group.options().memory_budget;
        let want = match account {
            Account::Queries => budget / 8,
            _ => budget / 16,
        };
        let least = budget / LEAST_LOAN;
        self.group.budget().borrow(account, least, want)
    }
}

/// The divisor of the smallest loan: a query or build proceeds with this part of the budget if no
/// more is free.
const LEAST_LOAN: usize = 128;

/// The names of datasets that are being created, renamed or dropped: one operation at a time per
/// name.
#[derive(Default)]
pub(crate) struct Names {
    taken: Mutex<BTreeSet<String>>,
    given_back: Condvar,
}

/// A reserved name: no other thread creates, renames or drops a dataset of this name until this is
/// dropped.
pub(crate) struct Reserved<'a> {
    pub(crate) names: &'a Names,
    name: &'a str,
}

impl Names {
    /// Waits until no other thread has reserved the name.
    pub(crate) fn reserve<'a>(&'a self, name: &'a str) -> Reserved<'a> {
        let mut taken = self.taken.lock();
        while !taken.insert(name.to_string()) {
            self.given_back.wait(&mut taken);
        }
        Reserved { names: self, name }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.names.taken.lock().remove(self.name);
        self.names.given_back.notify_all();
    }
}

impl Store {
    /// The datasets as of now, by name.
    pub(crate) fn currents(&self) -> Vec<Arc<DatasetState>> {
        self.datasets.lock().values().cloned().collect()
    }

    /// Saves the usage counts if they changed. A failure loses statistics only.
    pub(crate) fn keep_usage(&self) {
        let datasets = self.currents();
        // Not `any`: `take_written` must reset the flag of every dataset.
        let written = datasets.iter().filter(|d| d.usage.take_written());
        if written.count() > 0 {
            self.replace_usage();
        }
    }

    /// Makes the obsolete writes that queries found durable, if this handle writes.
    pub(crate) fn keep_obsolete(&self) {
        for current in self.currents() {
            current.try_keep_obsolete(&self.group);
        }
    }

    pub(crate) fn replace_usage(&self) {
        if self.group.is_reader() {
            return;
        }
        let _replacing = self.usage_file.lock();
        let counts: BTreeMap<String, UsageCounts> = self
            .currents()
            .into_iter()
            .map(|current| (current.name(), current.usage.read()))
            .collect();
        let _ = telemetry::keep(self.group.options().fs.as_ref(), self.group.dir(), &counts);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.keep_obsolete();
        self.keep_usage();
    }
}

/// The datasets of a snapshot, by name. Known datasets keep their state and get the name that the
/// snapshot has for them.
pub(crate) fn found_datasets(
    snapshot: &esker_lsm::Snapshot,
    known: &BTreeMap<String, Arc<DatasetState>>,
    types: &IndexTypes,
    usage: impl Fn(&str) -> Usage,
) -> Result<BTreeMap<String, Arc<DatasetState>>> {
    // By data tree, because names change.
    let known: HashMap<TreeId, &Arc<DatasetState>> =
        known.values().map(|known| (known.data, known)).collect();
    let mut datasets = BTreeMap::new();
    for tree in snapshot.version().trees.values() {
        let Some(name) = dataset_of(&tree.name) else {
            continue;
        };
        let current = match known.get(&tree.id) {
            Some(known) => {
                known.rename(name);
                Arc::clone(known)
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
        datasets.insert(name.to_string(), current);
    }
    Ok(datasets)
}

/// Checks the name of a dataset: 1 to 64 letters, digits, `-`, `_` and `.`.
pub fn check_dataset_name(name: &str) -> Result<()> {
    Ok(esker_model::definition::check_dataset_name(name)?)
}
