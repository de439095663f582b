//! The store: the engine, the datasets, and what their handles share. Everything below the public interface gets it as a
//! [`Handle`] of one dataset, or as a [`View`] of one at a moment.

mod clustered;
mod expired;
mod handle;
mod kept_filter;
mod read_repair;
mod remarks;
mod state;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use esker_lsm::{Account, Durability, Group, Loan, TreeId};
use parking_lot::{Condvar, Mutex, RwLock};

pub(crate) use clustered::{Ahead, Item, Stubs, whole, whole_in_memory};
pub(crate) use expired::{Due, expiry_key, hides};
pub(crate) use handle::{Background, Handle, View};
pub(crate) use kept_filter::{Kept, KeptFilter, Name};
pub(crate) use remarks::Remarks;
pub(crate) use state::Current;

use crate::catalog::{Layout, dataset_of};
use crate::error::{Error, Result};
use crate::telemetry::{self, Usage, UsageCounts};

/// An open store.
pub(crate) struct Store {
    pub(crate) group: Group,
    pub(crate) durability: Durability,
    /// Whether changes and repairs are done in the background.
    pub(crate) background_maintenance: bool,
    pub(crate) choose_every: u64,
    /// Held for no I/O and no waiting: whoever wants a handle takes it.
    /// By name, so that whatever is done for all of them is done in the same order each time.
    pub(crate) datasets: Mutex<BTreeMap<String, Arc<Current>>>,
    pub(crate) names: Names,
    /// Held while `USAGE` is replaced.
    pub(crate) usage_file: Mutex<()>,
    /// Shared by the commits that look up what they replace; alone it has one that was overtaken too often.
    pub(crate) turns: RwLock<()>,
}

impl Store {
    /// Borrows memory for a query or a build: a sixteenth of the budget for each of two steps that are held at a time.
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

/// Queries and builds continue with such a part of the budget where no more is free.
const LEAST_LOAN: usize = 128;

/// The names of datasets that are created, renamed or dropped now: one at a time for each name.
#[derive(Default)]
pub(crate) struct Names {
    taken: Mutex<BTreeSet<String>>,
    given_back: Condvar,
}

/// A name that nobody else creates, renames or drops a dataset of, until this is dropped.
pub(crate) struct Reserved<'a> {
    pub(crate) names: &'a Names,
    name: &'a str,
}

impl Names {
    /// Waits for whoever has the name.
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
    pub(crate) fn currents(&self) -> Vec<Arc<Current>> {
        self.datasets.lock().values().cloned().collect()
    }

    /// Keeps what was counted, when something was written. A failure loses statistics only.
    pub(crate) fn keep_usage(&self) {
        let datasets = self.currents();
        // All are called: each notes that it is kept now.
        let written = datasets.iter().filter(|d| d.usage.take_written());
        if written.count() > 0 {
            self.replace_usage();
        }
    }

    /// Makes durable what queries found to be obsolete, where this handle writes.
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

/// The datasets of a snapshot, by name; those that are known already are taken over, with the names that they have in it.
pub(crate) fn found_datasets(
    snapshot: &esker_lsm::Snapshot,
    known: &BTreeMap<String, Arc<Current>>,
    usage: impl Fn(&str) -> Usage,
) -> Result<BTreeMap<String, Arc<Current>>> {
    // By their trees: names change.
    let known: HashMap<TreeId, &Arc<Current>> =
        known.values().map(|known| (known.data, known)).collect();
    let mut datasets = BTreeMap::new();
    for tree in snapshot.version().trees.values() {
        let Some(name) = dataset_of(&tree.name) else {
            continue;
        };
        let current = match known.get(&tree.id) {
            Some(known) => {
                known.is_renamed(name);
                Arc::clone(known)
            }
            None => {
                let layout = Layout::new(name, snapshot.version()).ok_or_else(|| {
                    Error::damaged(format!(
                        "dataset {name}: its definition does not fit its trees"
                    ))
                })?;
                Arc::new(Current::new(name, layout, usage(name)))
            }
        };
        datasets.insert(name.to_string(), current);
    }
    Ok(datasets)
}

/// Checks the name of a dataset: 1 to 64 letters, digits, `-`, `_` and `.`.
pub fn check_dataset_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
        return Err(Error::bad_input(format!(
            "dataset name `{name}`: 1 to 64 letters, digits, `-`, `_` and `.` are allowed"
        )));
    }
    Ok(())
}
