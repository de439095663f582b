//! The arguments of `ttl` and `expire`.

use std::path::PathBuf;

use clap::Args;

use super::values::{Ttl, new_ttl};

pub(super) const TTL_HELP: &str = "\
The new time applies to records written from now on; existing records keep their expiry time.

Examples:
  esker ttl db events 7d
  esker ttl db events none";

pub(super) const EXPIRE_HELP: &str = "\
Queries do not return expired records, and a store that is open for writing deletes them by itself. This command deletes
them now: compactions free their space, and `esker changes` prints each as \"change\":\"expire\".

If the clock is a day or more ahead of the store's last use, nothing is deleted; --confirm says that the clock is right.

Examples:
  esker expire db
  esker expire db events --confirm";

#[derive(Args)]
pub(crate) struct TtlArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// How long after its write a record expires, such as 7d, 12h, 30m or 10s; or none
    #[arg(value_name = "TIME|none", value_parser = new_ttl)]
    pub(crate) ttl: Ttl,
}

#[derive(Args)]
pub(crate) struct ExpireArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name [default: all]
    pub(crate) dataset: Option<String>,
    /// Trust the clock, even if it is a day or more ahead of the store's last use
    #[arg(long)]
    pub(crate) confirm: bool,
}
