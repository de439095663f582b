//! Writes of a dataset, and what else is done with one.

use std::path::PathBuf;
use std::sync::Arc;

use esker::schema::IndexText;
use esker::{Key, Path, Record, Stop, Update};
use esker_store::Dataset as StoredDataset;
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::batch::Batch;
use crate::changes::{Changes, from_python};
use crate::error::{Raise, input};
use crate::here::Here;
use crate::json::{Names, decoded, record_json};
use crate::key::key_of;
use crate::load::{file, iterable, unless};
use crate::records::Records;
use crate::report::report;
use crate::source::Source;
use crate::wait::wait;

/// A dataset: records with a primary key, and indexes on some of their fields.
#[pyclass(frozen, extends = Records, module = "esker")]
pub(crate) struct Dataset {
    dataset: Here<Arc<dyn StoredDataset>>,
    key_type: esker::KeyType,
}

impl Dataset {
    pub(crate) fn create(
        py: Python<'_>,
        dataset: Box<dyn StoredDataset>,
    ) -> PyResult<Bound<'_, Dataset>> {
        let dataset: Arc<dyn StoredDataset> = Arc::from(dataset);
        let records = Records::new(Source::Now(dataset.clone()));
        let key_type = dataset.def().key_type;
        let dataset = Dataset {
            dataset: Here::new(dataset),
            key_type,
        };
        Bound::new(py, PyClassInitializer::from(records).add_subclass(dataset))
    }

    /// A write of one record.
    fn write(
        &self,
        py: Python<'_>,
        write: impl FnOnce(&mut dyn esker_store::Batch) -> esker::Result<()> + Send,
    ) -> PyResult<()> {
        let dataset = self.dataset.get(py)?;
        let commit = || {
            let mut batch = dataset.batch();
            write(&mut *batch)?;
            batch.commit()
        };
        py.detach(commit).raise(py)
    }

    /// Runs a change of the dataset that may take long.
    fn task<T: Send + 'static>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&dyn StoredDataset, &Stop) -> esker::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (dataset, stop) = (self.dataset.get(py)?.clone(), Stop::new());
        let token = stop.clone();
        wait(py, &stop, move || run(&*dataset, &token))?.raise(py)
    }
}

/// What an update's function returned.
fn updated(py: Python<'_>, change: &Bound<'_, PyAny>, old: Option<&Record>) -> PyResult<Update> {
    let old = old.map(|old| decoded(py, old.json(), &mut Names::default()));
    let new = change.call1((old.transpose()?,))?;
    let words = py.import("esker._words")?;
    if new.is(&words.getattr("DELETE")?) {
        return Ok(Update::Delete);
    }
    if new.is(&words.getattr("KEEP")?) {
        return Ok(Update::Keep);
    }
    if new.is_none() {
        let what = "the function of update returned None: it returns the new record, or esker.KEEP or esker.DELETE";
        return Err(PyTypeError::new_err(what));
    }
    let mut json = Vec::new();
    record_json(&new, &mut json)?;
    Ok(Update::Put(json))
}

/// An index as `create` takes it: the path, and `KIND[:TYPE]`.
fn index_text(py: Python<'_>, path: &str, index: &str) -> PyResult<IndexText> {
    let text = format!("{path}:{index}");
    let read = text.parse::<IndexText>();
    let read = read.map_err(|why| input(py, format!("index `{text}`: {why}")))?;
    if read.is_open() && read.known_type().is_none() {
        let (path, kind) = (&read.path, read.kind);
        let what = format!("index `{text}`: give its type, as in {path}:{kind}:string");
        return Err(input(py, what));
    }
    Ok(read)
}

#[pymethods]
impl Dataset {
    /// Puts a record: a dict, or JSON as bytes or str. It replaces the record of its key.
    fn put(&self, record: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut json = Vec::new();
        record_json(record, &mut json)?;
        self.write(record.py(), |batch| batch.put_json(&json))
    }

    /// Puts a record whose key must not exist; `ExistsError` otherwise.
    fn insert(&self, record: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut json = Vec::new();
        record_json(record, &mut json)?;
        self.write(record.py(), |batch| batch.insert_json(&json))
    }

    /// Deletes the record of a key, if there is one.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let encoded = key_of(self.key_type, key)?;
        self.write(key.py(), |batch| batch.delete(&encoded))
    }

    fn __delitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if !slf.as_super().contains(key)? {
            return Err(PyKeyError::new_err(key.clone().unbind()));
        }
        slf.get().delete(key)
    }

    /// Changes a record as one step: `change` gets the record (`None` without one) and returns the
    /// new one, `esker.KEEP` or `esker.DELETE`. It is called again if the record was changed
    /// meanwhile. Returns the record before.
    fn update<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        change: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let encoded: Key = key_of(self.key_type, key)?;
        let dataset = self.dataset.get(py)?;
        let change = change.clone().unbind();
        let mut failed = None;
        let mut call = |old: Option<&Record>| {
            let made = Python::attach(|py| updated(py, change.bind(py), old));
            made.map_err(|error| {
                failed = Some(error);
                esker::Error::Cancelled { deadline: false }
            })
        };
        let result = py.detach(|| dataset.update(&encoded, &mut call));
        if let Some(error) = failed {
            return Err(error);
        }
        let record = result.raise(py)?;
        let read = |record: Record| decoded(py, record.json(), &mut Names::default());
        record.map(read).transpose()
    }

    /// Writes that are applied together: `with dataset.batch() as batch: batch.put(...)`.
    fn batch(&self, py: Python<'_>) -> PyResult<Batch> {
        Ok(Batch::new(self.dataset.get(py)?, self.key_type))
    }

    /// Loads records: of a file as `esker load` reads it, given by its path, or of anything that
    /// returns dicts or JSON when it is iterated over. `progress` is called with the number of
    /// records so far.
    #[pyo3(signature = (source, *, progress=None, strict=false))]
    fn load<'py>(
        &self,
        source: &Bound<'py, PyAny>,
        progress: Option<&Bound<'py, PyAny>>,
        strict: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let py = source.py();
        let dataset = self.dataset.get(py)?;
        if source.cast::<PyString>().is_ok() || source.hasattr("__fspath__")? {
            return file(py, dataset, source.extract::<PathBuf>()?, progress, strict);
        }
        let source = py
            .import("esker._frames")?
            .call_method1("records_of", (source,))?;
        let count = iterable(py, dataset, &source, progress)?;
        let report = PyDict::new(py);
        report.set_item("records", count)?;
        Ok(report)
    }

    /// The records as they are now, for several reads of one moment.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Records> {
        let dataset = self.dataset.get(py)?;
        Ok(Records::at(py.detach(|| dataset.snapshot()).raise(py)?))
    }

    /// Makes all earlier writes durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let dataset = self.dataset.get(py)?;
        py.detach(|| dataset.sync()).raise(py)
    }

    /// Adds an index to the dataset while it is in use: `add_index("user.name", "recent:string")`.
    fn add_index(&self, py: Python<'_>, path: &str, index: &str) -> PyResult<()> {
        let index = index_text(py, path, index)?;
        let change = move |dataset: &dyn StoredDataset, stop: &Stop| {
            let task = dataset.add_index(index.path.clone(), index.to_index())?;
            task.on_progress(|_| unless(stop)).run()
        };
        self.task(py, change).map(drop)
    }

    /// Drops an index.
    fn drop_index(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let path = path.parse::<Path>().raise(py)?;
        self.task(py, move |dataset, _| dataset.drop_index(&path))
            .map(drop)
    }

    /// Rebuilds an index from the records.
    fn rebuild_index(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let path = path.parse::<Path>().raise(py)?;
        let change = move |dataset: &dyn StoredDataset, stop: &Stop| {
            dataset
                .rebuild_index(path)?
                .on_progress(|_| unless(stop))
                .run()
        };
        self.task(py, change).map(drop)
    }

    /// The changes from `begin` on, in the order of their commits; each with the record before it,
    /// with `old=True`, of a dataset that keeps old records. Without a timeout the iterator waits
    /// for ever.
    #[pyo3(signature = (begin=None, *, old=false, timeout=None))]
    fn changes(
        &self,
        py: Python<'_>,
        begin: Option<&Bound<'_, PyAny>>,
        old: bool,
        timeout: Option<f64>,
    ) -> PyResult<Changes> {
        let begin = begin.map_or(Ok(esker::ChangesFrom::Now), from_python)?;
        let dataset = self.dataset.get(py)?;
        let feed = py.detach(|| dataset.changes(begin, old)).raise(py)?;
        Changes::new(py, feed, timeout)
    }

    /// The changes for a named consumer: the store keeps them, up to `keep` bytes, until `done()`
    /// was called behind them.
    #[pyo3(signature = (consumer, begin=None, *, keep=1 << 30, old=false, timeout=None))]
    fn consume(
        &self,
        py: Python<'_>,
        consumer: &str,
        begin: Option<&Bound<'_, PyAny>>,
        keep: u64,
        old: bool,
        timeout: Option<f64>,
    ) -> PyResult<Changes> {
        let begin = begin.map(from_python).transpose()?;
        let dataset = self.dataset.get(py)?;
        let feed = py
            .detach(|| dataset.consume(consumer, begin, keep, old))
            .raise(py)?;
        Changes::new(py, feed, timeout)
    }

    /// Forgets a consumer; `False` if there is none of this name.
    fn release(&self, py: Python<'_>, consumer: &str) -> PyResult<bool> {
        let dataset = self.dataset.get(py)?;
        py.detach(|| dataset.release_changes(consumer)).raise(py)
    }

    /// The state of the dataset as a dict.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let dataset = self.dataset.get(py)?;
        report(py, &py.detach(|| dataset.stats()).raise(py)?)
    }

    /// Advice which index type fits each indexed field, by what was measured so far.
    fn advise<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        report(py, &self.task(py, |dataset, _| dataset.advise(None))?)
    }

    /// Deletes the records that have expired, and returns how many.
    fn expire_now(&self, py: Python<'_>) -> PyResult<u64> {
        self.task(py, |dataset, _| dataset.expire_now())
    }
}
