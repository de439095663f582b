//! Reports of the store as dicts, by way of their JSON.

use pyo3::prelude::*;
use serde::Serialize;

use crate::error::exception;
use crate::json::{Names, decoded};

/// A report as Python has it.
pub(crate) fn report<'py>(py: Python<'py>, report: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let json = serde_json::to_vec(report)
        .map_err(|error| exception(py, "InternalError", &error.to_string()))?;
    decoded(py, &json, &mut Names::default())
}

/// How a query was, or would be, answered: `str()` is the text that `esker find --explain` prints.
#[pyclass(frozen, module = "esker")]
pub(crate) struct Explain(esker::Explain);

impl Explain {
    pub(crate) fn new(explain: esker::Explain) -> Explain {
        Explain(explain)
    }
}

#[pymethods]
impl Explain {
    /// The plan, the steps and their cost as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        report(py, &self.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}
