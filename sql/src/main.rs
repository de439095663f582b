//! `esker-sql`: SQL over an Esker store, with the prompt of DataFusion's command line.

mod failure;
mod print;
mod prompt;
mod size;

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use datafusion_cli::exec::exec_from_repl;
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::{MaxRows, PrintOptions};
use esker::{Database, Options};
use esker_pubsub::PubSub;
use esker_sql::Session;

use crate::failure::Failure;
use crate::print::Printer;
use crate::prompt::Prompt;

/// SQL over an Esker store: each dataset is a table.
#[derive(Parser)]
#[command(
    name = "esker-sql",
    version,
    after_help = "Examples:
  esker-sql db 'select user.name, count(*) from visits group by 1 order by 2 desc'
  esker-sql db \"copy (select * from visits) to 'visits.parquet'\"
  esker-sql db --format csv -f report.sql > report.csv
  esker-sql db                                    a prompt; \\? lists its commands

Exit codes: 0 done, 2 a statement that failed, 3 a damaged or unavailable store."
)]
struct Args {
    /// The store's directory
    dir: PathBuf,
    /// Statements, separated by semicolons; without any, a prompt, or the statements on standard
    /// input
    statements: Vec<String>,
    /// A file of statements, or - for standard input; can be repeated
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Memory for the store and for statements, half each: bytes, or with a unit, as in 512M
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::size)]
    memory: usize,
    /// How rows are printed; automatic is a table
    #[arg(long, value_enum, default_value_t = PrintFormat::Automatic)]
    format: PrintFormat,
    /// The most rows that a table prints, or inf [default: inf, at the prompt 40]
    #[arg(long)]
    maxrows: Option<MaxRows>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let ended = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::Store(format!("cannot start threads: {error}")))
        .and_then(|runtime| runtime.block_on(run(args)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                eprintln!("esker-sql: {message}");
            }
            ExitCode::from(failure.code())
        }
    }
}

async fn run(args: Args) -> Result<(), Failure> {
    let scripts = scripts(&args)?;
    let session = open(&args)?;
    let Some(scripts) = scripts else {
        return prompt(session, &args).await;
    };
    let mut printer = Printer::new(args.format, args.maxrows.unwrap_or(MaxRows::Unlimited));
    for script in scripts {
        for statement in session.parse(&script)? {
            let state = session.state_now()?;
            let plan = state.statement_to_plan(statement).await?;
            let rows = session.execute(state, plan).await?;
            printer.print(rows).await?;
        }
    }
    Ok(())
}

/// The statements of the arguments, of files and of standard input; `None` for the prompt.
fn scripts(args: &Args) -> Result<Option<Vec<String>>, Failure> {
    let mut scripts = args.statements.clone();
    for file in &args.file {
        scripts.push(if file == Path::new("-") {
            standard_input()?
        } else {
            let text = std::fs::read_to_string(file);
            text.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?
        });
    }
    if scripts.is_empty() {
        if std::io::stdin().is_terminal() {
            return Ok(None);
        }
        scripts.push(standard_input()?);
    }
    Ok(Some(scripts))
}

fn standard_input() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| Failure::Usage(format!("standard input: {error}")))?;
    Ok(text)
}

fn open(args: &Args) -> Result<Session, Failure> {
    let text = args.dir.to_string_lossy();
    if text.contains("://") {
        return Err(Failure::Usage(format!(
            "`{text}` is an address, and esker-sql reads folders: `esker find`, with --order and --select, and \
             `esker aggregate` answer over clusters, and `esker copy {text} DIR` makes a folder of one"
        )));
    }
    let options = Options::new().memory_budget(args.memory / 2);
    let db = Database::open_reader(&args.dir, PubSub::register(options))?;
    Ok(Session::new(db, args.memory / 2)?)
}

async fn prompt(session: Session, args: &Args) -> Result<(), Failure> {
    let mut options = PrintOptions {
        format: args.format,
        quiet: false,
        maxrows: args.maxrows.unwrap_or(MaxRows::Limited(40)),
        color: false,
        instrumented_registry: Arc::new(InstrumentedObjectStoreRegistry::new()),
    };
    let ended = exec_from_repl(&Prompt::new(session), &mut options).await;
    ended.map_err(|error| Failure::Usage(error.to_string()))
}
