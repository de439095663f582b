//! `bench`: Esker beside its peers, and the experiments of the papers. The README says how to run it
//! and how to read what comes out.

mod failure;
mod measure;
mod meter;
mod model;
mod only;
mod run;
mod settings;
mod subjects;
mod suites;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::{Failure, Result};
use suites::peers;

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
        Command::Peers(options) => peers::run(options)?,
        Command::Child { job } => {
            let job: run::Job = serde_json::from_str(job)?;
            return match job.suite.as_str() {
                peers::SUITE => peers::child(&job),
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
