//! The arguments of commands that read records.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::EnumValueParser;
use clap::{Args, ValueEnum};
use esker::{Order, Path};

use super::values::{Columns, age, columns, limit, validation, versions, width};

/// The form of printed records.
#[derive(Args)]
pub(crate) struct RowsArgs {
    /// How records are printed [default: a table on a terminal, where the answer may have several
    /// records; else ndjson]
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) format: Option<RowForm>,
    /// With a table: the most columns of a line [default: those of the terminal]
    #[arg(long, value_name = "N", value_parser = width)]
    pub(crate) width: Option<usize>,
    /// Print only these fields, as paths; a comma in a name has a backslash before it. JSON keeps
    /// the objects around them, and leaves out fields that a record does not have [default: whole
    /// records; with csv and table, the fields of the first record]
    #[arg(long, alias = "columns", value_name = "PATH,...", value_parser = columns)]
    pub(crate) select: Vec<Columns>,
}

/// The form of printed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowForm {
    /// As they were put, one per line
    Ndjson,
    /// The same in one array
    Json,
    /// Comma-separated values under a header row
    Csv,
    /// Aligned columns for people; long values are cut
    Table,
}

/// The form of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainForm {
    /// Text on a terminal, JSON elsewhere
    Auto,
    /// For people
    Text,
    /// For programs
    Json,
}

#[derive(Args)]
pub(crate) struct KeyArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The record's primary key
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: String,
}

#[derive(Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) record: KeyArgs,
    /// As it was in the snapshot of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
}

/// Arguments of the commands that read versions.
#[derive(Args)]
pub(crate) struct VersionArgs {
    /// As of the write with this sequence number; each printed line begins with one [default: now]
    #[arg(long, value_name = "SEQ")]
    pub(crate) at: Option<u64>,
    /// How many of a key's latest versions to look at
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = versions)]
    pub(crate) versions: usize,
    /// Print each version as one JSON object, {"seq":SEQ,"record":RECORD}
    #[arg(long, conflicts_with_all = ["format", "width", "select"])]
    pub(crate) json: bool,
    /// As they were in the snapshot of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
}

#[derive(Args)]
pub(crate) struct ReadKeyArgs {
    #[command(flatten)]
    pub(crate) record: KeyArgs,
    #[command(flatten)]
    pub(crate) wanted: VersionArgs,
}

#[derive(Args)]
pub(crate) struct ReadValueArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// Fields and their values; all must match
    #[arg(required = true, value_name = "PATH=TOKEN")]
    pub(crate) tokens: Vec<String>,
    #[command(flatten)]
    pub(crate) wanted: VersionArgs,
    /// Print at most this many versions
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = limit)]
    pub(crate) limit: usize,
    /// Continue after the page that ended with this token
    #[arg(long, value_name = "TOKEN")]
    pub(crate) after: Option<esker::versions::ValueToken>,
}

/// Arguments of every query for records.
#[derive(Args)]
pub(crate) struct QueryArgs {
    /// Print at most this many records
    #[arg(long, value_name = "K", value_parser = limit)]
    pub(crate) limit: Option<usize>,
    /// Print only the keys, one per line; faster if the index and the maintenance strategy (`esker
    /// maintain --help`) make reading the records unnecessary
    #[arg(long, conflicts_with_all = ["format", "width", "select"])]
    pub(crate) keys_only: bool,
    /// How index entries are checked: auto, direct (by reading their records) or timestamp (by the
    /// primary-key index)
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = validation(), hide_possible_values = true,
          hide = true)]
    pub(crate) validation: esker::maintain::Validation,
    /// Read the snapshot of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    /// Print the plan and its cost on standard error: text on a terminal, else JSON, or the form
    /// given. Candidates are the index entries read; obsolete ones belong to records replaced
    /// since; discarded records do not meet the other conditions
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
          value_parser = EnumValueParser::<ExplainForm>::new(), hide_possible_values = true)]
    pub(crate) explain: Option<ExplainForm>,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
}

/// Arguments of queries for the latest record of each thing.
#[derive(Args)]
pub(crate) struct LatestArgs {
    /// Consider only the newest record of each value of this field; each element of an array is a
    /// value
    #[arg(long, value_name = "PATH", conflicts_with_all = ["order", "after"])]
    pub(crate) latest_per: Option<Path>,
    /// With --latest-per: the field with the time of a record: RFC 3339, or a number in the unit of
    /// its declared type, otherwise seconds since 1970 [default: the order of writes]
    #[arg(long, value_name = "PATH", requires = "latest_per")]
    pub(crate) time: Option<Path>,
    /// With --time: only records up to this time, given as in the field
    #[arg(
        long,
        value_name = "TIME",
        requires = "time",
        allow_negative_numbers = true
    )]
    pub(crate) as_of: Option<String>,
    /// With --as-of: only records at most this much older: 60s, 10m (a plain number is seconds)
    #[arg(long, value_name = "TIME", requires = "as_of", value_parser = age)]
    pub(crate) max_age: Option<Duration>,
}

/// Arguments of every query by field.
#[derive(Args)]
pub(crate) struct AnswerArgs {
    /// The order of the records: newest or oldest (by their writes), key (by primary key), any (the
    /// fastest for many records), or fields, as in delay:desc,dest; a field of such a name is
    /// key:asc
    #[arg(long, value_name = "ORDER", default_value = "newest")]
    pub(crate) order: Order,
    /// Leave out this many records, the first in the order; with --after, the page before has
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: usize,
    /// Continue after the page that ended with this token: with the same conditions and order
    /// (not any)
    #[arg(long, value_name = "TOKEN")]
    pub(crate) after: Option<esker::PageToken>,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}

#[derive(Args)]
pub(crate) struct LookupArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The field, as a path such as user.name
    pub(crate) path: String,
    /// Its value, read as the field's type
    #[arg(allow_negative_numbers = true)]
    pub(crate) value: String,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Args)]
pub(crate) struct RangeArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The field, as a path such as user.name
    pub(crate) path: String,
    /// The smallest value
    #[arg(allow_negative_numbers = true)]
    pub(crate) lo: String,
    /// The largest value
    #[arg(allow_negative_numbers = true)]
    pub(crate) hi: String,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Args)]
pub(crate) struct FindArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// Conditions; all must hold [default: all records]
    #[arg(value_name = "EXPR")]
    pub(crate) conditions: Vec<String>,
    /// Oldest first: the same as `--order oldest`
    #[arg(long, conflicts_with_all = ["order", "latest_per"])]
    pub(crate) oldest: bool,
    #[command(flatten)]
    pub(crate) latest: LatestArgs,
    /// With --latest-per: print only the number of records
    #[arg(long, requires = "latest_per", conflicts_with_all = ["format", "select", "keys_only"])]
    pub(crate) count: bool,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Args)]
pub(crate) struct ScanArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The first key, included
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) from: Option<String>,
    /// The last key, included
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) to: Option<String>,
    /// From the largest key to the smallest
    #[arg(long)]
    pub(crate) reverse: bool,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}

#[derive(Args)]
pub(crate) struct CountArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// Count the records whose field PATH is between LO and HI
    #[arg(requires = "hi")]
    pub(crate) path: Option<String>,
    /// The smallest value
    #[arg(allow_negative_numbers = true)]
    pub(crate) lo: Option<String>,
    /// The largest value
    #[arg(allow_negative_numbers = true)]
    pub(crate) hi: Option<String>,
    /// Count the records that meet this condition (see `find`); several must all hold
    #[arg(long = "where", value_name = "EXPR", conflicts_with = "path")]
    pub(crate) conditions: Vec<String>,
    /// Read the snapshot of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    /// Print the plan and its cost on standard error: text on a terminal, else JSON, or the form
    /// given. Candidates are the index entries read; obsolete ones belong to records replaced
    /// since; discarded records do not meet the other conditions
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
          value_parser = EnumValueParser::<ExplainForm>::new(), hide_possible_values = true)]
    pub(crate) explain: Option<ExplainForm>,
}
