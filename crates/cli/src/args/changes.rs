//! The arguments of `changes`.

use std::path::PathBuf;

use clap::Args;
use esker::{ChangesFrom, Position, Seq};

use super::size;

pub(super) const CHANGES_HELP: &str = "\
One line a change: {\"seq\":7,\"change\":\"put\",\"key\":1,\"record\":{...}}, or \"change\":\"delete\", or
\"expire\" of one that had expired, and no record. With --old a change of a record that was there has it, too: \"old\":{...}. The log has what is in no table
yet. With --consumer it is kept for whoever reads under that name, through restarts and from where that one stopped: it sees every change at
least once; no other process may have the store open for writing meanwhile. Without, a process that writes is followed beside it.

Examples:
  esker changes db events --from 1200
  esker changes db events --follow | jq -c .key
  esker changes db events --consumer audit >> audit.ndjson";

#[derive(Args)]
pub(crate) struct ChangesArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// Begin behind this write: its `seq`, or a place as `esker stat --json` shows it of consumers [default: with the oldest change that is kept]
    #[arg(long, value_name = "SEQ", value_parser = from)]
    pub(crate) from: Option<ChangesFrom>,
    /// With each change the record that it replaced, of a dataset that was made with --old-records
    #[arg(long)]
    pub(crate) old: bool,
    /// Wait for further changes
    #[arg(long, conflicts_with = "consumer")]
    pub(crate) follow: bool,
    /// Keep changes for this name, and begin where it stopped; one that is new begins now, or with --from
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
