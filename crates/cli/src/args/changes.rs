//! The arguments of `changes`.

use std::path::PathBuf;

use clap::Args;
use esker::{ChangesFrom, Position, Seq};

use super::size;

pub(super) const CHANGES_HELP: &str = "\
Prints one line per change: {\"seq\":7,\"change\":\"put\",\"key\":1,\"record\":{...}}. If a record was deleted or has expired,
the line has \"change\":\"delete\" or \"expire\" and no record. --old adds the record that was replaced: \"old\":{...}.

Without --consumer, old changes disappear once the log has been flushed. With --consumer, the store keeps the log for that
name and dataset, through restarts: each call continues where the last one stopped, and prints every change at least once.
A change counts as read once it is printed. Both work beside a process that writes. Only one process at a time can use a
consumer.

Exit codes: 0 changes were printed (or the consumer is new), 1 there were no changes, 2 the store does not have the position
of --from, or the dataset was created without --old-records, 3 the changes from there on are no longer kept, or another
process uses the consumer, 130 and 143 interrupted.

Examples:
  esker changes db events --from 1200
  esker changes db events --follow | jq -c .key
  esker changes db events --consumer audit >> audit.ndjson
  esker changes db events --consumer mailer --follow | ./send-mails";

#[derive(Args)]
pub(crate) struct ChangesArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// Begin after this write: its `seq`, or a position as `esker stat --json` shows it for
    /// consumers [default: the oldest change in the log]
    #[arg(long, value_name = "SEQ", value_parser = from)]
    pub(crate) from: Option<ChangesFrom>,
    /// Also print the record that each change replaced; for datasets created with --old-records
    #[arg(long)]
    pub(crate) old: bool,
    /// Wait for further changes
    #[arg(long, conflicts_with = "forget")]
    pub(crate) follow: bool,
    /// Keep changes for the consumer of this name, and begin where it stopped; a new consumer
    /// begins now, or at --from
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,
    /// How much log to keep at most for the consumer [default: what it has, 1G for a new one]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "consumer")]
    pub(crate) keep: Option<usize>,
    /// Remove the consumer: the store no longer keeps changes for it
    #[arg(long, requires = "consumer", conflicts_with = "from")]
    pub(crate) forget: bool,
}

fn from(text: &str) -> Result<ChangesFrom, String> {
    match text.parse::<Seq>() {
        Ok(seq) => Ok(ChangesFrom::Seq(seq)),
        Err(_) => text.parse::<Position>().map(ChangesFrom::Position),
    }
}
