//! Errors of the store as exceptions. The classes are in `esker/_errors.py`, one for each kind of
//! error; the texts are the command line's.

use esker::{Error, ErrorKind};
use esker_store::served_at;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::key_value::key_to_python;

/// The name of the class for a kind of error.
fn class_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NoStore => "NoStoreError",
        ErrorKind::UnknownDataset => "UnknownDatasetError",
        ErrorKind::UnknownSnapshot => "UnknownSnapshotError",
        ErrorKind::Exists => "ExistsError",
        ErrorKind::BadInput => "InputError",
        ErrorKind::Overflow => "NumberError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::Damaged => "DamagedError",
        ErrorKind::Locked => "LockedError",
        ErrorKind::Closed => "ClosedError",
        ErrorKind::ReadOnly => "ReadOnlyError",
        ErrorKind::Busy => "BusyError",
        ErrorKind::Conflict => "ConflictError",
        ErrorKind::NotUnique => "NotUniqueError",
        ErrorKind::DiskFull => "DiskFullError",
        ErrorKind::Poisoned => "PoisonedError",
        ErrorKind::Internal => "InternalError",
        ErrorKind::Cancelled => "CancelledError",
        ErrorKind::NoOldRecords => "NoOldRecordsError",
        ErrorKind::PositionExpired => "PositionExpiredError",
        ErrorKind::OtherHistory => "OtherHistoryError",
        ErrorKind::Unavailable => "UnavailableError",
        ErrorKind::Io => "IoError",
        _ => "Error",
    }
}

/// An exception of a class of `esker/_errors.py`.
pub(crate) fn exception(py: Python<'_>, class: &str, text: &str) -> PyErr {
    let made = py
        .import("esker._errors")
        .and_then(|module| module.getattr(class)?.call1((text,)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(_) => PyRuntimeError::new_err(text.to_string()),
    }
}

/// The exception for input that does not fit.
pub(crate) fn input(py: Python<'_>, text: impl AsRef<str>) -> PyErr {
    exception(py, "InputError", text.as_ref())
}

/// The text of an error, with what to do about it.
fn text_of(error: &Error) -> String {
    match error {
        Error::Locked { folder } => match served_at(folder) {
            Some(address) => format!(
                "{error}: it is served at {address}, which stands where the folder stands, as in esker.open({address:?})"
            ),
            None => format!(
                "{error}: one process writes at a time, and others read beside it with esker.open(..., mode=\"read\")"
            ),
        },
        Error::NoStore { .. } => format!("{error}; mode=\"create\" creates one"),
        _ => error.to_string(),
    }
}

/// The exception for an error of the store.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let exception = exception(py, class_of(error.kind()), &text_of(error));
    let value = exception.value(py);
    // An exception without an attribute is better than another exception.
    let _ = match error {
        Error::Conflict { key: Some(key), .. } => {
            key_to_python(py, key).and_then(|key| value.setattr("key", key))
        }
        Error::NotUnique(found) => value
            .setattr("path", found.path.to_string())
            .and_then(|()| value.setattr("value", &found.value))
            .and_then(|()| value.setattr("key", key_to_python(py, &found.key)?))
            .and_then(|()| value.setattr("holder", key_to_python(py, &found.holder)?)),
        Error::PositionExpired { oldest } => value.setattr("oldest", oldest.to_string()),
        _ => Ok(()),
    };
    exception
}

/// Results of the store as results for Python.
pub(crate) trait Raise<T> {
    /// The value, or the exception for the error.
    fn raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: Into<Error>> Raise<T> for Result<T, E> {
    fn raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raised(py, &error.into()))
    }
}
