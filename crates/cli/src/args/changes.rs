//! The arguments of `changes`.

use std::path::PathBuf;

use clap::Args;
use esker::{ChangesFrom, Position, Seq};

use super::size;

pub(super) const CHANGES_HELP: &str = "\
One line a change: {\"seq\":7,\"change\":\"put\",\"key\":1,\"record\":{...}}; of a record that was deleted or had expired
\"change\":\"delete\" or \"expire\", without a record. With --old what was replaced, too: \"old\":{...}.

Without --consumer, old changes disappear once the log has been flushed. With --consumer the log is kept for that name and
dataset, through restarts: each call continues where the last one stopped, and prints every change at least once. A change counts as read when it was printed. Both work beside a process that writes; one consumer is in use once at a time.

Exit codes: 0 changes were printed (or the consumer is new), 1 there was none, 2 --from is a place that the store does not have, or
--old is asked of a dataset without, 3 the changes from there on are not kept any more, or somebody else is
this consumer, 130 and 143 interrupted.

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
    /// Begin after this write: its `seq`, or a position as `esker stat --json` shows it for consumers [default: with the oldest change that is kept]
    #[arg(long, value_name = "SEQ", value_parser = from)]
    pub(crate) from: Option<ChangesFrom>,
    /// Print with each change the record that it replaced; for datasets created with --old-records
    #[arg(long)]
    pub(crate) old: bool,
    /// Wait for further changes
    #[arg(long, conflicts_with = "forget")]
    pub(crate) follow: bool,
    /// Keep changes for the consumer of this name, and begin where it stopped; a new one begins now, or at --from
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,
    /// At most so much of the log is kept for the consumer
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G", requires = "consumer")]
    pub(crate) keep: usize,
    /// Keep nothing for the consumer any more
    #[arg(long, requires = "consumer", conflicts_with = "from")]
    pub(crate) forget: bool,
}

fn from(text: &str) -> Result<ChangesFrom, String> {
    match text.parse::<Seq>() {
        Ok(seq) => Ok(ChangesFrom::Seq(seq)),
        Err(_) => text.parse::<Position>().map(ChangesFrom::Position),
    }
}
