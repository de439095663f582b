//! Long-running work on a dataset, with progress reports.

use std::ops::ControlFlow;

use crate::error::Result;

type OnProgress<'a, P> = dyn FnMut(P) -> ControlFlow<()> + 'a;
type Work<'a, P, R> = dyn FnOnce(&mut OnProgress<'_, P>) -> Result<R> + 'a;

/// Long-running work: an index change, a change of strategy, a repair. It does nothing until
/// [`Task::run`] is called.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// use std::ops::ControlFlow;
/// use esker::{Database, DatasetDef, Index, KeyType, Options};
///
/// let db = Database::create_or_open(dir.path(), Options::default())?;
/// let events = db.create_dataset::<u64>("events", DatasetDef::new("id", KeyType::Int))?;
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
#[must_use = "nothing is done before `run`"]
pub struct Task<'a, P, R> {
    work: Box<Work<'a, P, R>>,
    progress: Box<OnProgress<'a, P>>,
}

impl<'a, P, R> Task<'a, P, R> {
    pub(crate) fn new(
        work: impl FnOnce(&mut OnProgress<'_, P>) -> Result<R> + 'a,
    ) -> Task<'a, P, R> {
        Task {
            work: Box::new(work),
            progress: Box::new(|_| ControlFlow::Continue(())),
        }
    }

    /// Calls `progress` from time to time, on the thread that runs the task. If `progress` breaks,
    /// the task ends soon, and its report says that it is not complete. `progress` may use the
    /// dataset, but not change its indexes or its strategy.
    pub fn on_progress(self, progress: impl FnMut(P) -> ControlFlow<()> + 'a) -> Task<'a, P, R> {
        Task {
            progress: Box::new(progress),
            ..self
        }
    }

    /// Does the work and returns its report.
    ///
    /// # Errors
    /// The errors of the call that created the task.
    pub fn run(mut self) -> Result<R> {
        (self.work)(&mut *self.progress)
    }
}
