//! Changes of a dataset, in the order of their commits.

use std::time::{Duration, Instant};

use esker::{Change as StoredChange, ChangeKind, ChangesFrom, Position, Record};
use esker_store::ChangeFeed;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};

use crate::error::{Raise, input};
use crate::here::Here;
use crate::json::{Names, decoded};
use crate::key_value::key_to_python;

/// The interval between two looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Where a feed begins: `"now"`, `"oldest"`, the number of a write, or the text of a position.
pub(crate) fn from_python(begin: &Bound<'_, PyAny>) -> PyResult<ChangesFrom> {
    let py = begin.py();
    if begin.cast::<PyInt>().is_ok() {
        return Ok(ChangesFrom::Seq(begin.extract::<u64>()?));
    }
    let Ok(text) = begin.cast::<PyString>() else {
        return Err(input(
            py,
            "changes begin at \"now\", \"oldest\", the number of a write, or a position",
        ));
    };
    let text = text.to_cow()?;
    match &*text {
        "now" => Ok(ChangesFrom::Now),
        "oldest" => Ok(ChangesFrom::Oldest),
        text => match text.parse::<Position>() {
            Ok(position) => Ok(ChangesFrom::Position(position)),
            Err(why) => Err(input(py, why)),
        },
    }
}

/// A committed change.
#[pyclass(frozen, module = "esker")]
pub(crate) struct Change(StoredChange);

fn record<'py>(py: Python<'py>, record: Option<&Record>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let read = |record: &Record| decoded(py, record.json(), &mut Names::default());
    record.map(read).transpose()
}

#[pymethods]
impl Change {
    /// `"put"`, `"deleted"` or `"expired"`.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.0.kind() {
            ChangeKind::Deleted => "deleted",
            ChangeKind::Expired => "expired",
            _ => "put",
        }
    }

    /// The key of the record.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        key_to_python(py, self.0.key())
    }

    /// The number of the write: larger is newer.
    #[getter]
    fn seq(&self) -> u64 {
        self.0.seq()
    }

    /// The position behind the change: changes from there continue with the next one.
    #[getter]
    fn position(&self) -> String {
        self.0.position().to_string()
    }

    /// The record as the change left it; `None` if it was deleted or had expired.
    #[getter]
    fn record<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        record(py, self.0.record())
    }

    /// The record before, with `old=True`.
    #[getter]
    fn old<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        record(py, self.0.old())
    }

    fn __repr__(&self) -> String {
        let (kind, key, seq) = (self.kind(), self.0.key(), self.0.seq());
        format!("<Change {kind} {key}, seq {seq}>")
    }
}

/// An iterator over the changes of a dataset. It waits for the next change; with a timeout it ends
/// when none has come for so many seconds.
#[pyclass(frozen, module = "esker")]
pub(crate) struct Changes {
    /// The lock is taken only without the interpreter.
    feed: Here<Mutex<Box<dyn ChangeFeed>>>,
    /// A change that a cancelled task has read: the next one. No Python code runs under this lock.
    put_back: Mutex<Option<StoredChange>>,
    timeout: Option<Duration>,
}

impl Changes {
    pub(crate) fn new(
        py: Python<'_>,
        feed: Box<dyn ChangeFeed>,
        timeout: Option<f64>,
    ) -> PyResult<Changes> {
        let timeout = timeout.map(Duration::try_from_secs_f64).transpose();
        Ok(Changes {
            feed: Here::new(Mutex::new(feed)),
            put_back: Mutex::new(None),
            timeout: timeout.map_err(|why| input(py, format!("timeout: {why}")))?,
        })
    }
}

#[pymethods]
impl Changes {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Change>> {
        self.wait(py, self.timeout.map(|timeout| timeout.as_secs_f64()))
    }

    fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("esker._asyncio")?
            .call_method1("next_change", (slf,))
    }

    /// The next change; `None` if none comes within so many seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Change>> {
        let most = timeout.map(Duration::try_from_secs_f64).transpose();
        let most = most.map_err(|why| input(py, format!("timeout: {why}")))?;
        let (feed, since) = (self.feed.get(py)?, Instant::now());
        if let Some(change) = self.put_back.lock().take() {
            return Ok(Some(Change(change)));
        }
        loop {
            let left = most.map_or(LOOK, |most| most.saturating_sub(since.elapsed()));
            let next = py.detach(|| feed.lock().wait(left.min(LOOK))).raise(py)?;
            if let Some(change) = next {
                return Ok(Some(Change(change)));
            }
            py.check_signals()?;
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    fn _put_back(&self, change: &Change) {
        *self.put_back.lock() = Some(change.0.clone());
    }

    /// With a consumer: everything up to the last change that was returned is done, so that the
    /// consumer continues behind it, in another process, too.
    fn done(&self, py: Python<'_>) -> PyResult<()> {
        let feed = self.feed.get(py)?;
        py.detach(|| feed.lock().done()).raise(py)
    }

    /// The position behind the last change that was returned.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<String> {
        let feed = self.feed.get(py)?;
        Ok(py.detach(|| feed.lock().position().to_string()))
    }

    /// The timeout in seconds.
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.timeout.map(|timeout| timeout.as_secs_f64())
    }
}
