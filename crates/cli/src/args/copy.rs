//! The arguments of `copy`.

use std::path::PathBuf;

use clap::Args;

pub(super) const COPY_HELP: &str = "\
FROM and TO are folders or clusters, in any combination. Definitions are created, records are copied with their indexes,
and with their versions where both sides keep them; then both sides are read and compared, by counts and checksums of
ranges of keys. A copy that was interrupted, even killed, continues when the same command is given again; given again
after that, it only compares. The exit code is 3 if the sides differ.

A cluster has composite indexes alone, and its records do not expire: what differs is said when a dataset is created.
Sequence numbers, notes, consumers of changes and named snapshots are not copied, and times to live begin anew.

Examples:
  esker copy db cassandra://db1:9042,db2/shop
  esker copy hbase://gate1/shop db orders customers
  esker copy db other-db --snapshot monday";

#[derive(Args)]
pub(crate) struct CopyArgs {
    /// The store to copy from
    pub(crate) from: PathBuf,
    /// The store to copy to (created if it does not exist)
    pub(crate) to: PathBuf,
    /// The names of the datasets [default: all]
    #[arg(value_name = "DATASET")]
    pub(crate) datasets: Vec<String>,
    /// Copy what is in the snapshot of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    /// If a complete copy differs by now, make it equal: put what differs, and delete what is at TO
    /// alone
    #[arg(long)]
    pub(crate) mend: bool,
    /// The number of threads that read, and of those that write [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: Option<u16>,
}
