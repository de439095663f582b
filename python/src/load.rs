//! Loads: of files as `esker load` reads them, and of whatever Python iterates over.
//!
//! A batch of an iterable is committed while the next one is made: one thread runs Python, another
//! one the store.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use esker::{Durability, Stop};
use esker_import::{BATCH_BYTES, BATCH_RECORDS, End, Import, Observer, sources};
use esker_store::Dataset;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator};

use crate::error::{Raise, exception, input, raised};
use crate::json::record_json;
use crate::wait::wait;

/// Writes of a load are synced at least as often, and at its end.
const SYNCED: Durability = Durability::Periodic(Duration::from_secs(1));

/// JSON of some records, one behind the other.
#[derive(Default)]
struct Part {
    json: Vec<u8>,
    ends: Vec<usize>,
}

impl Part {
    fn records(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        let places = begins.zip(self.ends.iter().copied());
        places.map(|(begin, end)| self.json.get(begin..end).unwrap_or_default())
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= BATCH_RECORDS || self.json.len() >= BATCH_BYTES
    }
}

/// Loads what an iterator returns; the number of records.
pub(crate) fn iterable(
    py: Python<'_>,
    dataset: &Arc<dyn Dataset>,
    records: &Bound<'_, PyAny>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<u64> {
    let mut records = records.try_iter()?;
    let (full, parts) = sync_channel::<Part>(1);
    let (written, results) = sync_channel::<Written>(1);
    let writer = dataset.clone();
    let thread = std::thread::Builder::new().name("esker-load".to_string());
    let thread = thread.spawn(move || write(&*writer, &parts, &written));
    thread.map_err(|error| exception(py, "IoError", &format!("cannot start a thread: {error}")))?;
    let mut load = Load {
        full,
        results: Mutex::new(results),
        in_flight: false,
        count: 0,
    };
    let read = load.read(py, &mut records, progress);
    // What was read before an exception is loaded, too, as with files.
    let loaded = load.finish(py, &**dataset);
    read?;
    let loaded = loaded?;
    if let Some(progress) = progress {
        progress.call1((loaded,))?;
    }
    Ok(loaded)
}

/// The thread that writes.
struct Load {
    full: SyncSender<Part>,
    results: Mutex<Receiver<Written>>,
    in_flight: bool,
    count: u64,
}

impl Load {
    /// Gives the writer what the iterator returns, until that ends or raises.
    fn read(
        &mut self,
        py: Python<'_>,
        records: &mut Bound<'_, PyIterator>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let mut part = Part::default();
        for record in records {
            let added = record.and_then(|record| record_json(&record, &mut part.json));
            if let Err(error) = added {
                part.json
                    .truncate(part.ends.last().copied().unwrap_or_default());
                self.send(py, part)?;
                return Err(error);
            }
            part.ends.push(part.json.len());
            if part.is_full() {
                self.send(py, std::mem::take(&mut part))?;
                py.check_signals()?;
                if let Some(progress) = progress {
                    progress.call1((self.count,))?;
                }
            }
        }
        self.send(py, part)
    }

    /// Gives a part to the writer, when the one before is committed.
    fn send(&mut self, py: Python<'_>, part: Part) -> PyResult<()> {
        self.take(py)?;
        self.in_flight = py.detach(|| self.full.send(part)).is_ok();
        Ok(())
    }

    fn take(&mut self, py: Python<'_>) -> PyResult<()> {
        if std::mem::take(&mut self.in_flight) {
            let result = py.detach(|| self.results.lock().recv());
            let written = result.map_err(|_| {
                let text = "a call of the store panicked; its message is on standard error";
                exception(py, "InternalError", text)
            })?;
            self.count += written.count;
            if let Some(error) = written.failed {
                return Err(raised(py, &error));
            }
        }
        Ok(())
    }

    /// Waits until all is written and on disk.
    fn finish(mut self, py: Python<'_>, dataset: &dyn Dataset) -> PyResult<u64> {
        let taken = self.take(py);
        let synced = py.detach(|| dataset.sync()).raise(py);
        taken.and(synced)?;
        Ok(self.count)
    }
}

/// What became of a part.
struct Written {
    count: u64,
    /// The records behind were not written.
    failed: Option<esker::Error>,
}

/// Commits each part as a batch, until the sender ends or a record or a commit fails.
fn write(dataset: &dyn Dataset, parts: &Receiver<Part>, written: &SyncSender<Written>) {
    for part in parts {
        let result = write_part(dataset, &part);
        let has_failed = result.failed.is_some();
        if written.send(result).is_err() || has_failed {
            break;
        }
    }
}

fn write_part(dataset: &dyn Dataset, part: &Part) -> Written {
    let mut batch = dataset.batch();
    batch.durability(SYNCED);
    let mut failed = None;
    for json in part.records() {
        if let Err(error) = batch.put_json(json) {
            // The records before it are written.
            failed = Some(error);
            break;
        }
    }
    let mut count = batch.len() as u64;
    if count > 0
        && let Err(error) = batch.commit()
    {
        count = 0;
        failed = Some(error);
    }
    Written { count, failed }
}

/// Passes the progress of an import to Python.
struct Watching {
    stop: Stop,
    progress: Option<Py<PyAny>>,
    failed: Option<PyErr>,
}

impl Observer for Watching {
    fn progress(&mut self, _bytes: u64, records: u64) {
        let Some(progress) = &self.progress else {
            return;
        };
        let called = Python::try_attach(|py| progress.call1(py, (records,)).map(drop));
        if let Some(Err(error)) = called {
            self.failed.get_or_insert(error);
            self.stop.cancel();
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.check().is_err()
    }
}

/// Loads a file as `esker load` does.
pub(crate) fn file<'py>(
    py: Python<'py>,
    dataset: &Arc<dyn Dataset>,
    path: PathBuf,
    progress: Option<&Bound<'py, PyAny>>,
    strict: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let found = sources(&[path], None).map_err(|error| input(py, error.to_string()))?;
    let (dataset, stop) = (dataset.clone(), Stop::new());
    let mut watching = Watching {
        stop: stop.clone(),
        progress: progress.map(|progress| progress.clone().unbind()),
        failed: None,
    };
    let (loaded, failed) = wait(py, &stop, move || {
        let report = Import::new(found)
            .strict(strict)
            .run(&*dataset, &mut watching);
        (report, watching.failed)
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    match loaded.end {
        End::Failed(esker_import::Error::Store(error)) => return Err(raised(py, &error)),
        End::Failed(error) => return Err(input(py, error.to_string())),
        End::Bad(reason) => return Err(input(py, reason)),
        _ => {}
    }
    let report = PyDict::new(py);
    report.set_item("records", loaded.records)?;
    report.set_item("resumed", loaded.resumed)?;
    report.set_item("replaced", loaded.replaced)?;
    report.set_item("rejected", loaded.rejected)?;
    let rejects = loaded
        .rejects
        .iter()
        .map(|(path, _)| path.display().to_string());
    report.set_item("rejects", rejects.collect::<Vec<_>>())?;
    Ok(report)
}

/// What a task's progress says: go on, unless the call was interrupted.
pub(crate) fn unless(stop: &Stop) -> ControlFlow<()> {
    match stop.check() {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}
