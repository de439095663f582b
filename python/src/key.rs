//! Primary keys: `int` or `str`, and a tuple where several fields are the key.

use esker::{Key, KeyType, Value};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyList, PyString, PyTuple};

use crate::error::{Raise, input};
use crate::json::value_json;

/// The key that a Python value stands for.
pub(crate) fn key_of(key_type: KeyType, value: &Bound<'_, PyAny>) -> PyResult<Key> {
    let py = value.py();
    match key_type {
        KeyType::Int => {
            let number = value
                .cast::<PyInt>()
                .ok()
                .filter(|_| !value.is_instance_of::<PyBool>());
            let number = number.and_then(|number| number.extract::<i128>().ok());
            let number = number.ok_or_else(|| unfit(value, "an int of 64 bits"))?;
            Key::new(key_type, &Value::Int(number)).raise(py)
        }
        KeyType::String => {
            let text = match value.cast::<PyString>() {
                Ok(text) => text.to_cow()?.into_owned(),
                Err(_) if value.is_instance(&py.import("uuid")?.getattr("UUID")?)? => {
                    value.str()?.to_cow()?.into_owned()
                }
                Err(_) => return Err(unfit(value, "a str")),
            };
            Key::new(key_type, &Value::String(text)).raise(py)
        }
        KeyType::Fields => {
            if value.cast::<PyTuple>().is_err() && value.cast::<PyList>().is_err() {
                return Err(unfit(value, "a tuple of the values of its fields"));
            }
            let mut json = Vec::new();
            value_json(value, &mut json)?;
            Key::parse(key_type, &String::from_utf8_lossy(&json)).raise(py)
        }
    }
}

fn unfit(value: &Bound<'_, PyAny>, wanted: &str) -> PyErr {
    let shown = value
        .repr()
        .map(|text| text.to_string())
        .unwrap_or_default();
    input(
        value.py(),
        format!("a key of this dataset is {wanted}, not {shown}"),
    )
}
