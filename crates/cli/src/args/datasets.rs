//! The arguments of commands about datasets as wholes: `list`, `rename`, `drop`.

use std::path::PathBuf;

use clap::Args;

pub(super) const LIST_HELP: &str = "\
A line for each dataset: its name, a tab, and the arguments of `esker create` that make such a dataset.

Examples:
  esker list db
  esker list db | cut -f1
  esker list db --snapshot before-import";

pub(super) const RENAME_HELP: &str = "\
Everything stays with the dataset: records, indexes, consumers of changes, the progress of loads. Programs that have it
open read on. Snapshots that are kept hold it under the name that it had.

Example:
  esker rename db vists visits";

pub(super) const DROP_HELP: &str = "\
The records, the indexes and the consumers of changes of the dataset are deleted for good. Snapshots that were kept before
still hold it (`--snapshot NAME`). All datasets that are named must exist; otherwise none is dropped.

Examples:
  esker drop db vists
  esker list db | cut -f1 | grep ^tmp- | xargs esker drop db";

#[derive(Args)]
pub(crate) struct ListArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The datasets in the snapshot that is kept under this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
}

#[derive(Args)]
pub(crate) struct RenameArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// Its new name: 1 to 64 letters, digits, `-`, `_` and `.`
    pub(crate) to: String,
}

#[derive(Args)]
pub(crate) struct DropArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The names of the datasets to drop
    #[arg(required = true, value_name = "DATASET")]
    pub(crate) datasets: Vec<String>,
}
