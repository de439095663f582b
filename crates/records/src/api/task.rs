//! Long-running work on a dataset, with progress reports.

use std::ops::ControlFlow;

use crate::error::Result;

/// Called with the progress from time to time; returns whether to continue.
pub type OnProgress<'p, P> = dyn FnMut(P) -> ControlFlow<()> + 'p;
type Work<P, R> = dyn FnOnce(&mut OnProgress<'_, P>) -> Result<R> + Send;

/// Long-running work: an index change, a migration of the strategy, a repair. It does nothing until
/// [`Task::run`] is called, owns what it works on, and may be sent to another thread.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// use std::ops::ControlFlow;
/// use esker::{Database, DatasetDef, Index, Options};
///
/// let db = Database::create_or_open(dir.path(), Options::default())?;
/// let events = db.create_dataset::<u64>("events", DatasetDef::key("id"))?;
/// events.put_json(br#"{"id": 1, "page": "/a"}"#)?;
///
/// let change = events.add_index("page", Index::recent());
/// let change = change.on_progress(|at| {
///     println!("{} of {}", at.done, at.total);
///     ControlFlow::Continue(())
/// });
/// assert!(change.run()?.complete);
/// # Ok(())
/// # }
/// ```
#[must_use = "a task does nothing until `run`"]
pub struct Task<P, R> {
    work: Box<Work<P, R>>,
}

impl<P, R> Task<P, R> {
    /// Creates a task from a closure, for stores of other crates. `work` calls its argument, the
    /// progress callback, from time to time, and returns an incomplete report soon after the
    /// callback returns `Break`.
    pub fn new(
        work: impl FnOnce(&mut OnProgress<'_, P>) -> Result<R> + Send + 'static,
    ) -> Task<P, R> {
        let work = Box::new(work);
        Task { work }
    }

    /// Calls `progress` from time to time, on the thread that runs the task. If it returns `Break`,
    /// the task ends soon, and its report says that it is not complete. `progress` may use the
    /// dataset, but not change its indexes or its strategy.
    pub fn on_progress<'p>(
        self,
        progress: impl FnMut(P) -> ControlFlow<()> + 'p,
    ) -> ObservedTask<'p, P, R> {
        ObservedTask {
            task: self,
            progress: Box::new(progress),
        }
    }

    /// Does the work and returns its report.
    ///
    /// # Errors
    /// The errors of the call that created the task.
    pub fn run(self) -> Result<R> {
        (self.work)(&mut |_| ControlFlow::Continue(()))
    }
}

/// A task that reports its progress ([`Task::on_progress`]).
#[must_use = "a task does nothing until `run`"]
pub struct ObservedTask<'p, P, R> {
    task: Task<P, R>,
    progress: Box<OnProgress<'p, P>>,
}

impl<P, R> ObservedTask<'_, P, R> {
    /// Does the work and returns its report.
    ///
    /// # Errors
    /// The errors of the call that created the task.
    pub fn run(mut self) -> Result<R> {
        (self.task.work)(&mut *self.progress)
    }
}
