//! A store: its datasets, its snapshots, and what is done with it as a whole.

use std::path::PathBuf;
use std::sync::Arc;

use esker::schema::DefinitionDocument;
use esker::units::parse_duration;
use esker::{Durability, Options, Stop};
use esker_pubsub::PubSub;
use esker_store::{Access, Mode, Store, open_with};
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::dataset::Dataset;
use crate::definition::definition_of;
use crate::error::{Raise, input};
use crate::here::Here;
use crate::records::Records;
use crate::report::report;
use crate::wait::wait;

/// The store, until it is closed. The lock is taken only without the interpreter.
type Slot = Arc<RwLock<Option<Box<dyn Store>>>>;

/// A store: datasets by name.
#[pyclass(frozen, module = "esker")]
pub(crate) struct Database {
    store: Here<Slot>,
    address: String,
}

/// The names of modes.
fn mode_of(py: Python<'_>, mode: &str) -> PyResult<Mode> {
    match mode {
        "create" => Ok(Mode::Create),
        "write" => Ok(Mode::Write),
        "read" => Ok(Mode::Read),
        _ => Err(input(
            py,
            format!("mode `{mode}`: give \"create\", \"write\" or \"read\""),
        )),
    }
}

/// How durable writes are: `sync`, `os`, or a time.
fn durability_of(py: Python<'_>, text: &str) -> PyResult<Durability> {
    match text {
        "sync" => Ok(Durability::Sync),
        "os" => Ok(Durability::Os),
        _ => match parse_duration(text) {
            Ok(time) => Ok(Durability::Periodic(time)),
            Err(why) => Err(input(
                py,
                format!("durability `{text}`: {why}; or give sync or os"),
            )),
        },
    }
}

/// Opens a store: a folder, or the address of a server (`http://...`). With `mode="create"` a
/// folder becomes a store if it is none; `"write"` wants one, and `"read"` works beside a process
/// that writes.
///
/// `memory` is the store's memory in bytes, `durability` when writes are on disk: `"sync"` before
/// they return, a time such as `"1s"` at most so much later, or `"os"`. A server's token is in the
/// file `token_file`, or else in the environment (`ESKER_TOKEN`).
#[pyfunction]
#[pyo3(signature = (address, *, mode="create", memory=None, durability=None, token_file=None))]
pub(crate) fn open(
    py: Python<'_>,
    address: PathBuf,
    mode: &str,
    memory: Option<usize>,
    durability: Option<&str>,
    token_file: Option<PathBuf>,
) -> PyResult<Database> {
    let mode = mode_of(py, mode)?;
    let mut options = Options::new();
    if let Some(memory) = memory {
        options = options.memory_budget(memory);
    }
    if let Some(text) = durability {
        options = options.durability(durability_of(py, text)?);
    }
    let options = PubSub::register(options);
    if address.is_file() {
        let text = format!("{} is a file: a store is a folder", address.display());
        return Err(input(py, text));
    }
    let shown = address.display().to_string();
    let open = move || match token_file {
        None => esker_store::open(address, mode, options),
        Some(file) => {
            let access = Access::from_env()?.with_token_file(&file)?;
            open_with(address, mode, options, &access)
        }
    };
    let store = wait(py, &Stop::new(), open)?.raise(py)?;
    Ok(Database {
        store: Here::new(Arc::new(RwLock::new(Some(store)))),
        address: shown,
    })
}

impl Database {
    /// A short call.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&dyn Store) -> esker::Result<T> + Send,
    ) -> PyResult<T> {
        let slot = self.store.get(py)?;
        py.detach(|| on(slot, call)).raise(py)
    }

    /// A call that may take long. What has no way to be stopped goes on behind an exception.
    fn long<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&dyn Store) -> esker::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let slot = self.store.get(py)?.clone();
        wait(py, &Stop::new(), move || on(&slot, call))?.raise(py)
    }
}

fn on<T>(slot: &Slot, call: impl FnOnce(&dyn Store) -> esker::Result<T>) -> esker::Result<T> {
    match &*slot.read() {
        Some(store) => call(&**store),
        None => Err(esker::Error::Closed),
    }
}

#[pymethods]
impl Database {
    /// The path or the address.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// The names of the datasets, ascending.
    fn datasets(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.call(py, |store| store.dataset_names())
    }

    /// The dataset of a name.
    fn dataset<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, Dataset>> {
        Dataset::create(py, self.call(py, |store| store.dataset(name))?)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, Dataset>> {
        self.dataset(py, name)
    }

    fn __contains__(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        Ok(self.datasets(py)?.iter().any(|known| known == name))
    }

    /// Creates a dataset. `key` is `"FIELD:TYPE"` (`int` or `string`), several fields with commas
    /// between them, or `"auto"`; `indexes` has a text `"KIND:TYPE"` for each path. Types that are
    /// left out are those of most of the records in `sample`. The other options are those of `esker
    /// create`.
    #[pyo3(signature = (name, *, key, indexes=None, sample=None, cluster=None, maintenance=None, repair=None, merging=None, versions=None, ttl=None, expires=None, old_records=false))]
    #[allow(
        clippy::too_many_arguments,
        reason = "the keywords of a call in Python"
    )]
    fn create<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        key: String,
        indexes: Option<&Bound<'py, PyDict>>,
        sample: Option<&Bound<'py, PyAny>>,
        cluster: Option<String>,
        maintenance: Option<String>,
        repair: Option<String>,
        merging: Option<String>,
        versions: Option<u32>,
        ttl: Option<String>,
        expires: Option<String>,
        old_records: bool,
    ) -> PyResult<Bound<'py, Dataset>> {
        let mut texts = Vec::new();
        for (path, index) in indexes.into_iter().flat_map(|indexes| indexes.iter()) {
            let (path, index) = (path.extract::<String>()?, index.extract::<String>()?);
            texts.push(format!("{path}:{index}"));
        }
        let document = DefinitionDocument {
            key,
            indexes: texts,
            cluster,
            maintenance,
            repair,
            merging,
            versions,
            ttl,
            expires,
            old_records,
        };
        let def = definition_of(py, document, sample)?;
        Dataset::create(py, self.call(py, |store| store.create_dataset(name, def))?)
    }

    /// Drops a dataset with its records and indexes.
    fn drop(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.call(py, |store| store.drop_dataset(name))
    }

    /// Gives a dataset another name.
    fn rename(&self, py: Python<'_>, name: &str, to: &str) -> PyResult<()> {
        self.call(py, |store| store.rename_dataset(name, to))
    }

    /// Keeps the store as it is now under a name; returns the number of its last write.
    fn keep_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<u64> {
        self.call(py, |store| store.keep_snapshot(name))
    }

    /// The names of the kept snapshots.
    fn snapshots(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let kept = self.call(py, |store| store.snapshots())?;
        Ok(kept.into_iter().map(|kept| kept.name).collect())
    }

    /// Drops a kept snapshot.
    fn drop_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.call(py, |store| store.drop_snapshot(name))
    }

    /// The records of a dataset in a kept snapshot.
    fn at(&self, py: Python<'_>, snapshot: &str, dataset: &str) -> PyResult<Records> {
        Ok(Records::at(
            self.call(py, |store| store.dataset_at(snapshot, dataset))?,
        ))
    }

    /// Compacts a dataset, or all.
    #[pyo3(signature = (dataset=None))]
    fn compact(&self, py: Python<'_>, dataset: Option<String>) -> PyResult<()> {
        self.long(py, move |store| store.compact(dataset.as_deref()))
    }

    /// Reads and verifies everything that the store has on disk. The dict's `errors` has what is
    /// wrong.
    fn check<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        report(py, &self.long(py, |store| store.check())?)
    }

    /// Copies the store to a new folder, also while others write.
    fn backup(&self, py: Python<'_>, to: PathBuf) -> PyResult<()> {
        self.long(py, move |store| store.backup(&to))
    }

    /// The state of the store as a dict.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        report(py, &self.call(py, |store| store.stats())?)
    }

    /// Closes the store: everything written is durable then. Later calls raise `ClosedError`, also
    /// those of its datasets.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let slot = self.store.get(py)?;
        let close = || match slot.write().take() {
            Some(store) => store.close(),
            None => Ok(()),
        };
        py.detach(close).raise(py)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.close(py)?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        format!("<esker.Database {}>", self.address)
    }
}
