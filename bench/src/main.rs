//! `bench`: Esker beside its peers, and the experiments of the papers. The README says how to run it
//! and how to read what comes out.

mod diff;
mod failure;
mod measure;
mod meter;
mod model;
mod only;
mod report;
mod run;
mod settings;
mod subjects;
mod suites;
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::{Failure, Result};
use suites::{deli, leveldbpp, luo_carey, peers, pubsub, spatial, upkeep};

#[derive(Debug, Parser)]
#[command(
    name = "bench",
    about = "Measures Esker",
    disable_help_subcommand = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Esker with each kind of index, beside RocksDB, fjall, SQLite, LMDB and redb
    Peers(suites::Options),
    /// The experiments of the LevelDB++ paper, on synthetic and on real records
    Leveldbpp(leveldbpp::Options),
    /// The experiments of Luo & Carey: lookups and ways to maintain indexes
    LuoCarey(upkeep::Options),
    /// The experiments of DELI: indexes that are repaired when data is merged
    Deli(upkeep::Options),
    /// The experiments of Spatial-LSM: layouts of an index of points, beside other stores
    Spatial(spatial::Options),
    /// The experiments of Qader & Hristidis: publish/subscribe in one tree, in two, with repeated queries
    Pubsub(upkeep::Options),
    /// Makes the table, the charts and the page of a run again
    Report {
        /// The folder of the run
        #[arg(value_name = "DIR")]
        out: PathBuf,
    },
    /// Compares two runs, operation by operation
    Diff {
        /// The folder of the earlier run
        #[arg(value_name = "A")]
        before: PathBuf,
        /// The folder of the later run
        #[arg(value_name = "B")]
        after: PathBuf,
        /// Fail when anything got slower by more than this factor, beyond noise
        #[arg(long, value_name = "RATIO")]
        fail_on: Option<f64>,
    },
    /// Does one subject's share, for a suite
    #[command(name = run::CHILD, hide = true)]
    Child {
        /// The job, as JSON
        job: String,
    },
}

fn main() -> ExitCode {
    match act(&Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn act(command: &Command) -> Result<()> {
    let failures = match command {
        Command::Peers(options) => {
            let failures = peers::run(options)?;
            make_report(&options.out)?;
            failures
        }
        Command::Leveldbpp(options) => {
            let failures = leveldbpp::run(options)?;
            make_report(&options.out)?;
            failures
        }
        Command::LuoCarey(options) => {
            let failures = luo_carey::run(options)?;
            make_report(&options.out)?;
            failures
        }
        Command::Deli(options) => {
            let failures = deli::run(options)?;
            make_report(&options.out)?;
            failures
        }
        Command::Spatial(options) => {
            let failures = spatial::run(options)?;
            make_report(options.out())?;
            failures
        }
        Command::Pubsub(options) => {
            let failures = pubsub::run(options)?;
            make_report(&options.out)?;
            failures
        }
        Command::Report { out } => return make_report(out),
        Command::Diff {
            before,
            after,
            fail_on,
        } => {
            let (text, worst) = diff::diff(before, after)?;
            print!("{text}");
            return match fail_on {
                Some(limit) if worst > *limit => Err(Failure::new(format!(
                    "slower by {worst:.2}, beyond {limit}"
                ))),
                _ => Ok(()),
            };
        }
        Command::Child { job } => {
            let job: run::Job = serde_json::from_str(job)?;
            return match job.suite.as_str() {
                peers::SUITE => peers::child(&job),
                leveldbpp::SUITE => leveldbpp::child(&job),
                luo_carey::SUITE => luo_carey::child(&job),
                deli::SUITE => deli::child(&job),
                spatial::SUITE => spatial::child(&job),
                pubsub::SUITE => pubsub::child(&job),
                other => Err(Failure::new(format!("there is no suite `{other}`"))),
            };
        }
    };
    if failures.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "not measured: {}",
        failures.join("; ")
    )))
}

fn make_report(out: &Path) -> Result<()> {
    report::make(out, &suites::sheets())?;
    println!("\n{}", out.join("index.html").display());
    Ok(())
}
