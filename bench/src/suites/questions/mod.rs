//! Questions that people ask of a million tweets: counts by value, the first ten of an order, groups,
//! two conditions at the same time. Esker beside SQLite with the same indexes (over extracted columns)
//! and DuckDB, which reads the records' NDJSON anew for each question. Answers are compared.

mod asked;
mod claims;
mod duckdb;
mod esker;
mod records;
pub mod sheets;
mod sqlite;
mod task;

use std::path::PathBuf;

use crate::failure::{Failure, Result};
use crate::measure::Results;
use crate::meter::{self, Latency, process_cpu};
use crate::only::Only;
use crate::run::{Job, Runner};
use asked::{ANSWER, OPERATIONS};
pub use task::SUITE;
use task::{EXPERIMENT, State, Subject, Task, operation_row};

/// What is measured.
const SUBJECTS: [&str; 5] = [
    "esker composite mutable-bitmap",
    "esker recent mutable-bitmap",
    "esker composite deferred",
    "sqlite",
    "duckdb",
];

/// How the suite is run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Size of everything: at 1, a million records
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    pub scale: f64,

    /// Only these subjects, separated by commas; a part of a name is enough
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,

    /// Folder for the results, and for the data while it runs
    #[arg(long, default_value = "out", value_name = "DIR")]
    pub out: PathBuf,

    /// How often everything is measured, subjects taking turns; figures are medians
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub repeat: u32,

    /// Seed of the records and of the questions
    #[arg(long, default_value_t = 7, value_name = "N")]
    pub seed: u64,

    /// A Python that has the module `duckdb`; without one DuckDB is left out
    #[arg(long, default_value = "python3", value_name = "PATH")]
    pub duckdb: PathBuf,
}

/// Runs the suite; returns what could not be measured.
pub fn run(options: &Options) -> Result<Vec<String>> {
    let names = SUBJECTS.map(str::to_string);
    let only = Only::new(&options.only, &[&names])?;
    let mut runner = Runner::new(&options.out)?;
    crate::settings::common(&mut runner)?;
    runner.setting("seed", options.seed)?;
    runner.setting("scale", options.scale)?;
    let repeats = format!("{}, figures are medians", options.repeat);
    runner.setting("repeats", repeats)?;
    let version = duckdb::version(&options.duckdb);
    runner.setting("DuckDB", version.as_deref().unwrap_or("not installed"))?;
    let task = Task {
        len: ((1e6 * options.scale) as usize).max(1000),
        python: options.duckdb.clone(),
    };
    for repeat in 0..options.repeat {
        for name in names.iter().filter(|name| only.has(name)) {
            if name == "duckdb" && version.is_none() {
                continue;
            }
            runner.run(&Job {
                suite: SUITE.to_string(),
                experiment: EXPERIMENT.to_string(),
                subject: name.clone(),
                repeat,
                seed: options.seed,
                parameters: serde_json::to_value(&task)?,
                scratch: PathBuf::new(),
            })?;
        }
    }
    let rows = Results::read(&options.out)?.medians();
    runner.failures.extend(claims::differing(&rows));
    let claims = claims::all(&rows);
    for claim in &claims {
        runner.claim(claim)?;
    }
    super::table::print_claims(&claims);
    Ok(runner.failures)
}

/// Does the share of a subject.
pub fn child(job: &Job) -> Result<()> {
    let task: Task = job.parameters()?;
    match job.subject.split_once(' ') {
        Some(("esker", how)) => {
            ask_states(job, &task, &mut esker::Esker::create(&job.scratch, how)?)
        }
        None if job.subject == "sqlite" => {
            ask_states(job, &task, &mut sqlite::Sqlite::create(&job.scratch)?)
        }
        None if job.subject == "duckdb" => duckdb::child(job, &task),
        _ => Err(Failure::new(format!(
            "there is no subject `{}`",
            job.subject
        ))),
    }
}

/// Stores the records and asks all questions, then with new versions of a part of them.
fn ask_states(job: &Job, task: &Task, subject: &mut dyn Subject) -> Result<()> {
    records::first(job.seed, task.len, &mut |record| subject.put(record))?;
    subject.settle()?;
    ask_all(job, task, State::Fresh, subject)?;
    records::updates(job.seed, task.len, &mut |record| subject.put(record))?;
    subject.settle()?;
    ask_all(job, task, State::Updated, subject)
}

fn ask_all(job: &Job, task: &Task, state: State, subject: &mut dyn Subject) -> Result<()> {
    for operation in OPERATIONS {
        let questions = operation.questions(job.seed, task.len);
        meter::forget_peak()?;
        let before = meter::memory()?.0;
        let (mut latency, cpu) = (Latency::new()?, process_cpu());
        let (mut rows, mut read, mut answers) = (0, 0, Vec::new());
        for question in &questions {
            let start = std::time::Instant::now();
            let answer = subject.ask(question)?;
            latency.add(start.elapsed());
            rows += answer.rows;
            read += answer.records_read.unwrap_or(0);
            answers.extend_from_slice(answer.text.as_bytes());
        }
        let mut row = operation_row(job, operation, state, &latency, process_cpu() - cpu);
        let peak = meter::memory()?.1.saturating_sub(before);
        for (name, figure) in [
            ("rows", rows as f64),
            ("records_read", read as f64),
            ("added_memory_bytes", peak as f64),
            (ANSWER, asked::digest(&answers)),
        ] {
            row.figures.insert(name.to_string(), figure);
        }
        job.report(&row)?;
    }
    Ok(())
}
