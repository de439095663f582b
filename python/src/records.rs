//! Reads of a dataset, as it is now or at a moment.

use std::ops::Bound as Side;
use std::sync::Arc;

use esker::{Key, KeyType, Order, Request, Stop};
use esker_store::Records as StoredRecords;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::definition::definition_dict;
use crate::error::{Raise, input};
use crate::here::Here;
use crate::json::{Names, decoded};
use crate::key::key_of;
use crate::query::Query;
use crate::rows::{Keys, Rows};
use crate::source::Source;

/// The records of a dataset at a moment: of a named snapshot, or of `Dataset.snapshot()`.
#[pyclass(frozen, subclass, module = "esker")]
pub(crate) struct Records {
    source: Here<Source>,
    key_type: KeyType,
}

impl Records {
    pub(crate) fn new(source: Source) -> Records {
        let key_type = source.records().def().key_type;
        Records {
            source: Here::new(source),
            key_type,
        }
    }

    /// Records at a moment.
    pub(crate) fn at(records: Box<dyn StoredRecords>) -> Records {
        Records::new(Source::At(Arc::from(records)))
    }

    pub(crate) fn key(&self, key: &Bound<'_, PyAny>) -> PyResult<Key> {
        key_of(self.key_type, key)
    }

    fn read(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<esker::Record>> {
        let (py, encoded) = (key.py(), self.key(key)?);
        let source = self.source.get(py)?;
        py.detach(|| source.records().get(&encoded)).raise(py)
    }
}

#[pymethods]
impl Records {
    /// The dataset's name.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.source.get(py)?.records().name())
    }

    /// The definition, in the texts with which `Database.create` makes such a dataset.
    #[getter]
    fn definition<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        definition_dict(py, &self.source.get(py)?.records().def())
    }

    /// The record of a key; `default` without one.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.read(key)? {
            Some(record) => decoded(key.py(), record.json(), &mut Names::default()).map(Some),
            None => Ok(default),
        }
    }

    /// The JSON of the record of a key; `None` without one.
    fn get_bytes<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let record = self.read(key)?;
        Ok(record.map(|record| PyBytes::new(key.py(), record.json())))
    }

    /// The records of keys, in their order; `None` for each key without one.
    fn get_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = keys.py();
        let keys = keys.try_iter()?.map(|key| self.key(&key?));
        let keys = keys.collect::<PyResult<Vec<Key>>>()?;
        let read = move |records: &dyn StoredRecords| records.get_many(&keys);
        let found = self.source.get(py)?.read(py, &Stop::new(), read)?;
        let (all, mut names) = (PyList::empty(py), Names::default());
        for record in found {
            match record {
                Some(record) => all.append(decoded(py, record.json(), &mut names)?)?,
                None => all.append(py.None())?,
            }
        }
        Ok(all)
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self.read(key)? {
            Some(record) => decoded(key.py(), record.json(), &mut Names::default()),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.read(key)?.is_some())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Keys> {
        self.keys(py)
    }

    /// An iterator over all keys, ascending.
    fn keys(&self, py: Python<'_>) -> PyResult<Keys> {
        let mut request = Request::default();
        request.order = Order::Key;
        Ok(Keys::of(self.source.get(py)?, request))
    }

    /// A query of the records that meet all conditions: texts as on the command line, and keywords.
    #[pyo3(signature = (*conditions, **fields))]
    fn find(
        &self,
        conditions: &Bound<'_, PyTuple>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Query> {
        Query::new(self.source.get(conditions.py())?, conditions, fields)
    }

    /// The number of records that meet all conditions.
    #[pyo3(signature = (*conditions, **fields))]
    fn count(
        &self,
        conditions: &Bound<'_, PyTuple>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        self.find(conditions, fields)?.count(conditions.py())
    }

    /// Aggregates of all records; `find(...).aggregate(...)` has those of some.
    #[pyo3(signature = (aggregates, *, by=None, order_by=None, limit=None))]
    fn aggregate<'py>(
        &self,
        py: Python<'py>,
        aggregates: &str,
        by: Option<&str>,
        order_by: Option<&str>,
        limit: Option<usize>,
    ) -> PyResult<Bound<'py, PyList>> {
        let all = Query::new(self.source.get(py)?, &PyTuple::empty(py), None)?;
        all.aggregate(py, aggregates, by, order_by, limit)
    }

    /// An iterator over the records by key, from `start` to `stop`, both included.
    #[pyo3(signature = (start=None, stop=None, *, reverse=false))]
    fn scan(
        &self,
        py: Python<'_>,
        start: Option<Bound<'_, PyAny>>,
        stop: Option<Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Rows> {
        let side = |key: Option<Bound<'_, PyAny>>| match key {
            Some(key) => Ok::<_, PyErr>(Side::Included(self.key(&key)?)),
            None => Ok(Side::Unbounded),
        };
        let range = (side(start)?, side(stop)?);
        if let (Side::Included(start), Side::Included(stop)) = &range
            && start > stop
        {
            return Err(input(py, "start is larger than stop"));
        }
        let begin = move |records: &dyn StoredRecords| records.scan(range, reverse);
        Ok(Rows::new(self.source.get(py)?, false, Box::new(begin)))
    }

    /// The last versions of a record, the newest first, of a dataset that keeps them.
    #[pyo3(signature = (key, limit=10))]
    fn versions<'py>(&self, key: &Bound<'py, PyAny>, limit: usize) -> PyResult<Bound<'py, PyList>> {
        let (py, key) = (key.py(), self.key(key)?);
        let read = move |records: &dyn StoredRecords| records.versions(&key, None, limit);
        let versions = self.source.get(py)?.read(py, &Stop::new(), read)?;
        let (all, mut names) = (PyList::empty(py), Names::default());
        for version in versions {
            all.append(decoded(py, version.json(), &mut names)?)?;
        }
        Ok(all)
    }

    fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import("esker._table")?
            .call_method1("dataset_text", (slf,))
    }
}
