//! The arguments of commands that write records.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::values::{Strategy, delimiter, durability, duration, merging, repair, strategy};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DemoArgs {
    #[command(subcommand)]
    pub(crate) other: Option<super::pubsub::DemoCommand>,
    /// How many records to generate
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) records: u64,
    /// Keep the store here, in a directory that is new or empty [default: a temporary one]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

/// The definition of a dataset: key, indexes, maintenance.
#[derive(Args)]
pub(crate) struct DefinitionArgs {
    /// The field that is the primary key, and its type: int or string (`load` infers the type if it
    /// is left out); several fields separated by commas, as in --key cluster,id; or auto, which
    /// adds the field `_id` to records that have none
    #[arg(long, value_name = "FIELD[:TYPE]")]
    pub(crate) key: Option<String>,
    /// A field to index, and how (see below); may be repeated [default kind: lazy]
    #[arg(long = "index", value_name = "PATH[?][:KIND[:TYPE[:TOKENIZER]]]")]
    pub(crate) indexes: Vec<String>,
    /// Store the records in the order of the points at PATH (a path as for an index of kind
    /// spatial, or POINT@TIME), so that a query for an area reads neighbouring blocks; this cannot
    /// be changed later
    #[arg(long, value_name = "PATH[:plane]")]
    pub(crate) cluster: Option<String>,
    /// When outdated index entries are detected: see `esker maintain --help` [default: deferred;
    /// with --cluster validation]
    #[arg(long, value_name = "STRATEGY", value_parser = strategy(), hide_possible_values = true)]
    pub(crate) maintenance: Option<Strategy>,
    /// How many versions of each record to keep, for `read-key` and `read-value` [default: 1]
    #[arg(long, value_name = "M")]
    pub(crate) versions: Option<u32>,
    /// Records expire this long after their write: 7d, 12h, 30m, 10s; `esker ttl` changes it for
    /// later writes
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) ttl: Option<std::time::Duration>,
    /// Records expire at the time in their field PATH (text, or a number in the unit of TYPE:
    /// time_s, time_ms, time_us, time_ns; absent or null: never). With --ttl the earlier time
    /// counts
    #[arg(long, value_name = "PATH[:TYPE]")]
    pub(crate) expires: Option<esker::schema::ExpiresText>,
    /// Keep the record that each change replaced, for `esker changes --old`; each write then also
    /// reads that record
    #[arg(long)]
    pub(crate) old_records: bool,
    /// When obsolete index entries are recorded: during compactions (merge), by passes over the
    /// records (staged), or only by `esker repair` (none) [default: merge]
    #[arg(long, value_name = "WHEN", value_parser = repair(), hide_possible_values = true, hide = true)]
    pub(crate) repair: Option<esker::schema::Repair>,
    /// The compaction policy of the trees: lazy-leveled, leveled, tiered or correlated [default:
    /// lazy-leveled]
    #[arg(long, value_name = "POLICY", value_parser = merging(), hide_possible_values = true, hide = true)]
    pub(crate) merging: Option<esker::schema::Merging>,
}

#[derive(Args)]
pub(crate) struct CreateArgs {
    /// The store's directory (created if it does not exist)
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    #[command(flatten)]
    pub(crate) definition: DefinitionArgs,
}

#[derive(Args)]
pub(crate) struct LoadArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// Files to load; '-' is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) definition: DefinitionArgs,
    /// The format of the files [default: csv for names in .csv, tsv for .tsv and .tab, else ndjson]
    #[arg(long)]
    pub(crate) format: Option<Format>,
    /// The separator of CSV columns: one character, or tab [default: detected in the header: comma,
    /// semicolon, tab or bar]
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    pub(crate) delimiter: Option<u8>,
    /// The records are the elements of the array at PATH of each JSON value of the files; `.` reads
    /// each value itself as a record
    #[arg(long, value_name = "PATH")]
    pub(crate) records: Option<String>,
    /// Stop at the first bad line
    #[arg(long)]
    pub(crate) strict: bool,
    /// Exit with 0 even if lines were rejected, as long as others were loaded
    #[arg(long)]
    pub(crate) allow_rejects: bool,
    /// Load all files from their beginning, even if an interrupted load of them could resume; ends
    /// interrupted loads of them with other options
    #[arg(long)]
    pub(crate) restart: bool,
    /// Draw the levels of each spatial index into this folder after each compaction: the tables
    /// that it wrote, and, dashed, those that it replaced
    #[arg(long, value_name = "DIR")]
    pub(crate) view: Option<PathBuf>,
    /// When writes are synced to disk: each batch (sync), when the operating system does it (os),
    /// or at least at this interval (5ms, 1s; a plain number is milliseconds)
    #[arg(long, value_name = "sync|os|TIME", default_value = "1s", value_parser = durability)]
    pub(crate) durability: esker::Durability,
}

/// The format of an input file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// JSON objects: one per line, or in other JSON files
    Ndjson,
    /// Comma-separated values with a header row
    Csv,
    /// Tab-separated values with a header row
    Tsv,
}

impl From<Format> for esker_import::Format {
    fn from(format: Format) -> Self {
        match format {
            Format::Ndjson => Self::Ndjson,
            Format::Csv | Format::Tsv => Self::Csv,
        }
    }
}

#[derive(Args)]
pub(crate) struct PutArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// Each line changes a part of the record with its key: a JSON merge patch
    #[arg(long)]
    pub(crate) merge: bool,
    /// When writes are synced to disk: each batch (sync), when the operating system does it (os),
    /// or at least at this interval (5ms, 1s; a plain number is milliseconds)
    #[arg(long, value_name = "sync|os|TIME", default_value = "sync", value_parser = durability)]
    pub(crate) durability: esker::Durability,
}

#[derive(Args)]
pub(crate) struct DeleteArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// Primary keys; '-' reads more from standard input, one per line
    #[arg(
        required_unless_present = "conditions",
        value_name = "KEY",
        allow_negative_numbers = true
    )]
    pub(crate) keys: Vec<String>,
    /// Delete the records that meet this condition (see `find`); several must all hold
    #[arg(long = "where", value_name = "EXPR", conflicts_with = "keys")]
    pub(crate) conditions: Vec<String>,
    /// When writes are synced to disk: each batch (sync), when the operating system does it (os),
    /// or at least at this interval (5ms, 1s; a plain number is milliseconds)
    #[arg(long, value_name = "sync|os|TIME", default_value = "sync", value_parser = durability)]
    pub(crate) durability: esker::Durability,
}
