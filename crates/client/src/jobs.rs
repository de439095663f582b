//! Long operations: jobs of the server, which a client waits for.

use std::ops::ControlFlow;
use std::time::Duration;

use esker::{Error, KeyType, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::Client;
use crate::problem::Problem;

/// The first pause before a job is looked at again, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// Whether a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum JobState {
    /// It runs.
    Running,
    /// It has ended.
    Done,
    /// It failed.
    Failed,
    /// It was cancelled, and has ended.
    Cancelled,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Done {
    done: u64,
    total: u64,
}

/// A job of the server.
#[derive(Debug, Clone, Deserialize)]
pub struct Job {
    id: u64,
    state: JobState,
    progress: Option<Done>,
    result: Option<Value>,
    problem: Option<Problem>,
}

impl Job {
    /// Whether it runs.
    pub fn state(&self) -> JobState {
        self.state
    }

    /// What it has done, if it has ended well.
    pub fn result(&self) -> Option<&Value> {
        self.result.as_ref()
    }
}

impl Client {
    /// Begins a job and waits for its end. `progress` gets how much is done of how much, and can
    /// stop it; then the result is `None` unless it had ended before.
    ///
    /// # Errors
    /// That of the job; as [`Client::get`].
    pub fn run_job(
        &self,
        path: &str,
        document: &impl Serialize,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Option<Value>> {
        self.job_of(None, path, document, progress)
    }

    /// As [`Client::run_job`], where errors may name keys of this type.
    pub(crate) fn job_of(
        &self,
        key_type: Option<KeyType>,
        path: &str,
        document: &impl Serialize,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Option<Value>> {
        let mut job: Job = self.post(path, document)?;
        let at = format!("/v1/jobs/{}", job.id);
        let (mut pause, longest) = PAUSES;
        let mut is_stopped = false;
        loop {
            match job.state {
                JobState::Running => {}
                JobState::Done => return Ok(Some(job.result.unwrap_or_default())),
                JobState::Cancelled if is_stopped => return Ok(job.result),
                JobState::Cancelled => return Err(Error::Cancelled { deadline: false }),
                JobState::Failed => {
                    return Err(job.problem.unwrap_or_default().error(key_type));
                }
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(longest);
            job = self.get(&at)?;
            if let Some(Done { done, total }) = job.progress
                && !is_stopped
                && progress(done, total).is_break()
            {
                is_stopped = true;
                job = self.post(&format!("{at}/cancel"), &json!({}))?;
            }
        }
    }
}
