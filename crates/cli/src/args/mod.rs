//! What can be said on the command line: commands, arguments, and how their values are read.

mod changes;
mod expiry;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use changes::CHANGES_HELP;
pub(crate) use changes::ChangesArgs;
use expiry::{EXPIRE_HELP, TTL_HELP};
pub(crate) use expiry::{ExpireArgs, TtlArgs};
pub(crate) use values::{Limit, Strategy, Ttl, durability, size, ttl};
use values::{limit, parse_k, parse_mix, versions};

/// Find JSON records by any attribute.
#[derive(Parser)]
#[command(name = "esker", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Memory that the store may use, in bytes (K, M and G are understood)
    #[arg(long, global = true, value_name = "BYTES", default_value = "128M", value_parser = size)]
    pub(crate) memory: usize,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  esker demo
  esker load db events events.ndjson.zst --key id --index user:lazy --index time:embedded
  esker lookup db events user ann --limit 10
  esker range db events time 1547194388 1547280788 | jq .text
  esker find db events user=ann 'time>=1547194388' --explain
  esker count db events
  esker index switch db events user:composite

Exit codes: 0 found or done, 1 not found, 2 usage or bad input, 3 damaged or unavailable store.";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Load a generated stream of tweet-like records, query it, and show what happened
    #[command(
        after_help = "Examples:\n  esker demo\n  esker demo --records 50000 --dir /tmp/tweets"
    )]
    Demo(DemoArgs),
    /// Load files of records into a dataset, which is made where it is new
    #[command(after_help = LOAD_HELP)]
    Load(LoadArgs),
    /// Put records from standard input, one JSON object a line
    #[command(after_help = "Example:\n  echo '{\"id\":7,\"user\":\"ann\"}' | esker put db events")]
    Put(PutArgs),
    /// Print the record with a key
    #[command(after_help = "Example:\n  esker get db events 200001")]
    Get(GetArgs),
    /// Print the latest versions of a record, newest first, behind the sequence numbers of their writes
    #[command(after_help = READ_KEY_HELP)]
    ReadKey(ReadKeyArgs),
    /// Print the versions of records whose attributes match tokens, newest first, behind their numbers
    #[command(after_help = READ_VALUE_HELP)]
    ReadValue(ReadValueArgs),
    /// Delete the record with a key
    #[command(after_help = "Example:\n  esker delete db events 200001")]
    Delete(DeleteArgs),
    /// Print the records whose attribute has a value
    #[command(after_help = "Example:\n  esker lookup db events user ann --limit 10")]
    Lookup(LookupArgs),
    /// Print the records whose attribute is between two values, both included
    #[command(after_help = "Example:\n  esker range db events time 1547194388 1547280788")]
    Range(RangeArgs),
    /// Print the records for which all expressions hold
    #[command(after_help = FIND_HELP)]
    Find(FindArgs),
    /// Print the records in the order of their keys
    #[command(after_help = "Example:\n  esker scan db events --from 100 --to 200 --reverse")]
    Scan(ScanArgs),
    /// Print the number of records, all or those with an attribute between two values
    #[command(after_help = "Examples:\n  esker count db events\n  esker count db events files 1 3")]
    Count(CountArgs),
    /// Add, switch or drop an index of a dataset, or resume a change that was cut off
    #[command(after_help = INDEX_HELP)]
    Index(IndexArgs),
    /// Say which kind of index fits each attribute, with the numbers and the command that changes it
    #[command(after_help = ADVISE_HELP)]
    Advise(AdviseArgs),
    /// Show the layers and counters of a store or a dataset
    #[command(after_help = "Example:\n  esker stat db events --json | jq .")]
    Stat(StatArgs),
    /// Read and verify every file of a store
    #[command(after_help = "Example:\n  esker check db")]
    Check(DirArgs),
    /// Change how a dataset finds out which index entries are obsolete, while it stays as it is
    #[command(
        after_help = "A command that was killed goes on when it is given again; answers are exact in between.\n\nExamples:\n  esker maintain db events mutable-bitmap\n  esker maintain db events auto"
    )]
    Maintain(MaintainArgs),
    /// Find what replaced records left behind, so that queries pass over it and merges leave it out
    #[command(after_help = REPAIR_HELP)]
    Repair(RepairArgs),
    /// Change how long the records of a dataset live
    #[command(after_help = TTL_HELP)]
    Ttl(TtlArgs),
    /// Delete the records that have expired
    #[command(after_help = EXPIRE_HELP)]
    Expire(ExpireArgs),
    /// Merge the layers of a store or a dataset
    #[command(after_help = "Example:\n  esker compact db events")]
    Compact(CompactArgs),
    /// Copy a store, as it is now, into a new directory
    #[command(after_help = "Example:\n  esker backup db db-monday")]
    Backup(BackupArgs),
    /// Keep what a store holds now under a name, list what is kept, or drop it
    #[command(after_help = SNAPSHOT_HELP)]
    Snapshot(SnapshotArgs),
    /// Print the changes of a dataset in the order in which they were committed
    #[command(after_help = CHANGES_HELP)]
    Changes(ChangesArgs),
}

const LOAD_HELP: &str = "\
FILE may be '-' (standard input), plain, .gz or .zst. Loading into a dataset that exists replaces
records with the same key; its definition need not be repeated. Bad lines go to FILE.rejected.
KIND is embedded, fingerprint, filter, lazy, composite, recent or eager. TYPE is int, float, string, bool or time, by default what
the first records show, and belongs to the dataset from then on. TOKENIZER is exact (default), prefix (an index of the
beginnings of strings, for ^=) or number (int, float and time).

Examples:
  esker load db events events.ndjson.zst --key id --index user:lazy --index time:embedded
  zcat more.gz | esker load db events -
  esker load db places places.csv --key code:string --index population:composite:int
  esker load db events events.ndjson --key id --index user:composite --maintenance validation --merging tiered";

const INDEX_HELP: &str = "\
Every record is read once, and nothing is changed until the new index is complete. A command that was killed goes on
where it was when it is given again, or with `esker index resume`.

Examples:
  esker index add db events files:lazy
  esker index switch db events user:composite
  esker index drop db events user
  esker index resume db";

const REPAIR_HELP: &str = "\
By key: what was written since the last repair, and what it replaced, from the primary-key index. By index: each index is
sorted and validated. Primary: a pass over all versions of all records, with --compaction before or after merging them.
Reads and writes of other threads go on; a repair that was killed loses only work.

Examples:
  esker repair db events
  esker repair db events --method index --threads 2 --rate 50M
  esker repair db events --method primary --compaction after
  esker repair db events --rebuild-index user.name";

const READ_KEY_HELP: &str = "\
Of a dataset that keeps N versions one is gone once the key was written N more times.

Examples:
  esker read-key db prices 7
  esker read-key db prices 7 --versions 3 --at 1200";

const READ_VALUE_HELP: &str = "\
A version is printed when it is among the latest M of its key (as of --at), and each attribute has a value that its
TOKEN matches: the value itself, or with an index of prefixes its beginning. When there is more, the last line on
standard error tells what --after goes on with.

Examples:
  esker read-value db jobs state=ready
  esker read-value db jobs state=ready team=red --versions 2 --at 1200 --limit 20";

const ADVISE_HELP: &str = "\
The mix of operations is what programs that wrote counted; commands that only read leave nothing behind. With --mix each
attribute is taken to be asked by that share of lookups and ranges.

Examples:
  esker advise db events
  esker advise db events --mix puts=80,gets=15,lookups=5 --k 10";

const SNAPSHOT_HELP: &str = "\
What a snapshot sees stays as it is whatever is written, merged, changed or dropped afterwards, until the snapshot is dropped;
it takes the space of what was replaced since. It is a part of backups. Commands that read take --snapshot NAME.

Examples:
  esker snapshot db before-import
  esker count db events --snapshot before-import
  esker snapshot db
  esker snapshot db before-import --drop";

const FIND_HELP: &str = "\
EXPR is made of tests, joined by and, or, not and ( ). A test is one of
  PATH = V   PATH != V   PATH < V   PATH <= V   PATH > V   PATH >= V
  PATH ^= PREFIX     text that begins with PREFIX
  PATH contains V    the array has the element V
  PATH in (V, V...)  equals one of these
  PATH exists, PATH is null, PATH is not null
Blanks around an operator mean nothing. V ends at a blank or ), and takes the type of what it is
compared with; a value with blanks is quoted. Where a field is absent only `is null` and `not` hold.
Quote EXPR for the shell. Several are joined by and.

Examples:
  esker find db events user=ann 'time>=1547194388' --limit 10
  esker find db events 'path^=src/' --oldest
  esker find db events 'user in (ann, bob) and not tags contains new'
  esker find db events 'title = \"two words\" or (ms > 10 and title is null)'";

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// How many records to generate
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) records: u64,
    /// Keep the store here, in a directory that is new or empty [default: a temporary one]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
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
    /// The field that is the primary key, with its type (int or string) if wanted
    #[arg(long, value_name = "FIELD[:TYPE]")]
    pub(crate) key: Option<String>,
    /// An attribute to index, may be repeated [default kind: lazy]
    #[arg(long = "index", value_name = "PATH[:KIND[:TYPE[:TOKENIZER]]]")]
    pub(crate) indexes: Vec<String>,
    /// When index entries of replaced records are found to be obsolete: eager, validation, mutable-bitmap,
    /// deferred, deleted-key, or auto, which chooses by what is measured [default: deferred]
    #[arg(long, value_name = "STRATEGY")]
    pub(crate) maintenance: Option<Strategy>,
    /// When that is noted for good: merge, staged or none [default: merge]
    #[arg(long, value_name = "WHEN")]
    pub(crate) repair: Option<esker::Repair>,
    /// How the trees are merged: lazy-leveled, leveled, tiered or correlated [default: lazy-leveled]
    #[arg(long, value_name = "POLICY")]
    pub(crate) merging: Option<esker::Merging>,
    /// How many versions of a record are kept [default: 1]
    #[arg(long, value_name = "M")]
    pub(crate) versions: Option<u32>,
    /// Records expire so long after they were written, such as 7d, 12h, 30m or 10s; `esker ttl` changes it for later writes
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    pub(crate) ttl: Option<std::time::Duration>,
    /// Records expire at the time that they have at PATH, RFC 3339 or seconds since 1970; absent or null: never. With --ttl the earlier counts
    #[arg(long, value_name = "PATH")]
    pub(crate) expires: Option<esker::Path>,
    /// The form of the files [default: csv where the name says so, else ndjson]
    #[arg(long)]
    pub(crate) format: Option<Format>,
    /// Stop at the first bad line
    #[arg(long)]
    pub(crate) strict: bool,
    /// When writes reach the disk: sync (each batch), os (when the system likes), or every MS
    #[arg(long, value_name = "sync|os|MS", default_value = "1000", value_parser = durability)]
    pub(crate) durability: esker::Durability,
}

/// The form of an input file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One JSON object a line
    Ndjson,
    /// Comma-separated values with a header row
    Csv,
}

#[derive(Args)]
pub(crate) struct PutArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// When writes reach the disk: sync (each batch), os (when the system likes), or every MS
    #[arg(long, value_name = "sync|os|MS", default_value = "sync", value_parser = durability)]
    pub(crate) durability: esker::Durability,
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
    /// As it was in the snapshot that is kept under this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
}

/// What the readers of versions take.
#[derive(Args)]
pub(crate) struct VersionArgs {
    /// As of the write with this sequence number [default: now]
    #[arg(long, value_name = "SEQ")]
    pub(crate) at: Option<u64>,
    /// How many of a key's versions count
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = versions)]
    pub(crate) versions: usize,
    /// Each version as one JSON object, {"seq":SEQ,"record":RECORD}
    #[arg(long)]
    pub(crate) json: bool,
    /// As they were in the snapshot that is kept under this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
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
    /// Attributes and what they must match; all must
    #[arg(required = true, value_name = "PATH=TOKEN")]
    pub(crate) tokens: Vec<String>,
    #[command(flatten)]
    pub(crate) wanted: VersionArgs,
    /// Print at most this many versions
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = limit)]
    pub(crate) limit: usize,
    /// Go on behind the page that gave this token
    #[arg(long, value_name = "TOKEN")]
    pub(crate) after: Option<esker::ValueToken>,
}

#[derive(Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) record: KeyArgs,
    /// When the write reaches the disk: sync (now), os (when the system likes), or every MS
    #[arg(long, value_name = "sync|os|MS", default_value = "sync", value_parser = durability)]
    pub(crate) durability: esker::Durability,
}

/// What every query of records takes.
#[derive(Args)]
pub(crate) struct QueryArgs {
    /// Print at most this many records
    #[arg(long, value_name = "K", value_parser = limit)]
    pub(crate) limit: Option<usize>,
    /// Print the keys of the records alone; where the dataset's maintenance allows it no record is read (a
    /// scan reads them)
    #[arg(long)]
    pub(crate) keys_only: bool,
    /// How candidates of an index are validated: auto, direct (by their records) or timestamp (by the
    /// primary-key index)
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) validation: esker::Validation,
    /// Ask the snapshot that is kept under this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    /// Print the plan and its cost, as JSON, on standard error
    #[arg(long)]
    pub(crate) explain: bool,
}

/// In which order answers come.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnswerOrder {
    /// The most recently written first
    Newest,
    /// The least recently written first
    Oldest,
    /// As they are found: the quickest way to many
    Any,
    /// By primary key, ascending
    Key,
}

/// What every query of records by attributes takes.
#[derive(Args)]
pub(crate) struct AnswerArgs {
    /// The order of the records
    #[arg(long, value_enum, default_value_t = AnswerOrder::Newest)]
    pub(crate) order: AnswerOrder,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}

#[derive(Args)]
pub(crate) struct LookupArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The attribute
    pub(crate) path: String,
    /// Its value, read as the attribute's type
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
    /// The attribute
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
    /// Conditions; all must hold
    #[arg(required = true, value_name = "EXPR")]
    pub(crate) conditions: Vec<String>,
    /// Oldest first: the same as `--order oldest`
    #[arg(long, conflicts_with = "order")]
    pub(crate) oldest: bool,
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
    /// Count the records whose attribute PATH is between LO and HI
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
    /// Ask the snapshot that is kept under this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    /// Print the plan and its cost, as JSON, on standard error
    #[arg(long)]
    pub(crate) explain: bool,
}

#[derive(Args)]
pub(crate) struct IndexArgs {
    #[command(subcommand)]
    pub(crate) change: IndexCommand,
}

#[derive(Subcommand)]
pub(crate) enum IndexCommand {
    /// Index an attribute of the records that are there, and of those to come
    Add(IndexChangeArgs),
    /// Change how an attribute is indexed
    Switch(IndexChangeArgs),
    /// Drop an index; the attribute stays declared. Takes back a change that was cut off
    Drop(IndexDropArgs),
    /// Go on with a change that was cut off
    Resume(IndexResumeArgs),
}

#[derive(Args)]
pub(crate) struct IndexChangeArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The attribute, and how to index it, as in `load` [default: lazy]
    #[arg(value_name = "PATH[:KIND[:TYPE[:TOKENIZER]]]")]
    pub(crate) index: String,
}

#[derive(Args)]
pub(crate) struct IndexDropArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The attribute
    pub(crate) path: String,
}

#[derive(Args)]
pub(crate) struct IndexResumeArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// Only this dataset
    pub(crate) dataset: Option<String>,
}

#[derive(Args)]
pub(crate) struct AdviseArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The shares of operations (puts, gets, lookups, ranges), in place of what was counted
    #[arg(long, value_name = "NAME=SHARE,...", value_parser = parse_mix)]
    pub(crate) mix: Option<esker::Mix>,
    /// With --mix: the limit of queries, or all [default: 10]
    #[arg(long, value_name = "K|all", requires = "mix", value_parser = parse_k)]
    pub(crate) k: Option<Limit>,
    /// One JSON document, for machines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct StatArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// Only this dataset
    pub(crate) dataset: Option<String>,
    /// One JSON document, for machines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct DirArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
}

#[derive(Args)]
pub(crate) struct MaintainArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// eager, validation, mutable-bitmap, deferred, deleted-key, or auto, which chooses by what is measured
    pub(crate) strategy: Strategy,
}

#[derive(Args)]
pub(crate) struct RepairArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// Build the index of this field again from the records: for an index whose files are damaged or missing
    #[arg(long, value_name = "PATH", conflicts_with_all = ["method", "compaction", "buffer", "threads", "rate", "no_bloom", "lookups", "json"])]
    pub(crate) rebuild_index: Option<String>,
    /// What is gone through [default: what fits the dataset]
    #[arg(long, value_enum, default_value_t = RepairBy::Auto, hide_default_value = true)]
    pub(crate) method: RepairBy,
    /// With --method primary: when the records are merged, too [default: not at all]
    #[arg(long)]
    pub(crate) compaction: Option<RepairCompaction>,
    /// Memory of sorters and buffers [default: 16M]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(crate) buffer: Option<usize>,
    /// Threads that read [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
    /// Bytes to read in a second at most [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(crate) rate: Option<usize>,
    /// By index: sort all keys, also those that no key filter knows
    #[arg(long)]
    pub(crate) no_bloom: bool,
    /// How the entries of known keys are found
    #[arg(long, value_enum, default_value_t = RepairLookups::Auto)]
    pub(crate) lookups: RepairLookups,
    /// One JSON document, for machines
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a repair goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepairBy {
    /// What fits the dataset
    Auto,
    /// The primary-key index since the last repair
    Key,
    /// Each index
    Index,
    /// The records
    Primary,
}

/// When a primary repair merges the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepairCompaction {
    /// The repair comes before the merge
    Before,
    /// The repair comes after the merge
    After,
}

/// How a repair finds the entries of known keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepairLookups {
    /// As what there is to read suggests
    Auto,
    /// By batches of lookups
    Points,
    /// By reading all
    MergeScan,
}

#[derive(Args)]
pub(crate) struct CompactArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// Only this dataset
    pub(crate) dataset: Option<String>,
}

#[derive(Args)]
pub(crate) struct BackupArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The new directory, which must not exist
    pub(crate) dest: PathBuf,
}

#[derive(Args)]
pub(crate) struct SnapshotArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The snapshot's name: 1 to 64 letters, digits, `-`, `_` and `.` [default: list those that are kept]
    pub(crate) name: Option<String>,
    /// Drop the snapshot of this name
    #[arg(long, requires = "name")]
    pub(crate) drop: bool,
}
