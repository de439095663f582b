//! The records that are read: of a dataset as it is now, or at a moment.

use std::sync::Arc;

use esker::{Result, Stop};
use esker_store::{Dataset, Records};
use pyo3::prelude::*;

use crate::error::Raise;
use crate::wait::wait;

/// Records, shared by the objects that read them.
#[derive(Clone)]
pub(crate) enum Source {
    /// As they are at each call.
    Now(Arc<dyn Dataset>),
    /// At a moment.
    At(Arc<dyn Records>),
}

impl Source {
    pub(crate) fn records(&self) -> &dyn Records {
        match self {
            Source::Now(dataset) => dataset.records(),
            Source::At(records) => &**records,
        }
    }

    /// The dataset; `None` for records at a moment.
    pub(crate) fn dataset(&self) -> Option<&Arc<dyn Dataset>> {
        match self {
            Source::Now(dataset) => Some(dataset),
            Source::At(_) => None,
        }
    }

    /// A read that may take long: it ends with an exception when Ctrl-C is pressed.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        py: Python<'_>,
        stop: &Stop,
        read: impl FnOnce(&dyn Records) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (source, token) = (self.clone(), stop.clone());
        let run = move || match source.records().with_stop(&token) {
            Some(records) => read(&*records),
            None => read(source.records()),
        };
        wait(py, stop, run)?.raise(py)
    }
}
