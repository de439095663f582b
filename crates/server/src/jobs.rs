//! Long operations: changes of indexes, repairs, compactions, checks, backups. Each is a job with
//! its progress, which outlives the request that began it.
//!
//! **Invariants.** At most [`RUNNING`] jobs run at the same time; of those that have ended, the
//! last [`ENDED`] are known.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use esker::Stop;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::problem::Problem;

/// The most jobs at the same time.
const RUNNING: usize = 8;

/// The jobs that have ended and are still known.
const ENDED: usize = 100;

/// What clients wait for when there are too many jobs, in seconds.
const RETRY_AFTER: u32 = 10;

/// What a job does, and on what.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Purpose {
    /// `index`, `maintenance`, `repair`, `compact`, `expire`, `check`, or `backup`.
    pub(crate) job: &'static str,
    /// The dataset, if it concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dataset: Option<String>,
}

/// Whether a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Running,
    Done,
    Failed,
    /// It was cancelled, and has ended.
    Cancelled,
}

/// A job, as its clients see it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Job {
    id: u64,
    #[serde(flatten)]
    pub(crate) purpose: Purpose,
    state: State,
    /// When it began, in milliseconds since 1970.
    began: u64,
    /// How long it has taken, in milliseconds.
    millis: u64,
    /// How much is done, of how much; of jobs that know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Done>,
    /// What it has done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    result: Option<Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    problem: Option<Problem>,
}

impl Job {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

/// How much is done, of how much.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
struct Done {
    done: u64,
    total: u64,
}

/// The reports of a job that runs.
#[derive(Default)]
struct Running {
    done: AtomicU64,
    total: AtomicU64,
    is_cancelled: AtomicBool,
}

/// What a job's work has: its progress goes here, and its end is known from here.
#[derive(Clone)]
pub(crate) struct Progress {
    running: Arc<Running>,
    stop: Stop,
}

impl Progress {
    /// Says how much is done, of how much; breaks if the job was cancelled.
    pub(crate) fn report(&self, done: u64, total: u64) -> ControlFlow<()> {
        self.running.done.store(done, Ordering::Relaxed);
        self.running.total.store(total, Ordering::Relaxed);
        if self.running.is_cancelled.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Ends the job's reads when it is cancelled.
    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }
}

struct Kept {
    purpose: Purpose,
    began: SystemTime,
    progress: Progress,
    /// Set at the end.
    end: Option<(State, u64, Result<Value, Problem>)>,
}

#[derive(Default)]
struct All {
    last: u64,
    by_id: BTreeMap<u64, Kept>,
}

/// The jobs of a server.
#[derive(Default)]
pub(crate) struct Jobs {
    all: Mutex<All>,
}

fn millis(since: SystemTime) -> u64 {
    let elapsed = since.elapsed().unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

impl Kept {
    fn job(&self, id: u64) -> Job {
        let running = &self.progress.running;
        let total = running.total.load(Ordering::Relaxed);
        let done = running.done.load(Ordering::Relaxed);
        let began = self.began.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (state, millis, result, problem) = match &self.end {
            None => (State::Running, millis(self.began), None, None),
            Some((state, millis, Ok(result))) => (*state, *millis, Some(result.clone()), None),
            Some((state, millis, Err(problem))) => (*state, *millis, None, Some(problem.clone())),
        };
        Job {
            id,
            purpose: self.purpose.clone(),
            state,
            began: u64::try_from(began.as_millis()).unwrap_or(u64::MAX),
            millis,
            progress: (total > 0).then_some(Done { done, total }),
            result,
            problem,
        }
    }
}

impl Jobs {
    /// Begins a job on a thread of its own.
    ///
    /// # Errors
    /// 503 if too many are running.
    pub(crate) fn begin(
        self: &Arc<Self>,
        purpose: Purpose,
        work: impl FnOnce(&Progress) -> Result<Value, Problem> + Send + 'static,
    ) -> Result<Job, Problem> {
        let progress = Progress {
            running: Arc::new(Running::default()),
            stop: Stop::new(),
        };
        let (id, job) = {
            let mut all = self.all.lock();
            let running = all.by_id.values().filter(|kept| kept.end.is_none()).count();
            if running >= RUNNING {
                return Err(Problem::busy("too many jobs are running", RETRY_AFTER));
            }
            all.last += 1;
            let id = all.last;
            let kept = Kept {
                purpose,
                began: SystemTime::now(),
                progress: progress.clone(),
                end: None,
            };
            let job = kept.job(id);
            all.by_id.insert(id, kept);
            all.forget_old();
            (id, job)
        };
        let jobs = self.clone();
        let begun = std::thread::Builder::new()
            .name(format!("esker-job-{id}"))
            .spawn(move || {
                let worked = catch_unwind(AssertUnwindSafe(|| work(&progress)));
                let failed = |_| Err(Problem::internal("the job has failed"));
                jobs.end(id, worked.unwrap_or_else(failed));
            });
        if let Err(error) = begun {
            let problem = Problem::internal(format!("a thread cannot be started: {error}"));
            self.end(id, Err(problem.clone()));
            return Err(problem);
        }
        Ok(job)
    }

    fn end(&self, id: u64, result: Result<Value, Problem>) {
        let mut all = self.all.lock();
        let Some(kept) = all.by_id.get_mut(&id) else {
            return;
        };
        let is_cancelled = kept.progress.running.is_cancelled.load(Ordering::Relaxed);
        let state = match &result {
            Ok(result) if result["complete"] == false => State::Cancelled,
            Ok(_) => State::Done,
            Err(_) if is_cancelled => State::Cancelled,
            Err(_) => State::Failed,
        };
        kept.end = Some((state, millis(kept.began), result));
        all.forget_old();
    }

    /// A job.
    ///
    /// # Errors
    /// 404
    pub(crate) fn job(&self, id: u64) -> Result<Job, Problem> {
        let all = self.all.lock();
        let kept = all.by_id.get(&id).ok_or_else(|| no_job(id))?;
        Ok(kept.job(id))
    }

    /// All jobs, newest first.
    pub(crate) fn list(&self) -> Vec<Job> {
        let all = self.all.lock();
        let newest_first = all.by_id.iter().rev();
        newest_first.map(|(id, kept)| kept.job(*id)).collect()
    }

    /// Cancels a job: it ends soon.
    ///
    /// # Errors
    /// 404
    pub(crate) fn cancel(&self, id: u64) -> Result<Job, Problem> {
        let all = self.all.lock();
        let kept = all.by_id.get(&id).ok_or_else(|| no_job(id))?;
        if kept.end.is_none() {
            kept.cancel();
        }
        Ok(kept.job(id))
    }

    /// A dataset has another name: its jobs are seen by those who see it by that name.
    pub(crate) fn renamed(&self, from: &str, to: &str) {
        let mut all = self.all.lock();
        for kept in all.by_id.values_mut() {
            if kept.purpose.dataset.as_deref() == Some(from) {
                kept.purpose.dataset = Some(to.to_string());
            }
        }
    }

    /// Cancels all: the server ends.
    pub(crate) fn cancel_all(&self) {
        let all = self.all.lock();
        for kept in all.by_id.values().filter(|kept| kept.end.is_none()) {
            kept.cancel();
        }
    }
}

impl Kept {
    fn cancel(&self) {
        let running = &self.progress.running;
        running.is_cancelled.store(true, Ordering::Relaxed);
        self.progress.stop.cancel();
    }
}

impl All {
    fn forget_old(&mut self) {
        let ended = self.by_id.iter().filter(|(_, kept)| kept.end.is_some());
        let ended: Vec<u64> = ended.map(|(id, _)| *id).collect();
        for id in ended.iter().take(ended.len().saturating_sub(ENDED)) {
            self.by_id.remove(id);
        }
    }
}

fn no_job(id: u64) -> Problem {
    Problem::not_found(format!("there is no job {id}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    fn purpose() -> Purpose {
        Purpose {
            job: "check",
            dataset: None,
        }
    }

    fn wait(jobs: &Jobs, id: u64) -> Job {
        let begin = Instant::now();
        loop {
            let job = jobs.job(id).unwrap();
            if job.state != State::Running {
                return job;
            }
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_job_reports_its_progress_and_its_end() {
        let jobs = Arc::new(Jobs::default());
        let (go, wait_for) = mpsc::channel::<()>();
        let job = jobs.begin(purpose(), move |progress| {
            let _ = progress.report(3, 10);
            wait_for.recv().unwrap();
            Ok(json!({"found": 1}))
        });
        let id = job.unwrap().id;
        let begin = Instant::now();
        while jobs.job(id).unwrap().progress.is_none() {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        assert_eq!(jobs.job(id).unwrap().state, State::Running);
        go.send(()).unwrap();
        let ended = wait(&jobs, id);
        assert_eq!(
            (ended.state, ended.result),
            (State::Done, Some(json!({"found": 1})))
        );
    }

    #[test]
    fn a_job_that_panics_has_failed() {
        let jobs = Arc::new(Jobs::default());
        let id = jobs.begin(purpose(), |_| panic!("as a test")).unwrap().id;
        assert_eq!(wait(&jobs, id).state, State::Failed);
    }

    #[test]
    fn a_cancelled_job_ends() {
        let jobs = Arc::new(Jobs::default());
        let job = jobs.begin(purpose(), |progress| {
            while progress.report(1, 2).is_continue() {
                std::thread::yield_now();
            }
            Err(Problem::internal("ended"))
        });
        let id = job.unwrap().id;
        jobs.cancel(id).unwrap();
        assert_eq!(wait(&jobs, id).state, State::Cancelled);
        assert!(jobs.cancel(id + 1).is_err());
    }

    #[test]
    fn jobs_are_bounded_and_old_ones_are_forgotten() {
        let jobs = Arc::new(Jobs::default());
        for _ in 0..ENDED + 20 {
            let id = jobs.begin(purpose(), |_| Ok(Value::Null)).unwrap().id;
            wait(&jobs, id);
        }
        assert_eq!(jobs.list().len(), ENDED);
        let waits = || {
            jobs.begin(purpose(), |progress| {
                while progress.report(0, 1).is_continue() {
                    std::thread::yield_now();
                }
                Ok(Value::Null)
            })
        };
        for _ in 0..RUNNING {
            waits().unwrap();
        }
        assert_eq!(waits().unwrap_err().status().as_u16(), 503);
        jobs.cancel_all();
    }
}
