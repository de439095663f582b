//! Primary keys as Python values.

use esker::{Key, KeyType, Value};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

/// A key as a Python value: `int`, `str`, or a tuple where several fields are the key.
pub(crate) fn key_to_python<'py>(py: Python<'py>, key: &Key) -> PyResult<Bound<'py, PyAny>> {
    match (key.key_type(), key.value()) {
        (KeyType::Int, Value::Int(number)) => Ok(number.into_pyobject(py)?.into_any()),
        (KeyType::String, Value::String(text)) => Ok(PyString::new(py, &text).into_any()),
        _ => {
            let loads = py.import("json")?.getattr("loads")?;
            let fields = loads.call1((key.to_string(),))?;
            match fields.cast::<PyList>() {
                Ok(list) => Ok(list.to_tuple().into_any()),
                Err(_) => Ok(fields),
            }
        }
    }
}
