//! `bench`: Esker beside its peers, and the experiments of the papers. The README says how to run it
//! and how to read what comes out.

mod diff;
mod failure;
mod measure;
mod meter;
mod model;
mod nightly;
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
use suites::{
    cluster, deli, leveldbpp, luo_carey, peers, pubsub, questions, spatial, upkeep, volume,
};

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
    #[command(flatten)]
    Suite(Suite),
    /// The experiments of all papers in small; fails where something was not measured, or held and does not any more
    Nightly(nightly::Options),
    /// Makes the lists that `nightly` goes by, of its results: what held in all of them has to hold
    Expect {
        /// Folders of runs; several of a suite, so that what holds by chance is told from what holds
        #[arg(value_name = "DIR", required = true)]
        runs: Vec<PathBuf>,
    },
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

/// What measures.
#[derive(Debug, Subcommand)]
enum Suite {
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
    /// Counts, orders, groups and several conditions, beside SQLite and DuckDB
    Questions(questions::Options),
    /// Replicated volumes: bytes written, speed, fail-over, rebuilding, memory, beside a log and a state and nbdkit
    Volume(volume::Options),
    /// Datasets on Cassandra and HBase: DELI's experiments on real servers, beside the servers' own indexes
    Cluster(cluster::Options),
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

/// Runs a suite and makes its report; what could not be measured.
fn run_suite(suite: &Suite) -> Result<Vec<String>> {
    let (failures, out) = match suite {
        Suite::Peers(options) => (peers::run(options)?, options.out.as_path()),
        Suite::Leveldbpp(options) => (leveldbpp::run(options)?, options.out.as_path()),
        Suite::LuoCarey(options) => (luo_carey::run(options)?, options.out.as_path()),
        Suite::Deli(options) => (deli::run(options)?, options.out.as_path()),
        Suite::Spatial(options) => (spatial::run(options)?, options.out()),
        Suite::Pubsub(options) => (pubsub::run(options)?, options.out.as_path()),
        Suite::Questions(options) => (questions::run(options)?, options.out.as_path()),
        Suite::Volume(options) => (volume::run(options)?, options.out.as_path()),
        Suite::Cluster(options) => (cluster::run(options)?, options.out.as_path()),
    };
    make_report(out)?;
    Ok(failures)
}

/// Runs the suite that these arguments name.
fn run_named(arguments: &[String]) -> Result<Vec<String>> {
    println!("\nbench {}", arguments.join(" "));
    let program = std::iter::once("bench").chain(arguments.iter().map(String::as_str));
    let parsed = Arguments::try_parse_from(program).map_err(|e| Failure::new(e.to_string()))?;
    match parsed.command {
        Command::Suite(suite) => run_suite(&suite),
        _ => Err(Failure::new("no suite")),
    }
}

fn act(command: &Command) -> Result<()> {
    match command {
        Command::Suite(suite) => {
            let failures = run_suite(suite)?;
            match failures.is_empty() {
                true => Ok(()),
                false => Err(Failure::new(format!(
                    "not measured: {}",
                    failures.join("; ")
                ))),
            }
        }
        Command::Nightly(options) => nightly::run(options, run_named),
        Command::Expect { runs } => {
            for path in nightly::write(runs)? {
                println!("{}", path.display());
            }
            Ok(())
        }
        Command::Report { out } => make_report(out),
        Command::Diff {
            before,
            after,
            fail_on,
        } => {
            let (text, worst) = diff::diff(before, after)?;
            print!("{text}");
            match fail_on {
                Some(limit) if worst > *limit => Err(Failure::new(format!(
                    "slower by {worst:.2}, beyond {limit}"
                ))),
                _ => Ok(()),
            }
        }
        Command::Child { job } => {
            let job: run::Job = serde_json::from_str(job)?;
            match job.suite.as_str() {
                peers::SUITE => peers::child(&job),
                leveldbpp::SUITE => leveldbpp::child(&job),
                luo_carey::SUITE => luo_carey::child(&job),
                deli::SUITE => deli::child(&job),
                spatial::SUITE => spatial::child(&job),
                pubsub::SUITE => pubsub::child(&job),
                questions::SUITE => questions::child(&job),
                volume::SUITE => volume::child(&job),
                cluster::SUITE => cluster::child(&job),
                other => Err(Failure::new(format!("there is no suite `{other}`"))),
            }
        }
    }
}

fn make_report(out: &Path) -> Result<()> {
    report::make(out, &suites::sheets())?;
    println!("\n{}", out.join("index.html").display());
    Ok(())
}
