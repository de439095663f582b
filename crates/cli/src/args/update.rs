//! The arguments of `update`.

use std::path::PathBuf;

use clap::Args;

use super::values::durability;

pub(super) const UPDATE_HELP: &str = "\
Other fields stay as they are. FIELD is a path: `address.city` is a field in the object `address`, which is created if it does
not exist. VALUE is read as JSON if it is valid JSON, otherwise as text; for a field declared as string it is always text.
`null` removes the field. A field inside an array cannot be set: give the whole array.
Exit codes: 0 updated, 1 there is no record with this key, 2 the new record would not fit (nothing is changed).

Examples:
  esker update db users 7 name='Ann Lee' age=31
  esker update db users 7 address.city=Oslo tags='[\"new\",\"mobile\"]' nick=null
Many records at a time: `esker put --merge`.";

#[derive(Args)]
pub(crate) struct UpdateArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// The record's primary key
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: String,
    /// Fields and their new values
    #[arg(required = true, value_name = "FIELD=VALUE")]
    pub(crate) changes: Vec<String>,
    /// When the write is synced to disk: at once (sync), when the operating system does it (os), or
    /// at least at this interval (5ms, 1s; a plain number is milliseconds)
    #[arg(long, value_name = "sync|os|TIME", default_value = "sync", value_parser = durability)]
    pub(crate) durability: esker::Durability,
}
