//! Replicated volumes: what a cluster of three nodes writes and how fast it is, beside a store that
//! has a log and a state, beside `nbdkit` over a file, and beside what disk and loopback allow; how
//! long fail-over and rebuilding take, and how much memory. Hydra's claim is that half is written.

mod bytes;
mod claims;
mod cluster;
mod failures;
mod load;
mod naive;
mod plain;
pub(in crate::suites) mod proc;
pub mod sheets;
mod speed;
mod task;

use std::path::PathBuf;

use crate::failure::{Failure, Result};
use crate::measure::Results;
use crate::only::Only;
use crate::run::{Job, Runner};

pub use task::SUITE;
use task::{Share, Task};

/// How the suite is run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Size of everything: at 1, half a GiB is written by each fill
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    pub scale: f64,

    /// Only these experiments, separated by commas; a part of a name is enough
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub only: Vec<String>,

    /// Folder for the results, and for the nodes' folders: on the disk that is to be measured
    #[arg(long, default_value = "out", value_name = "DIR")]
    pub out: PathBuf,

    /// How often everything is measured; figures are medians
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub repeat: u32,

    /// Seed of places and data
    #[arg(long, default_value_t = 7, value_name = "N")]
    pub seed: u64,

    /// The nodes' program [default: ../target/release/esker, beside this workspace]
    #[arg(long, value_name = "PATH")]
    pub esker: Option<PathBuf>,
}

/// The experiments, by name.
type Experiment = (&'static str, fn(&Job, &Task) -> Result<()>);

const EXPERIMENTS: [Experiment; 7] = [
    (bytes::FILL, bytes::fill),
    (bytes::OVERWRITES, bytes::overwrites),
    (speed::SPEED, speed::speed),
    (speed::GROUPS, speed::groups),
    (failures::FAIL_OVER, failures::fail_over),
    (failures::REBUILD, failures::rebuild),
    (failures::MEMORY, failures::memory),
];

/// Runs the suite; returns what could not be measured.
pub fn run(options: &Options) -> Result<Vec<String>> {
    let names = EXPERIMENTS.map(|(name, _)| name.to_string());
    let only = Only::new(&options.only, &[&names])?;
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/release/esker");
    let esker = options.esker.clone().unwrap_or(built);
    let esker = std::fs::canonicalize(&esker).map_err(|error| {
        let hint = "cargo build --release -p esker-cli makes it";
        Failure::new(format!("{}: {error} ({hint})", esker.display()))
    })?;
    let scale = options.scale;
    let task = Task { esker, scale };
    let mut runner = Runner::new(&options.out)?;
    crate::settings::common(&mut runner)?;
    runner.setting("seed", options.seed)?;
    runner.setting("scale", scale)?;
    let repeats = format!("{}, figures are medians", options.repeat);
    runner.setting("repeats", repeats)?;
    let nodes = "three processes on loopback, on one disk";
    runner.setting("nodes", nodes)?;
    runner.setting("nbdkit", plain::version())?;
    for repeat in 0..options.repeat {
        for name in names.iter().filter(|name| only.has(name)) {
            runner.run(&Job {
                suite: SUITE.to_string(),
                experiment: name.clone(),
                subject: String::new(),
                repeat,
                seed: options.seed,
                parameters: serde_json::to_value(Share::Experiment(task.clone()))?,
                scratch: PathBuf::new(),
            })?;
        }
    }
    let claims = claims::all(&Results::read(&options.out)?.medians());
    for claim in &claims {
        runner.claim(claim)?;
    }
    super::table::print_claims(&claims);
    Ok(runner.failures)
}

/// Does a share, in a process of its own.
pub fn child(job: &Job) -> Result<()> {
    match job.parameters()? {
        Share::Experiment(task) => {
            let found = EXPERIMENTS.iter().find(|(name, _)| *name == job.experiment);
            let (_, run) = found.ok_or_else(|| Failure::new("no such experiment"))?;
            // What nodes write is on disk before the next experiment begins.
            let done = run(job, &task);
            rustix::fs::sync();
            done
        }
        Share::Naive(replica) => naive::child(&replica),
    }
}
