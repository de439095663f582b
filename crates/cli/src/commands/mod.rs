//! The commands, a file per group.

pub(crate) mod admin;
pub(crate) mod advise;
pub(crate) mod changes;
mod city;
pub(crate) mod complete;
pub(crate) mod create;
pub(crate) mod datasets;
mod definition;
pub(crate) mod demo;
pub(crate) mod expiry;
mod fields;
pub(crate) mod index;
mod levels;
pub(crate) mod load;
pub(crate) mod maintain;
mod merges;
mod picture;
mod plan;
pub(crate) mod pubsub;
pub(crate) mod query;
pub(crate) mod repair;
pub(crate) mod replay;
pub(crate) mod shell;
pub(crate) mod space;
pub(crate) mod stat;
pub(crate) mod update;
pub(crate) mod versions;
pub(crate) mod view;
pub(crate) mod write;

use std::path::Path;

use ::pubsub::PubSub;
use esker::{Database, Dataset, DatasetSnapshot, Durability, Error, Options, StoreSnapshot};

use crate::failure::Failure;
use crate::nearest::meant;

/// The options of every command; only the memory budget (in bytes) is configurable.
fn options(memory: usize) -> Options {
    PubSub::with(Options {
        memory_budget: memory,
        ..Options::default()
    })
}

/// Opens an existing store for writing.
fn open(dir: &Path, memory: usize) -> Result<Database, Failure> {
    refuse_file(dir)?;
    Ok(Database::open(dir, options(memory))?)
}

/// Opens an existing store for writing, with this durability.
fn open_durable(dir: &Path, memory: usize, durability: Durability) -> Result<Database, Failure> {
    refuse_file(dir)?;
    let options = Options {
        durability,
        ..options(memory)
    };
    Ok(Database::open(dir, options)?)
}

/// Opens an existing store for reading, which also works beside a process that writes to it.
fn open_to_read(dir: &Path, memory: usize) -> Result<Database, Failure> {
    refuse_file(dir)?;
    Ok(Database::open_reader(dir, options(memory))?)
}

/// Opens an existing store for a command on the whole store: for writing, or for reading if another
/// process writes to it.
fn open_whole(dir: &Path, memory: usize) -> Result<Database, Failure> {
    refuse_file(dir)?;
    match Database::open(dir, options(memory)) {
        Err(Error::Locked { .. }) => open_to_read(dir, memory),
        opened => Ok(opened?),
    }
}

/// Refuses a file as the store: the usual reason is arguments in the wrong order.
fn refuse_file(dir: &Path) -> Result<(), Failure> {
    if dir.is_file() {
        Err(Failure::Usage(format!(
            "{} is a file: the first argument is the store's folder",
            dir.display()
        )))
    } else {
        Ok(())
    }
}

/// Opens an existing dataset; the error names the existing ones.
fn dataset(db: &Database, name: &str) -> Result<Dataset, Failure> {
    db.dataset(name)
        .map_err(|error| unknown(error, "dataset", name, &db.dataset_names()))
}

/// Prints the remarks on written records, each once.
fn say_remarks(dataset: &Dataset) {
    for remark in dataset.remarks() {
        crate::output::note(format_args!("note: {remark}"));
    }
}

/// A dataset as it is now, or in the snapshot of this name.
fn dataset_at(
    db: &Database,
    name: &str,
    snapshot: Option<&str>,
) -> Result<DatasetSnapshot, Failure> {
    let Some(snapshot) = snapshot else {
        return Ok(dataset(db, name)?.snapshot());
    };
    let kept = kept(db, snapshot)?;
    kept.dataset(name)
        .map_err(|error| unknown(error, "dataset", name, &kept.dataset_names()))
}

/// The snapshot of this name; the error names the existing ones.
fn kept(db: &Database, name: &str) -> Result<StoreSnapshot, Failure> {
    db.kept_snapshot(name).map_err(|error| {
        let names: Vec<String> = db.snapshots().into_iter().map(|kept| kept.name).collect();
        unknown(error, "snapshot", name, &names)
    })
}

/// The error for an unknown name, with a suggestion and the existing names.
fn unknown(error: Error, what: &str, name: &str, names: &[String]) -> Failure {
    match error {
        Error::UnknownDataset { .. } | Error::UnknownSnapshot { .. } => {
            let known = if names.is_empty() {
                "none".to_string()
            } else {
                names.join(", ")
            };
            let meant = meant(name, names.iter().map(String::as_str));
            Failure::Usage(format!(
                "there is no {what} `{name}`{meant} (existing: {known})"
            ))
        }
        _ => error.into(),
    }
}

/// A plan or statistics as JSON.
fn json(of: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(of).unwrap_or_default()
}

/// The promise of a durability level, in words.
fn promise(durability: Durability) -> String {
    match durability {
        Durability::Sync => "each batch is synced".to_string(),
        Durability::Periodic(every) => {
            format!("synced every {} ms and at the end", every.as_millis())
        }
        Durability::Os => "left to the system, synced at the end".to_string(),
    }
}
