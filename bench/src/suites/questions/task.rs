//! What the suite's parts share: a child's task, the states of a store, and its rows.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::asked::{Answer, Operation, Question};
use crate::failure::Result;
use crate::measure::Row;
use crate::meter::Latency;
use crate::run::Job;
use crate::suites::session::row;
use crate::workload::Record;

/// The suite's name.
pub const SUITE: &str = "questions";

/// The experiment's name.
pub(super) const EXPERIMENT: &str = "questions";

/// Memory of Esker, and of SQLite's cache.
pub(super) const MEMORY: usize = 64 << 20;

/// What a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Task {
    /// The number of records.
    pub(super) len: usize,
    /// The Python of DuckDB.
    pub(super) python: PathBuf,
}

/// The states in which questions are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The records were loaded, and merged as far as the store does by itself.
    Fresh,
    /// Behind that, 30 % of the records were replaced.
    Updated,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Fresh => "fresh",
            State::Updated => "30 % updated",
        }
    }
}

/// What answers questions.
pub(super) trait Subject {
    /// Answers a question in the form of [`Answer`].
    fn ask(&mut self, question: &Question) -> Result<Answer>;

    /// Stores a record.
    fn put(&mut self, record: &Record<'_>) -> Result<()>;

    /// Ends the storing of records.
    fn settle(&mut self) -> Result<()>;
}

/// A row of an operation in a state.
pub(super) fn operation_row(
    job: &Job,
    operation: Operation,
    state: State,
    latency: &Latency,
    cpu: Duration,
) -> Row {
    let mut row = row(job, operation.name(), latency, cpu);
    row.parameters
        .insert("state".to_string(), state.name().into());
    row
}
