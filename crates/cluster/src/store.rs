//! A keyspace with datasets.

use std::sync::Arc;

use esker_model::definition::{DatasetDef, Expiry, IndexKind, StoredDef, check_dataset_name};
use esker_model::schema::{Path, Type};
use parking_lot::Mutex;

use crate::catalog::{Catalogs, DatasetState, STATE};
use crate::cells::{Cells, TableKind};
use crate::clock::Checked;
use crate::counts::Counts;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::shared::{Options, Shared};
use crate::time::{CATALOG_AGE, CLOCK_BOUND};
use crate::verdict::Found;
use crate::writer::Writers;
use crate::{notes, removals, repair, split, useless};

/// The datasets of a keyspace. A program has one, and uses it from all its threads.
#[derive(Clone)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a keyspace; with `create`, prepares it for datasets.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn open(cells: Arc<dyn Cells>, create: bool, options: Options) -> Result<Store> {
        if create {
            cells.create_table(STATE, TableKind::Swapped)?;
        }
        let clocks = options.clocks.clone();
        let clock = Arc::new(Checked::new(cells.clone(), clocks.clone()));
        let shared = Shared {
            catalogs: Catalogs::new(cells.clone(), clocks.clone()),
            writers: Writers::new(cells.clone(), clocks, clock.clone()),
            clock,
            counts: Counts::default(),
            useless: Found::default(),
            at_end: useless::remove_all,
            bound: Mutex::default(),
            cells,
            options,
        };
        if let Err(error) = shared.catalogs.now() {
            return Err(match error {
                Error::Busy(_) => Error::NoStore(
                    "the keyspace holds no datasets; `esker create` and `esker load` make one"
                        .to_string(),
                ),
                other => other,
            });
        }
        Ok(Store {
            shared: Arc::new(shared),
        })
    }

    /// The names of the datasets, ascending.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn dataset_names(&self) -> Result<Vec<String>> {
        let catalog = self.shared.catalogs.now()?;
        Ok(catalog.datasets.keys().cloned().collect())
    }

    /// The dataset of a name.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`]; [`Error::Unavailable`].
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        let bound = self.shared.bound_now(name)?;
        Ok(Dataset::new(self.shared.clone(), &bound))
    }

    /// Creates a dataset. Indexes are of the kind `composite`, or `none` to declare a field.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::BadInput`] for a definition that is not valid;
    /// [`Error::Unsupported`] for one that a cluster does not have.
    pub fn create_dataset(&self, name: &str, def: &DatasetDef) -> Result<Dataset> {
        self.shared.check_writes()?;
        check_dataset_name(name)?;
        def.validate()?;
        check_supported(def)?;
        let stored = StoredDef::new(def);
        // The dataset is announced only when its tables exist.
        let catalog = self.shared.catalogs.now()?;
        if catalog.datasets.contains_key(name) {
            return Err(Error::Exists(format!("dataset `{name}` exists already")));
        }
        self.drop_left_over();
        let cells = &self.shared.cells;
        let state = self.shared.catalogs.change(|catalog| {
            let now = cells.now()?;
            catalog.reserve(&stored, now)
        })?;
        cells.create_table(&state.data(), TableKind::Versions)?;
        cells.create_table(&state.heads(), TableKind::Swapped)?;
        for (attribute, index) in &state.indexes {
            cells.create_table(&state.index_table(*attribute, index), TableKind::Entries)?;
        }
        let added = self
            .shared
            .catalogs
            .change(|catalog| catalog.add(name, state.clone()));
        if let Err(error) = added {
            // Another process was first, or it is not known: the tables of a dataset that is in the
            // catalog stay.
            if matches!(error, Error::Exists(_)) {
                self.drop_tables(&state)?;
            }
            return Err(error);
        }
        self.dataset(name)
    }

    /// Gives a dataset another name. It takes some twenty seconds: until then writers may know
    /// either name by what they read before, and what they write then counts as written before.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`]; [`Error::Exists`]; [`Error::Unavailable`].
    pub fn rename_dataset(&self, name: &str, to: &str) -> Result<()> {
        self.shared.check_writes()?;
        check_dataset_name(to)?;
        self.shared.catalogs.change(|catalog| {
            if catalog.datasets.contains_key(to) {
                return Err(Error::Exists(format!("dataset `{to}` exists already")));
            }
            let state = catalog.dataset(name)?.clone();
            catalog.datasets.remove(name);
            catalog.datasets.insert(to.to_string(), state);
            Ok(())
        })?;
        // Until then writers may know either name by what they read before.
        self.shared.clocks().sleep(CATALOG_AGE + 2 * CLOCK_BOUND);
        Ok(())
    }

    /// Drops a dataset with its records and indexes.
    ///
    /// # Errors
    /// [`Error::UnknownDataset`]; [`Error::Unavailable`].
    pub fn drop_dataset(&self, name: &str) -> Result<()> {
        self.shared.check_writes()?;
        let cells = &self.shared.cells;
        let state = self.shared.catalogs.change(|catalog| {
            let now = cells.now()?;
            catalog.remove(name, now)
        })?;
        self.drop_tables(&state)?;
        self.drop_left_over();
        Ok(())
    }

    /// Drops the tables of datasets whose creation or drop has crashed. What fails is left for the
    /// next creation or drop.
    fn drop_left_over(&self) {
        let cells = &self.shared.cells;
        let given_up = self.shared.catalogs.change(|catalog| {
            let now = cells.now()?;
            Ok(catalog.give_up(now))
        });
        for state in given_up.unwrap_or_default() {
            if self.drop_tables(&state).is_err() {
                return;
            }
        }
    }

    fn drop_tables(&self, state: &DatasetState) -> Result<()> {
        let cells = &self.shared.cells;
        for (attribute, index) in &state.indexes {
            cells.drop_table(&state.index_table(*attribute, index))?;
        }
        cells.drop_table(&state.heads())?;
        cells.drop_table(&state.data())?;
        self.drop_rows(state)?;
        self.shared.catalogs.change(|catalog| {
            catalog.forget(state);
            Ok(())
        })
    }

    /// Removes what else is stored of a dataset.
    fn drop_rows(&self, state: &DatasetState) -> Result<()> {
        let mut partitions = vec![
            repair::partition(state),
            removals::partition(state),
            notes::partition(state),
        ];
        for (attribute, index) in &state.indexes {
            let table = state.index_table(*attribute, index);
            partitions.extend(split::partitions(&table, &index.layout));
        }
        self.shared.clear(&partitions)
    }
}

/// The nearest definition that a cluster takes, with a sentence for each difference.
pub fn adapted(def: &DatasetDef) -> (DatasetDef, Vec<String>) {
    let (mut made, mut notes) = (def.clone(), Vec::new());
    made.indexes.retain_mut(|index| match index.kind {
        _ if index.ty.is_compound() => {
            notes.push(format!(
                "`{}` has no index there: a cluster has no compound indexes",
                index.path
            ));
            false
        }
        IndexKind::Composite | IndexKind::None => true,
        IndexKind::Spatial(_) => {
            notes.push(format!(
                "`{}` has no index there: areas are found by reading all records",
                index.path
            ));
            index.kind = IndexKind::None;
            true
        }
        IndexKind::SpaceTime(_) | IndexKind::External(_) => {
            let (path, kind) = (&index.path, index.kind);
            notes.push(format!(
                "`{path}` has no index there: a cluster has no kind `{kind}`"
            ));
            false
        }
        kind => {
            let path = &index.path;
            notes.push(format!(
                "the index of `{path}` is of kind `composite` there, not `{kind}`"
            ));
            index.kind = IndexKind::Composite;
            true
        }
    });
    for index in &mut made.indexes {
        if std::mem::take(&mut index.unique) {
            notes.push(format!(
                "values of `{}` are not kept unique there",
                index.path
            ));
        }
    }
    if std::mem::take(&mut made.auto_key) {
        notes.push("new records must bring their keys there".to_string());
    }
    if def.expiry.is_some() {
        made.expiry = Expiry::default();
        notes.push("records do not expire there".to_string());
    }
    if std::mem::take(&mut made.old_records) {
        notes.push("there is no change feed there".to_string());
    }
    (made, notes)
}

/// Writers of a cluster do not see each other's records in time to keep values unique.
pub(crate) fn check_not_unique(path: &Path, is_unique: bool) -> Result<()> {
    if is_unique {
        return Err(Error::Unsupported(format!(
            "`{path}`: values are not kept unique on a cluster: make the field the key, and insert records"
        )));
    }
    Ok(())
}

/// An index of a cluster is a table by the value of one field.
pub(crate) fn check_not_compound(path: &Path, ty: Option<Type>) -> Result<()> {
    if ty.is_some_and(Type::is_compound) {
        return Err(Error::Unsupported(format!(
            "`{path}`: a cluster has no compound indexes: index the field with the fewest records of a value"
        )));
    }
    Ok(())
}

/// Refuses what datasets of a cluster do not have, by name.
fn check_supported(def: &DatasetDef) -> Result<()> {
    let refuse = |what: &str, instead: &str| {
        Err(Error::Unsupported(format!(
            "a dataset of a cluster has no {what}: {instead}"
        )))
    };
    for index in &def.indexes {
        if !matches!(index.kind, IndexKind::Composite | IndexKind::None) {
            return Err(Error::Unsupported(format!(
                "`{}`: an index of kind `{}` does not exist on a cluster: use `composite`",
                index.path, index.kind
            )));
        }
        check_not_unique(&index.path, index.unique)?;
        check_not_compound(&index.path, Some(index.ty))?;
    }
    if def.auto_key {
        return refuse("keys that it makes", "give each record a key");
    }
    if def.expiry.is_some() {
        return refuse("records that expire", "delete them by a condition");
    }
    if def.old_records {
        return refuse("change feed", "read versions of a record");
    }
    Ok(())
}
