//! `esker`: the command line of Esker. Answers go to standard output, by default as NDJSON, one
//! record a line, newest first; all messages go to standard error.
//!
//! Exit codes: 0 found or done, 1 not found, 2 usage or bad input, 3 damaged or unavailable store.

// The layers of these modules: `../layers.txt`.

mod args;
mod commands;
mod failure;
mod interrupt;
mod nearest;
mod output;
mod progress;
mod report;
mod rows;
mod store;
mod table;
#[cfg(feature = "server")]
mod traffic;
mod tweets;
mod words;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::{Failure, Outcome};

/// The least memory budget: a store uses at least this much, whatever `--memory` says.
const LEAST_MEMORY: usize = 1 << 20;

fn dispatch(cli: Cli) -> Result<Outcome, Failure> {
    report::choose(cli.progress);
    let memory = cli.memory.max(LEAST_MEMORY);
    if cli.memory < LEAST_MEMORY {
        report::note(format_args!(
            "note: --memory of {} is less than a store needs: the store uses {}",
            output::bytes(cli.memory as u64),
            output::bytes(LEAST_MEMORY as u64)
        ));
    }
    #[cfg(feature = "server")]
    store::choose(cli.token_file.as_deref())?;
    match cli.command {
        Command::Demo(args) => commands::demo::demo(&args, memory),
        Command::Create(args) => commands::create::create(&args, memory),
        Command::List(args) => commands::datasets::list(&args, memory),
        Command::Rename(args) => commands::datasets::rename(&args, memory),
        Command::Drop(args) => commands::datasets::drop(&args, memory),
        Command::Load(args) => commands::load::load(&args, memory),
        Command::Put(args) => commands::put::put(&args, memory),
        Command::Update(args) => commands::update::update(&args, memory),
        Command::Get(args) => commands::query::get(&args, memory),
        Command::ReadKey(args) => commands::versions::read_key(&args, memory),
        Command::ReadValue(args) => commands::versions::read_value(&args, memory),
        Command::Delete(args) => commands::write::delete(&args, memory),
        Command::Lookup(args) => commands::query::lookup(&args, memory),
        Command::Range(args) => commands::query::range(&args, memory),
        Command::Find(args) => commands::find::find(&args, memory),
        Command::Within(args) => commands::space::within(&args, memory),
        Command::Near(args) => commands::space::near(&args, memory),
        Command::View(args) => commands::view::view(&args, memory),
        #[cfg(feature = "volume")]
        Command::Volume(args) => commands::volume::volume(&args),
        Command::Scan(args) => commands::query::scan(&args, memory),
        Command::Count(args) => commands::query::count(&args, memory),
        Command::Aggregate(args) => commands::aggregate::aggregate(&args, memory),
        Command::Index(args) => commands::index::index(&args, memory),
        Command::Advise(args) => commands::advise::advise(&args, memory),
        Command::Fields(args) => commands::fields::fields(&args, memory),
        Command::Stat(args) => commands::stat::stat(&args, memory),
        Command::Check(args) => commands::admin::check(&args, memory),
        Command::Maintain(args) => commands::maintain::maintain(&args, memory),
        Command::Repair(args) => commands::repair::repair(&args, memory),
        Command::Ttl(args) => commands::expiry::ttl(&args, memory),
        Command::Expire(args) => commands::expiry::expire(&args, memory),
        Command::Compact(args) => commands::admin::compact(&args, memory),
        Command::Backup(args) => commands::admin::backup(&args, memory),
        Command::Copy(args) => commands::copy::copy(&args, memory),
        Command::Snapshot(args) => commands::admin::snapshot(&args, memory),
        Command::Changes(args) => commands::changes::changes(&args, memory),
        Command::Fence(args) => commands::fence::fence(&args, memory),
        Command::Publish(args) => commands::pubsub::publish(&args, memory),
        Command::Subscribe(args) => commands::pubsub::subscribe(&args, memory),
        Command::Topics(args) => commands::pubsub::topics(&args, memory),
        Command::Replay(args) => commands::replay::replay(&args, memory),
        #[cfg(feature = "server")]
        Command::Serve(args) => commands::serve::serve(&args, memory),
        #[cfg(feature = "server")]
        Command::Token(args) => commands::serve::token(&args),
        Command::Completions(args) => commands::shell::completions(&args),
        Command::Baselines => commands::shell::baselines(),
        Command::Man(args) => commands::shell::man(&args),
    }
}

fn main() -> ExitCode {
    commands::complete::answer();
    match dispatch(Cli::parse()) {
        Ok(outcome) => ExitCode::from(outcome.code()),
        Err(failure) => {
            if let Some(message) = failure.message() {
                report::error(message);
            }
            ExitCode::from(failure.code())
        }
    }
}

#[cfg(test)]
mod tests;
