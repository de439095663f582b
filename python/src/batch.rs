//! Writes that are applied together.

use std::sync::Arc;

use esker::KeyType;
use esker_store::{Batch as StoredBatch, Dataset};
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::error::Raise;
use crate::here::Here;
use crate::json::record_json;
use crate::key::key_of;

/// Writes of a dataset that are applied together or not at all: at the end of its `with` block, and
/// not if the block ends with an exception.
#[pyclass(frozen, module = "esker")]
pub(crate) struct Batch {
    /// `None` after the commit. The lock is taken only without the interpreter.
    batch: Here<Mutex<Option<Box<dyn StoredBatch>>>>,
    key_type: KeyType,
}

impl Batch {
    pub(crate) fn new(dataset: &Arc<dyn Dataset>, key_type: KeyType) -> Batch {
        Batch {
            batch: Here::new(Mutex::new(Some(dataset.batch()))),
            key_type,
        }
    }

    fn change<T: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut (dyn StoredBatch + 'static)) -> esker::Result<T> + Send,
    ) -> PyResult<T> {
        let batch = self.batch.get(py)?;
        let changed = py.detach(|| {
            let mut batch = batch.lock();
            batch.as_deref_mut().map(change)
        });
        match changed {
            Some(changed) => changed.raise(py),
            None => Err(PyRuntimeError::new_err(
                "the batch was committed or discarded",
            )),
        }
    }
}

#[pymethods]
impl Batch {
    /// Puts a record: a dict, or JSON.
    fn put(&self, record: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut json = Vec::new();
        record_json(record, &mut json)?;
        self.change(record.py(), |batch| batch.put_json(&json))
    }

    /// Puts a record whose key must not exist at the commit.
    fn insert(&self, record: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut json = Vec::new();
        record_json(record, &mut json)?;
        self.change(record.py(), |batch| batch.insert_json(&json))
    }

    /// Deletes the record of a key, if there is one.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let encoded = key_of(self.key_type, key)?;
        self.change(key.py(), |batch| batch.delete(&encoded))
    }

    /// Applies the writes now.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, |batch| batch.commit())?;
        self.discard(py)
    }

    /// Drops the writes.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        let batch = self.batch.get(py)?;
        py.detach(|| drop(batch.lock().take()));
        Ok(())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let batch = self.batch.get(py)?;
        Ok(py.detach(|| batch.lock().as_ref().map_or(0, |batch| batch.len())))
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let batch = self.batch.get(py)?;
        let is_open = py.detach(|| batch.lock().is_some());
        match (kind.is_none(), is_open) {
            (true, true) => self.commit(py)?,
            (false, true) => self.discard(py)?,
            (_, false) => {}
        }
        Ok(false)
    }
}
