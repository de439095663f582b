//! An open store as everything below the public API knows it: the engine, what its datasets are, and what their handles
//! share. Nothing here knows the public types.

mod context;
mod key_filter;
mod read_repair;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lsm::{Account, Component, Durability, Group, Loan, Snapshot, TreeId};
use parking_lot::{Condvar, Mutex};

use crate::catalog::{Layout, dataset_of};
use crate::error::{Error, ErrorKind, Result};
use crate::telemetry::{self, Usage, UsageCounts};

pub(crate) use context::{Context, View};
pub(crate) use key_filter::{Kept, KeptFilter, Name};
pub(crate) use state::State;

pub(crate) struct Store {
    pub(crate) group: Group,
    pub(crate) durability: Durability,
    /// Whether changes and repairs are done that nobody asked for.
    pub(crate) upkeep: bool,
    pub(crate) choose_every: u64,
    /// Held for no I/O and no waiting: whoever wants a handle takes it.
    /// By name, so that whatever is done for all of them is done in the same order each time.
    datasets: Mutex<BTreeMap<String, Arc<State>>>,
    names: Names,
    /// Held while `USAGE` is replaced.
    usage_file: Mutex<()>,
}

/// Settings of a store beside the engine's.
pub(crate) struct Settings {
    pub(crate) durability: Durability,
    pub(crate) upkeep: bool,
    pub(crate) choose_every: u64,
}

impl Store {
    /// The store over an open group.
    pub(crate) fn over(group: Group, settings: &Settings) -> Result<Store> {
        let counted = telemetry::load(group.options().fs.as_ref(), group.dir());
        let usage = |name: &str| counted.get(name).map(Usage::new).unwrap_or_default();
        let datasets = found_datasets(&group.snapshot(), &BTreeMap::new(), usage)?;
        Ok(Store {
            group,
            durability: settings.durability,
            upkeep: settings.upkeep,
            choose_every: settings.choose_every,
            datasets: Mutex::new(datasets),
            names: Names::default(),
            usage_file: Mutex::default(),
        })
    }

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

/// Queries and builds go on with such a part of the budget where no more is free.
const LEAST_LOAN: usize = 128;

/// The names of datasets that are created or dropped now: one at a time for each name.
#[derive(Default)]
struct Names {
    taken: Mutex<BTreeSet<String>>,
    given_back: Condvar,
}

/// A name that nobody else creates or drops a dataset of, until this is dropped.
struct Reserved<'a> {
    names: &'a Names,
    name: &'a str,
}

impl Names {
    /// Waits for whoever has the name.
    fn reserve<'a>(&'a self, name: &'a str) -> Reserved<'a> {
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
    pub(crate) fn states(&self) -> Vec<Arc<State>> {
        self.datasets.lock().values().cloned().collect()
    }

    /// Their names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.datasets.lock().keys().cloned().collect()
    }

    /// What the handles of the dataset called `name` share.
    pub(crate) fn state(&self, name: &str) -> Result<Arc<State>> {
        let state = self.datasets.lock().get(name).cloned();
        state.ok_or_else(|| {
            Error::new(
                ErrorKind::UnknownDataset,
                format!("no dataset `{name}` here"),
            )
        })
    }

    /// Nobody else creates or drops a dataset of this name until the guard is dropped. Waits for whoever has it.
    pub(crate) fn reserve<'a>(&'a self, name: &'a str) -> impl Drop + 'a {
        self.names.reserve(name)
    }

    /// A dataset that was created: its trees are there.
    pub(crate) fn insert(&self, name: &str) -> Result<Arc<State>> {
        let layout = Layout::new(name, self.group.snapshot().version())
            .ok_or_else(|| Error::damaged(format!("dataset {name}: its trees were not created")))?;
        let state = Arc::new(State::new(name, layout, Usage::default()));
        let mut datasets = self.datasets.lock();
        datasets.insert(name.to_string(), state.clone());
        Ok(state)
    }

    /// A dataset whose trees are gone.
    pub(crate) fn remove(&self, name: &str) {
        self.datasets.lock().remove(name);
        self.replace_usage();
    }

    /// Of a reader: takes over what was acknowledged to writers since, datasets that were made and dropped included.
    pub(crate) fn refresh(&self) -> Result<()> {
        self.group.refresh()?;
        let snapshot = self.group.snapshot();
        let mut datasets = self.datasets.lock();
        let found = found_datasets(&snapshot, &datasets, |_| Usage::default())?;
        *datasets = found;
        Ok(())
    }

    /// Keeps what was counted, when something was written. A failure loses statistics only.
    pub(crate) fn keep_usage(&self) {
        let datasets = self.states();
        // All are asked: each notes that it is kept now.
        let written = datasets.iter().filter(|d| d.usage.take_written());
        if written.count() > 0 {
            self.replace_usage();
        }
    }

    /// Makes durable what queries found to be over, where this handle writes.
    pub(crate) fn keep_over(&self) {
        for state in self.states() {
            state.try_keep_over(&self.group);
        }
    }

    fn replace_usage(&self) {
        if self.group.is_reader() {
            return;
        }
        let _replacing = self.usage_file.lock();
        let counts: BTreeMap<String, UsageCounts> = self
            .states()
            .into_iter()
            .map(|state| (state.name.clone(), state.usage.read()))
            .collect();
        let _ = telemetry::keep(self.group.options().fs.as_ref(), self.group.dir(), &counts);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.keep_over();
        self.keep_usage();
    }
}

/// The datasets of a snapshot, by name; those that are known already are taken over.
pub(crate) fn found_datasets(
    snapshot: &Snapshot,
    known: &BTreeMap<String, Arc<State>>,
    usage: impl Fn(&str) -> Usage,
) -> Result<BTreeMap<String, Arc<State>>> {
    let mut datasets = BTreeMap::new();
    for tree in snapshot.version().trees.values() {
        let Some(name) = dataset_of(&tree.name) else {
            continue;
        };
        let known = known.get(name).filter(|known| known.data == tree.id);
        let state = match known {
            Some(known) => known.clone(),
            None => {
                let layout = Layout::new(name, snapshot.version()).ok_or_else(|| {
                    Error::damaged(format!(
                        "dataset {name}: its definition does not fit its trees"
                    ))
                })?;
                Arc::new(State::new(name, layout, usage(name)))
            }
        };
        datasets.insert(name.to_string(), state);
    }
    Ok(datasets)
}

/// About how many records a dataset has.
pub(crate) fn records(snapshot: &Snapshot, data: TreeId) -> u64 {
    let components = snapshot.components(data);
    let count = components.iter().map(|component| match component {
        Component::Memtable(memtable) => memtable.len() as u64,
        Component::Run(run) => {
            let tables = run.tables.iter().map(|table| table.meta());
            tables
                .map(|meta| meta.entries - meta.deletes.min(meta.entries))
                .sum()
        }
    });
    count.sum()
}
