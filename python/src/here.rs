//! What belongs to one process: after a fork, the child has the memory of a store and none of its
//! threads, so that it must neither use nor close it.

use pyo3::prelude::*;

use crate::error::exception;

/// A value that only the process that made it uses and drops.
pub(crate) struct Here<T: Send> {
    value: Option<T>,
    process: u32,
}

impl<T: Send> Here<T> {
    pub(crate) fn new(value: T) -> Here<T> {
        Here {
            value: Some(value),
            process: std::process::id(),
        }
    }

    /// The value; `ForkedError` in another process.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        match &self.value {
            Some(value) if self.process == std::process::id() => Ok(value),
            _ => Err(forked(py)),
        }
    }

    /// As [`Here::get`].
    pub(crate) fn get_mut(&mut self, py: Python<'_>) -> PyResult<&mut T> {
        match &mut self.value {
            Some(value) if self.process == std::process::id() => Ok(value),
            _ => Err(forked(py)),
        }
    }
}

fn forked(py: Python<'_>) -> PyErr {
    let text = "the store was opened before this process was forked: open it in this process, with mode=\"read\" while the other one writes";
    exception(py, "ForkedError", text)
}

impl<T: Send> Drop for Here<T> {
    fn drop(&mut self) {
        let mut value = self.value.take();
        if self.process != std::process::id() {
            // To close it would wait for threads that this process does not have.
            std::mem::forget(value);
            return;
        }
        // The last handle of a store waits for its threads: others may run meanwhile.
        let value = &mut value;
        let _ = Python::try_attach(|py| py.detach(|| drop(value.take())));
    }
}
