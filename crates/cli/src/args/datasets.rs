//! The arguments of commands about datasets as wholes: `list`, `fields`, `rename`, `drop`.

use std::path::PathBuf;

use clap::Args;

pub(super) const LIST_HELP: &str = "\
Prints a line for each dataset: its name, a tab, and the arguments of `esker create` that create such a dataset.

Examples:
  esker list db
  esker list db | cut -f1
  esker list db --snapshot before-import";

pub(super) const FIELDS_HELP: &str = "\
The fields of all records, not of a sample; `tags[]` are the elements of an array `tags`. They come from statistics that
are kept with the data, so no records are read. Fields of records that were replaced or deleted are listed until the
dataset is compacted (`esker compact`).

Examples:
  esker fields db visits
  esker fields db visits --json";

pub(super) const RENAME_HELP: &str = "\
The dataset keeps everything: records, indexes, consumers of changes, the progress of loads. Programs that have it open
continue to read it. Existing snapshots keep it under its old name.

Example:
  esker rename db vists visits";

pub(super) const DROP_HELP: &str = "\
Deletes the records, the indexes and the consumers of changes of the datasets for good. Existing snapshots still contain
them (`--snapshot NAME`). If one of the datasets does not exist, none is dropped.

Examples:
  esker drop db vists
  esker list db | cut -f1 | grep ^tmp- | xargs esker drop db";

#[derive(Args)]
pub(crate) struct ListArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// List the datasets in the snapshot of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
}

#[derive(Args)]
pub(crate) struct FieldsArgs {
    /// The store's directory
    pub(crate) dir: PathBuf,
    /// The dataset's name
    pub(crate) dataset: String,
    /// As they were in the snapshot of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    /// One JSON document, for programs
    #[arg(long)]
    pub(crate) json: bool,
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
