//! The commands.

use clap::{Parser, Subcommand};

use super::{
    AdviseArgs, AggregateArgs, BackupArgs, ChangesArgs, CheckArgs, CompactArgs, CompletionsArgs,
    CopyArgs, CountArgs, CreateArgs, DeleteArgs, DemoArgs, DirArgs, DropArgs, ExpireArgs,
    FenceArgs, FieldsArgs, FindArgs, GetArgs, IndexArgs, ListArgs, LoadArgs, LookupArgs,
    MaintainArgs, ManArgs, NearArgs, PublishArgs, PutArgs, RangeArgs, ReadKeyArgs, ReadValueArgs,
    RenameArgs, RepairArgs, ReplayArgs, ScanArgs, SnapshotArgs, StatArgs, SubscribeArgs, TtlArgs,
    UpdateArgs, ViewArgs, WithinArgs,
};
#[cfg(feature = "server")]
use super::{ServeArgs, TokenArgs, serve};
#[cfg(feature = "volume")]
use super::{VolumeArgs, volume};
use super::{aggregate, changes, copy, datasets, expiry, help, pubsub, space, update, values};
use crate::report::ProgressForm;

/// Find JSON records by any of their fields.
#[derive(Parser)]
#[command(name = "esker", version, arg_required_else_help = true, after_help = help::EXAMPLES)]
pub(crate) struct Cli {
    /// Memory that the store may use: bytes, or with a unit, as in 64M or 64MiB
    #[arg(long, global = true, hide = true, value_name = "SIZE", default_value = "128M", value_parser = values::size)]
    pub(crate) memory: usize,
    /// Progress on standard error: a line on terminals (auto), none, or JSON objects, one per line,
    /// instead of all other messages (json)
    #[arg(long, global = true, hide = true, value_enum, value_name = "FORM", default_value_t = ProgressForm::Auto, hide_possible_values = true)]
    pub(crate) progress: ProgressForm,
    /// A file with the token for a server (http://...), in place of the one in ESKER_TOKEN
    #[cfg(feature = "server")]
    #[arg(long, global = true, hide = true, value_name = "FILE")]
    pub(crate) token_file: Option<std::path::PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Load a generated stream of tweet-like records, query it, and show the results
    #[command(
        after_help = "Examples:\n  esker demo\n  esker demo --records 50000 --dir /tmp/tweets\n  esker demo pubsub"
    )]
    Demo(DemoArgs),
    /// Create a dataset without records
    #[command(after_help = help::CREATE)]
    Create(CreateArgs),
    /// List the datasets of a store
    #[command(after_help = datasets::LIST_HELP)]
    List(ListArgs),
    /// Give a dataset another name
    #[command(after_help = datasets::RENAME_HELP)]
    Rename(RenameArgs),
    /// Drop datasets with their records and indexes
    #[command(after_help = datasets::DROP_HELP)]
    Drop(DropArgs),
    /// Load records from files into a dataset (created if it does not exist)
    #[command(after_help = help::LOAD)]
    Load(LoadArgs),
    /// Put records from standard input, one JSON object per line
    #[command(after_help = help::PUT)]
    Put(PutArgs),
    /// Change fields of a record
    #[command(after_help = update::UPDATE_HELP)]
    Update(UpdateArgs),
    /// Print the record with a key
    #[command(after_help = "Example:\n  esker get db events 200001")]
    Get(GetArgs),
    /// Print the latest versions of a record, newest first, each with the sequence number of its
    /// write
    #[command(after_help = help::READ_KEY)]
    ReadKey(ReadKeyArgs),
    /// Print the versions of records whose fields have given values, newest first, each with its
    /// sequence number
    #[command(after_help = help::READ_VALUE)]
    ReadValue(ReadValueArgs),
    /// Delete the records with these keys, or those that meet a condition
    #[command(after_help = help::DELETE)]
    Delete(DeleteArgs),
    /// Print the records whose field has a value
    #[command(after_help = "Example:\n  esker lookup db events user ann --limit 10")]
    Lookup(LookupArgs),
    /// Print the records whose field is between two values, both included
    #[command(after_help = "Example:\n  esker range db events time 1547194388 1547280788")]
    Range(RangeArgs),
    /// Print the records that meet a condition
    #[command(after_help = help::FIND)]
    Find(FindArgs),
    /// Print the records whose point lies in an area
    #[command(after_help = space::WITHIN_HELP)]
    Within(WithinArgs),
    /// Print the records nearest to a point, nearest first
    #[command(after_help = space::NEAR_HELP)]
    Near(NearArgs),
    /// Draw the areas of the tables of a spatial index, as SVG
    #[command(after_help = space::VIEW_HELP)]
    View(ViewArgs),
    #[cfg(feature = "volume")]
    /// Replicated block volumes: disks on several machines, reached by NBD
    #[command(after_help = volume::VOLUME_HELP)]
    Volume(VolumeArgs),
    /// Print the records in the order of their keys
    #[command(after_help = "Example:\n  esker scan db events --from 100 --to 200 --reverse")]
    Scan(ScanArgs),
    /// Print the number of records: all, or those that meet a condition
    #[command(
        after_help = "Examples:\n  esker count db events\n  esker count db events files 1 3\n  esker count db events --where 'user = ann or files > 3'"
    )]
    Count(CountArgs),
    /// Print numbers of groups of records: counts, sums, least and greatest values, percentiles
    #[command(after_help = aggregate::AGGREGATE_HELP)]
    Aggregate(AggregateArgs),
    /// Add, switch or drop an index of a dataset, or resume an interrupted change
    #[command(after_help = help::INDEX)]
    Index(IndexArgs),
    /// Advise which kind of index fits each field, with estimated costs and the command that makes
    /// the change
    #[command(after_help = help::ADVISE)]
    Advise(AdviseArgs),
    /// List the fields that the records of a dataset have, with the types of their values
    #[command(after_help = datasets::FIELDS_HELP)]
    Fields(FieldsArgs),
    /// Show the records, sizes, indexes and health of a store or a dataset
    #[command(after_help = help::STAT)]
    Stat(StatArgs),
    /// Read and verify every file of a store, or compare the indexes of a cluster with its records
    #[command(
        after_help = "Examples:\n  esker check db\n  esker check cassandra://db1/shop orders"
    )]
    Check(CheckArgs),
    /// Choose when outdated index entries are detected: at write time, at query time, or in the
    /// background
    #[command(after_help = help::MAINTAIN)]
    Maintain(MaintainArgs),
    /// Detect all outdated index entries now, so that queries skip them and compactions drop them
    #[command(after_help = help::REPAIR)]
    Repair(RepairArgs),
    /// Change the time to live of a dataset's records
    #[command(after_help = expiry::TTL_HELP)]
    Ttl(TtlArgs),
    /// Delete expired records now
    #[command(after_help = expiry::EXPIRE_HELP)]
    Expire(ExpireArgs),
    /// Compact a store or a dataset
    #[command(after_help = "Example:\n  esker compact db events")]
    Compact(CompactArgs),
    /// Copy a store, as it is now, into a new directory
    #[command(after_help = "Example:\n  esker backup db db-monday")]
    Backup(BackupArgs),
    /// Copy datasets between folders, clusters and servers, and compare both sides
    #[command(after_help = copy::COPY_HELP)]
    Copy(CopyArgs),
    /// Keep a snapshot of a store under a name, list the snapshots, or drop one
    #[command(after_help = help::SNAPSHOT)]
    Snapshot(SnapshotArgs),
    /// Print the changes of a dataset in the order in which they were committed
    #[command(after_help = changes::CHANGES_HELP)]
    Changes(ChangesArgs),
    /// Print the records that enter an area or leave it, as their dataset changes
    #[command(after_help = changes::FENCE_HELP)]
    Fence(FenceArgs),
    /// Publish JSON objects from standard input, one per line
    #[command(after_help = self::pubsub::PUBLISH_HELP)]
    Publish(PublishArgs),
    /// Print the publications to a topic, earlier ones and new ones
    #[command(after_help = self::pubsub::SUBSCRIBE_HELP)]
    Subscribe(SubscribeArgs),
    /// List the topics that have live publications or subscriptions
    #[command(after_help = self::pubsub::TOPICS_HELP)]
    Topics(DirArgs),
    /// Run subscriptions over recorded publications, in the order of time, and print each match
    /// once
    #[command(after_help = self::pubsub::REPLAY_HELP)]
    Replay(ReplayArgs),
    #[cfg(feature = "server")]
    /// Serve a store over HTTP, to programs in any language and to browsers
    #[command(after_help = serve::SERVE_HELP)]
    Serve(ServeArgs),
    #[cfg(feature = "server")]
    /// Make a token for a client of `esker serve`
    #[command(after_help = serve::TOKEN_HELP)]
    Token(TokenArgs),
    /// Print the completions for a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// List the baselines of the papers, for experiments
    #[command(hide = true, after_help = help::BASELINES)]
    Baselines,
    /// Write the manual pages into a directory
    #[command(after_help = "Example:\n  esker man ~/.local/share/man/man1 && man esker-load")]
    Man(ManArgs),
}
