//! The arguments of `changes` and `fence`.

use std::path::PathBuf;

use ::pubsub::FenceEvent;
use clap::Args;
use esker::{AreaExpr, ChangesFrom, Path, Position, Seq};

use super::size;
use super::values::limit;

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

pub(super) const FENCE_HELP: &str = "\
Prints one line per record that enters the area or leaves it: a line of `esker changes --old` with the event,
{\"seq\":7,\"event\":\"enter\",\"change\":\"put\",\"key\":1,\"record\":{...},\"old\":{...}}. A record that is deleted or expires inside the
area exits. --events inside prints the changes of records that stay inside.

AREA is rect(W,S,E,N), circle(LON,LAT,METRES), polygon([[LON,LAT],...]) or GeoJSON. PATH is a field with points, or
LON_PATH,LAT_PATH. With --where, only records that meet the condition are inside: a record in the area that comes to meet
it enters, one that ceases to meet it exits. The dataset needs --old-records (`esker create`, `esker load`).

Consumers are those of `esker changes`: with --consumer, each call continues where the last one of that name stopped.

Exit codes: 0 events were printed (or the consumer is new), 1 there were none, 2 the area or PATH is invalid, the store
does not have the position of --from, or the dataset was created without --old-records, 3 the changes from there on are
no longer kept, or another process uses the consumer, 130 and 143 interrupted.

Examples:
  esker fence db cars at 'circle(9.99,53.55,2000)' --follow
  esker fence db cars lon,lat 'rect(9.9,53.5,10.0,53.6)' --events enter --where 'kind = truck'
  esker fence db cars at \"$(cat harbour.geojson)\" --consumer gate --follow | ./open-gate
  esker fence http://localhost:7700 cars at 'circle(9.99,53.55,2000)' --follow";

#[derive(Args)]
pub(crate) struct ChangesArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// Also print the record that each change replaced; for datasets created with --old-records
    #[arg(long)]
    pub(crate) old: bool,
    #[command(flatten)]
    pub(crate) feed: FeedArgs,
}

#[derive(Args)]
pub(crate) struct FenceArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The field of the points: a path, or LON_PATH,LAT_PATH
    pub(crate) path: Path,
    /// The area: rect(W,S,E,N), circle(LON,LAT,METRES), polygon(...) or GeoJSON
    #[arg(value_name = "AREA")]
    pub(crate) area: AreaExpr,
    /// Only records that meet this condition (see `find`) are inside; several must all hold
    #[arg(long = "where", value_name = "EXPR")]
    pub(crate) conditions: Vec<String>,
    /// The events to print: enter, exit, and inside for a change of a record that stays inside
    #[arg(
        long,
        value_name = "EVENT",
        value_delimiter = ',',
        default_value = "enter,exit"
    )]
    pub(crate) events: Vec<FenceEvent>,
    #[command(flatten)]
    pub(crate) feed: FeedArgs,
}

/// Which changes are read.
#[derive(Args)]
pub(crate) struct FeedArgs {
    /// Begin after this write: its `seq`, or a position as `esker stat --json` shows it for
    /// consumers [default: the oldest change in the log]
    #[arg(long, value_name = "SEQ", value_parser = from)]
    pub(crate) from: Option<ChangesFrom>,
    /// Wait for further changes
    #[arg(long, conflicts_with = "forget")]
    pub(crate) follow: bool,
    /// End after this many lines
    #[arg(long, value_name = "N", value_parser = limit, conflicts_with = "forget")]
    pub(crate) limit: Option<usize>,
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
