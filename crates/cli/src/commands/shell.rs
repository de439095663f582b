//! `completions` and `man`: completion scripts and manual pages, generated from the command line's
//! definition.

use std::path::Path;
use std::{fs, io};

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, note};

/// `esker completions SHELL`
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Outcome, Failure> {
    // The script calls this program: by its full path, if it was called by a path.
    let program = std::env::args_os().next().unwrap_or_default();
    let program = match Path::new(&program).components().count() {
        0 | 1 => "esker".to_string(),
        _ => std::env::current_exe()
            .map_or_else(|_| "esker".to_string(), |path| path.display().to_string()),
    };
    let shells = clap_complete::env::Shells::builtins();
    let shell = args.shell.to_string();
    let Some(shell) = shells.completer(&shell) else {
        return Err(Failure::Usage(format!(
            "there are no completions for {shell}"
        )));
    };
    let mut script = Vec::new();
    shell
        .write_registration("COMPLETE", "esker", "esker", &program, &mut script)
        .map_err(|error| Failure::Store(format!("cannot write the script: {error}")))?;
    let mut output = Output::new();
    output.bytes(&script)?;
    output.finish()?;
    Ok(Outcome::Done)
}

/// Writes the pages of a command and its subcommands. The footer of each names the program and its
/// version.
fn pages(command: &clap::Command, dir: &Path) -> io::Result<()> {
    let below = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    for below in below {
        pages(below, dir)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    let page = page.source(concat!("esker ", env!("CARGO_PKG_VERSION")));
    page.generate_to(dir).map(|_| ())
}

/// `esker man DIR`: writes a page for the program and one for each command.
pub(crate) fn man(args: &ManArgs) -> Result<Outcome, Failure> {
    let refuse = |error| {
        Failure::Usage(format!(
            "cannot write manual pages into {}: {error}",
            args.dir.display()
        ))
    };
    fs::create_dir_all(&args.dir).map_err(refuse)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    pages(&command, &args.dir).map_err(refuse)?;
    note(format_args!(
        "wrote manual pages into {}",
        args.dir.display()
    ));
    Ok(Outcome::Done)
}

/// `esker baselines`: the same as `esker help baselines`.
pub(crate) fn baselines() -> Result<Outcome, Failure> {
    let mut command = Cli::command();
    command.build();
    let page = command
        .find_subcommand_mut("baselines")
        .map(|page| page.render_help().to_string());
    let mut output = Output::new();
    output.bytes(page.unwrap_or_default().as_bytes())?;
    output.finish()?;
    Ok(Outcome::Done)
}
