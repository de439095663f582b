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

/// The options of every command: only memory (in bytes) is the user's to choose.
fn options(memory: usize) -> Options {
    PubSub::with(Options {
        memory_budget: memory,
        ..Options::default()
    })
}

/// Opens a store that exists; a command that asks must not make one.
fn open(dir: &Path, memory: usize) -> Result<Database, Failure> {
    refuse_file(dir)?;
    Ok(Database::open(dir, options(memory))?)
}

/// Opens a store that exists to write to it, as durably as said.
fn open_durable(dir: &Path, memory: usize, durability: Durability) -> Result<Database, Failure> {
    refuse_file(dir)?;
    let options = Options {
        durability,
        ..options(memory)
    };
    Ok(Database::open(dir, options)?)
}

/// Opens a store that exists to ask it: beside a process that has it open for writing, too.
fn open_to_read(dir: &Path, memory: usize) -> Result<Database, Failure> {
    refuse_file(dir)?;
    Ok(Database::open_reader(dir, options(memory))?)
}

/// Opens a store that exists to look at all of it: for writing, or if another process writes to it, beside that.
fn open_whole(dir: &Path, memory: usize) -> Result<Database, Failure> {
    refuse_file(dir)?;
    match Database::open(dir, options(memory)) {
        Err(Error::Locked { .. }) => open_to_read(dir, memory),
        opened => Ok(opened?),
    }
}

/// Arguments in another order than the command's often put a file in the store's place.
fn refuse_file(dir: &Path) -> Result<(), Failure> {
    match dir.is_file() {
        true => Err(Failure::Usage(format!(
            "{} is a file: the first argument is the store's folder",
            dir.display()
        ))),
        false => Ok(()),
    }
}

/// Opens a dataset that exists, or says which ones do.
fn dataset(db: &Database, name: &str) -> Result<Dataset, Failure> {
    db.dataset(name)
        .map_err(|error| unknown(error, "dataset", name, &db.dataset_names()))
}

/// Says what may be said of the records that were written, each thing once.
fn say_remarks(dataset: &Dataset) {
    for remark in dataset.remarks() {
        crate::output::note(format_args!("note: {remark}"));
    }
}

/// A dataset as it is now, or as it was in the snapshot that is kept under a name.
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

/// The snapshot that is kept under a name, or which ones are.
fn kept(db: &Database, name: &str) -> Result<StoreSnapshot, Failure> {
    db.kept_snapshot(name).map_err(|error| {
        let names: Vec<String> = db.snapshots().into_iter().map(|kept| kept.name).collect();
        unknown(error, "snapshot", name, &names)
    })
}

/// An error, with the names that there are where it says that this one is not.
fn unknown(error: Error, what: &str, name: &str, names: &[String]) -> Failure {
    match error {
        Error::UnknownDataset { .. } | Error::UnknownSnapshot { .. } => {
            let known = match names.is_empty() {
                true => "none".to_string(),
                false => names.join(", "),
            };
            let meant = meant(name, names.iter().map(String::as_str));
            Failure::Usage(format!(
                "there is no {what} `{name}`{meant} (there are: {known})"
            ))
        }
        _ => error.into(),
    }
}

/// An explanation or statistics as JSON.
fn json(of: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(of).unwrap_or_default()
}

/// What a durability level promises, in words.
fn promise(durability: Durability) -> String {
    match durability {
        Durability::Sync => "each batch is synced".to_string(),
        Durability::Periodic(every) => {
            format!("synced every {} ms and at the end", every.as_millis())
        }
        Durability::Os => "left to the system, synced at the end".to_string(),
    }
}
