//! The arguments of `ttl` and `expire`.

use std::path::PathBuf;

use clap::Args;

use super::values::{Ttl, new_ttl};

pub(super) const TTL_HELP: &str = "\
A change holds for records that are written from then on; those that are there keep the time that they were written with.

Examples:
  esker ttl db events 7d
  esker ttl db events none";

pub(super) const EXPIRE_HELP: &str = "\
Nobody sees records that have expired, and a store that is open for writing deletes them by itself. This does so now: their space comes back with
compactions, and `esker changes` prints each as \"change\":\"expire\".

Nothing is deleted by a clock that is a day or more ahead of the last time that the store was used with; --confirm says that it is right.

Examples:
  esker expire db
  esker expire db events --confirm";

#[derive(Args)]
pub(crate) struct TtlArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// How long after it was written a record expires, such as 7d, 12h, 30m or 10s; or none
    #[arg(value_name = "TIME|none", value_parser = new_ttl)]
    pub(crate) ttl: Ttl,
}

#[derive(Args)]
pub(crate) struct ExpireArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name [default: all]
    pub(crate) dataset: Option<String>,
    /// Trust the clock, even where it is a day or more ahead of the store's last use
    #[arg(long)]
    pub(crate) confirm: bool,
}
