//! `completions` and `man`: what a shell and a manual know of the command line, made from its definition.

use std::fs;

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, note};

/// `esker completions SHELL`
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "esker", &mut script);
    let mut output = Output::new();
    output.bytes(&script)?;
    output.finish()?;
    Ok(Outcome::Done)
}

/// `esker man DIR`: a page for the program, and one for each command.
pub(crate) fn man(args: &ManArgs) -> Result<Outcome, Failure> {
    let refuse = |error| {
        Failure::Usage(format!(
            "cannot write manual pages into {}: {error}",
            args.dir.display()
        ))
    };
    fs::create_dir_all(&args.dir).map_err(refuse)?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), &args.dir)
        .map_err(refuse)?;
    note(format_args!(
        "wrote manual pages into {}",
        args.dir.display()
    ));
    Ok(Outcome::Done)
}
