//! The arguments of publish/subscribe.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use esker::{Expr, Path};

#[cfg(feature = "server")]
use super::serve::DemoServeArgs;
use super::space::AreaArgs;
use super::values::duration;
#[cfg(feature = "volume")]
use super::volume::DemoVolumeArgs;

pub(super) const PUBLISH_HELP: &str = "\
A topic has levels, as in `traffic/a7`. A subscription to `traffic` also receives publications to `traffic/a7`. The empty topic ''
is above all others: a publication to it reaches the subscriptions to every topic. Levels may be empty, as in MQTT: `/a` has
two.

Each line is stored as it arrives, and synced within 100 ms. A line that is not JSON or has no position is reported and left
out (exit code 2). On SIGINT and SIGTERM, the lines read so far are stored, and a message says at which line to continue.

Examples:
  echo '{\"lanes\":2}' | esker publish db traffic/a7 --expires 10m
  esker publish db cars --position lon,lat < cars.ndjson";

pub(super) const TOPICS_HELP: &str = "\
Prints one line per topic: {\"topic\":..,\"publications\":..,\"subscriptions\":..,\"latest\":..}; `latest` is the time of the last publication, in
milliseconds since 1970.

Example:
  esker topics db";

pub(super) const SUBSCRIBE_HELP: &str = "\
Prints one line per publication, as it was published. Works beside a process that publishes. Without --for or --follow
it prints the stored publications and ends; with one of them it also waits for a store and for the first publication.

Without wildcards, `traffic/a7` receives publications to itself, its subtopics (`traffic/a7/x`) and its parents (`traffic`).
Wildcards work as in MQTT: `+` stands for one level, `#` at the end for any number of levels. The empty topic '' is above
all others: it receives everything. Levels may be empty, as in MQTT: `/a` has two.

Examples:
  esker subscribe db traffic --since 10m
  esker subscribe db 'traffic/+' --follow --where 'lanes >= 2'
  esker subscribe db cars --since 60s --for 60s --circle=9.99,53.55,2000";

pub(super) const REPLAY_HELP: &str = "\
Creates a store in DIR, publishes and subscribes in the order of time, and prints a line for each match:
{\"subscription\":ID,\"publication\":ID}. Times are numbers in the unit of the data.

A subscription is {\"id\":.., \"user\":.., \"at\":.., \"from\":.., \"to\":..}: it is made at time `at`, and receives publications
from `from` to `to`, both included. It can also have \"topic\":\"..\", \"rect\":[W,S,E,N], \"circle\":[LON,LAT,METRES],
\"where\":\"CONDITION\", and \"join\":true, which leaves out what its user received before. A publication is any object with an
`id` and a time; it expires at the time in its field `expires`, if any. Files may be compressed (.zst, .gz).

Examples:
  esker replay db --subscriptions s.ndjson --publications moves.ndjson.zst --time time --position lon,lat
  esker replay db --subscriptions s.ndjson --publications trades.ndjson --time at --topic symbol";

#[derive(Args)]
pub(crate) struct PublishArgs {
    /// The store's directory (created if it does not exist)
    pub(crate) dir: PathBuf,
    /// The topic, such as traffic/a7
    pub(crate) topic: String,
    /// How long the publications live: 20s, 10m, 2h, 1d [default: forever]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) expires: Option<Duration>,
    /// The fields with longitude and latitude
    #[arg(long, value_name = "LON,LAT", value_parser = position)]
    pub(crate) position: Option<(Path, Path)>,
}

/// The demo that `esker demo` shows instead of the records demo.
#[derive(Subcommand)]
pub(crate) enum DemoCommand {
    /// Show drivers that move through a city and receive the incidents around them, from the last
    /// minute on
    #[command(
        after_help = "Examples:\n  esker demo pubsub\n  esker demo pubsub --moves moves.ndjson.zst --speed 600 --length 1h"
    )]
    Pubsub(DemoPubsubArgs),
    #[cfg(feature = "server")]
    /// Serve a city that moves: vehicles, incidents and topics, to look at in a browser, with curl
    /// and over MQTT, until Ctrl-C
    #[command(
        after_help = "Examples:\n  esker demo serve\n  esker demo serve DIR --listen 127.0.0.1:8080 --mqtt 127.0.0.1:1884 --rate 2000"
    )]
    Serve(DemoServeArgs),
    #[cfg(feature = "volume")]
    /// Show a replicated disk: three nodes on loopback, a file system written to them over NBD, and
    /// a leader that is killed meanwhile
    #[command(
        after_help = "Examples:\n  esker demo volume\n  esker demo volume --size 1G --dir DIR"
    )]
    Volume(DemoVolumeArgs),
}

#[derive(Args)]
pub(crate) struct DemoPubsubArgs {
    /// A file of recorded positions, with `time` in seconds, `icao24`, `lon` and `lat` [default: a
    /// generated city]
    #[arg(long, value_name = "FILE")]
    pub(crate) moves: Option<PathBuf>,
    /// How many times faster than real time
    #[arg(long, value_name = "FACTOR", default_value_t = 20.0)]
    pub(crate) speed: f64,
    /// How long the demo runs, in recorded time
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "3m")]
    pub(crate) length: Duration,
    /// Drivers in the generated city
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) drivers: u32,
    /// Keep the store here, in a directory that is new or empty [default: a temporary one]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct SubscribeArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The topic, or a filter with + and # as in MQTT
    pub(crate) topic: String,
    /// How far back to begin: 60s, 10m, 2h, 1d [default: with all stored publications, or with none
    /// if --for or --follow is given]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) since: Option<Duration>,
    /// How long to wait for new publications
    #[arg(long = "for", value_name = "TIME", value_parser = duration, conflicts_with = "follow")]
    pub(crate) lasting: Option<Duration>,
    /// Wait for new publications until interrupted
    #[arg(long)]
    pub(crate) follow: bool,
    /// Print only publications that meet this condition
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) condition: Option<Expr>,
    #[command(flatten)]
    pub(crate) area: AreaArgs,
}

#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// The store's directory; it must not exist yet
    pub(crate) dir: PathBuf,
    /// The file of subscriptions, sorted by `at`
    #[arg(long, value_name = "FILE")]
    pub(crate) subscriptions: PathBuf,
    /// The file of publications, sorted by time
    #[arg(long, value_name = "FILE")]
    pub(crate) publications: PathBuf,
    /// The field of a publication with its time
    #[arg(long, value_name = "FIELD")]
    pub(crate) time: Path,
    /// The field of a publication with its topic
    #[arg(long, value_name = "FIELD")]
    pub(crate) topic: Option<Path>,
    /// The fields of a publication with longitude and latitude
    #[arg(long, value_name = "LON,LAT", value_parser = position)]
    pub(crate) position: Option<(Path, Path)>,
    /// How both are stored: in one tree (dual), in two (two), or publications alone, queried
    /// repeatedly (rep)
    #[arg(long, value_enum, default_value_t = ReplayArchitecture::Dual, help_heading = "To compare")]
    pub(crate) architecture: ReplayArchitecture,
    /// How areas are stored: in few cells of any size, or in all of the smallest
    #[arg(long, value_enum, default_value_t = ReplayGranularity::Variable, help_heading = "To compare")]
    pub(crate) granularity: ReplayGranularity,
    /// With rep: the interval between queries, in units of the time field
    #[arg(
        long,
        value_name = "N",
        help_heading = "To compare",
        required_if_eq("architecture", "rep")
    )]
    pub(crate) every: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplayArchitecture {
    Dual,
    Two,
    Rep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplayGranularity {
    Variable,
    Fixed,
}

fn position(text: &str) -> Result<(Path, Path), String> {
    let (lon, lat) = text
        .split_once(',')
        .ok_or("expected two fields separated by a comma: longitude, then latitude")?;
    Ok((Path::parse(lon.trim())?, Path::parse(lat.trim())?))
}
