//! The arguments of commands that look after datasets and stores.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::values::{Limit, Strategy, parse_k, parse_mix, size, strategy};

#[derive(Args)]
pub(crate) struct IndexArgs {
    #[command(subcommand)]
    pub(crate) change: IndexCommand,
}

#[derive(Subcommand)]
pub(crate) enum IndexCommand {
    /// Index a field of all records, including existing ones
    #[command(after_help = super::help::INDEX_ADD)]
    Add(IndexChangeArgs),
    /// Change how a field is indexed
    #[command(after_help = super::help::INDEX_SWITCH)]
    Switch(IndexChangeArgs),
    /// Drop an index, or cancel an interrupted change; records that do not fit the field's type are
    /// still refused
    Drop(IndexDropArgs),
    /// Resume an interrupted change
    Resume(IndexResumeArgs),
}

#[derive(Args)]
pub(crate) struct IndexChangeArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The field, and how to index it; without KIND, lazy
    #[arg(value_name = "PATH[:KIND[:TYPE[:TOKENIZER]]]")]
    pub(crate) index: String,
}

#[derive(Args)]
pub(crate) struct IndexDropArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The field
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
    /// The shares of operations (puts, gets, lookups, ranges), instead of the counted ones
    #[arg(long, value_name = "NAME=SHARE,...", value_parser = parse_mix)]
    pub(crate) mix: Option<esker::advise::Mix>,
    /// With --mix: the limit of queries, or all [default: 10]
    #[arg(long, value_name = "K|all", requires = "mix", value_parser = parse_k)]
    pub(crate) k: Option<Limit>,
    /// One JSON document, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct StatArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// Only this dataset
    pub(crate) dataset: Option<String>,
    /// Also print internals: trees, levels, memory, jobs, counters
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// One JSON document with everything, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct DirArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
}

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// Only this dataset of a cluster; a directory is checked as a whole
    pub(crate) dataset: Option<String>,
}

#[derive(Args)]
pub(crate) struct MaintainArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// auto, deferred, validation, mutable-bitmap or eager
    #[arg(value_parser = strategy(), hide_possible_values = true)]
    pub(crate) strategy: Strategy,
}

#[derive(Args)]
pub(crate) struct RepairArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// Rebuild the index of this field from the records: for an index whose files are damaged or
    /// missing
    #[arg(long, value_name = "PATH", conflicts_with_all = ["method", "compaction", "buffer", "threads", "rate", "no_bloom", "lookups", "json"])]
    pub(crate) rebuild_index: Option<String>,
    /// The data that the repair reads [default: auto]
    #[arg(long, value_enum, default_value_t = RepairBy::Auto, hide_default_value = true)]
    pub(crate) method: RepairBy,
    /// With --method primary: also compact the records, before or after the repair [default: not at
    /// all]
    #[arg(long, hide = true)]
    pub(crate) compaction: Option<RepairCompaction>,
    /// Memory for sorting and buffers [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) buffer: Option<usize>,
    /// Number of reading threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
    /// Largest number of bytes to read per second [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) rate: Option<usize>,
    /// By index: sort all keys, also those that are in no key filter
    #[arg(long, hide = true)]
    pub(crate) no_bloom: bool,
    /// How to find the entries of known keys
    #[arg(long, value_enum, default_value_t = RepairLookups::Auto, hide = true)]
    pub(crate) lookups: RepairLookups,
    /// One JSON document, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// The data that a repair reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepairBy {
    /// The method that fits the dataset
    Auto,
    /// The primary-key index since the last repair
    Key,
    /// Each index
    Index,
    /// The records
    Primary,
}

/// When a primary repair compacts the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepairCompaction {
    /// The repair comes before the compaction
    Before,
    /// The repair comes after the compaction
    After,
}

/// How a repair finds the entries of known keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepairLookups {
    /// Chosen by the amount of data to read
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
    /// The snapshot's name: 1 to 64 letters, digits, `-`, `_` and `.` [default: list the snapshots]
    pub(crate) name: Option<String>,
    /// Drop the snapshot of this name
    #[arg(long, requires = "name")]
    pub(crate) drop: bool,
}

#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args)]
pub(crate) struct ManArgs {
    /// The directory for the pages, esker.1 and one page per command; created if it does not exist
    pub(crate) dir: PathBuf,
}
