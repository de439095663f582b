//! What the suites on index maintenance (Luo & Carey, DELI) share: their options, the run, a store
//! with a strategy, the model of upserts, and the phases of a child.

pub mod current;
pub mod found;
pub mod session;
pub mod store;

use std::path::PathBuf;

use serde::Serialize;

use crate::failure::Result;
use crate::measure::{Claim, Results, Row};
use crate::only::Only;
use crate::run::{Job, Runner};

/// Bytes of a record on average.
pub const RECORD: usize = 500;
/// A component of this share of all JSON is not merged any more: 1 GB of the paper's 30.
pub const LARGEST: f64 = 1.0 / 30.0;
/// What `--full` multiplies the scale by.
const FULL: f64 = 10.0;

/// How a suite is run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Size of everything: at 1, a million records
    #[arg(long, default_value_t = 0.2, value_name = "N")]
    pub scale: f64,

    /// Ten times the size: for a night
    #[arg(long)]
    pub full: bool,

    /// Only these experiments, subjects or caches, separated by commas; a part of a name is enough
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
}

impl Options {
    /// Records of a share of the scale.
    pub fn records(&self, share: f64) -> usize {
        let scale = self.scale * if self.full { FULL } else { 1.0 };
        ((1e6 * scale * share) as usize).max(2000)
    }
}

/// A child to be started. Those that are to be compared follow each other.
pub struct Planned<T> {
    /// What `--only` selects by; begins with the experiment.
    pub experiment: String,
    /// Whose share it is.
    pub subject: String,
    /// What memory there is, by its name.
    pub cache: &'static str,
    /// What it is told.
    pub task: T,
}

/// Runs a suite: its children, repeated, then what is claimed of the medians. Returns what could not
/// be measured.
pub fn run<T: Serialize>(
    suite: &str,
    options: &Options,
    settings: &[(&str, String)],
    planned: &[Planned<T>],
    claims: impl Fn(&[Row]) -> Vec<Claim>,
) -> Result<Vec<String>> {
    let names = |of: &dyn Fn(&Planned<T>) -> String| {
        let mut names: Vec<String> = planned.iter().map(of).collect();
        names.sort();
        names.dedup();
        names
    };
    let only = Only::new(
        &options.only,
        &[
            &names(&|planned| planned.experiment.clone()),
            &names(&|planned| planned.subject.clone()),
            &names(&|planned| planned.cache.to_string()),
        ],
    )?;
    let mut runner = Runner::new(&options.out)?;
    crate::settings::common(&mut runner)?;
    let repeats = format!("{}, figures are medians", options.repeat);
    runner.setting("seed", options.seed)?;
    runner.setting("repeats", repeats)?;
    for (name, value) in settings {
        runner.setting(name, value)?;
    }
    for repeat in 0..options.repeat {
        for planned in planned {
            if ![&planned.experiment, &planned.subject]
                .into_iter()
                .all(|name| only.has(name))
                || !only.has(planned.cache)
            {
                continue;
            }
            runner.run(&Job {
                suite: suite.to_string(),
                experiment: format!("{} {}", planned.experiment, planned.cache),
                subject: planned.subject.clone(),
                repeat,
                seed: options.seed,
                parameters: serde_json::to_value(&planned.task)?,
                scratch: PathBuf::new(),
            })?;
        }
    }
    let claims = claims(&Results::read(&options.out)?.medians());
    for claim in &claims {
        runner.claim(claim)?;
    }
    crate::suites::table::print_claims(&claims);
    Ok(runner.failures)
}
