//! The commands, a file per group.

pub(crate) mod admin;
pub(crate) mod advise;
pub(crate) mod demo;
pub(crate) mod index;
pub(crate) mod load;
pub(crate) mod maintain;
mod picture;
pub(crate) mod query;
pub(crate) mod repair;
pub(crate) mod versions;
pub(crate) mod write;

use std::path::Path;

use esker::{Database, Dataset, Durability, ErrorKind, Options};

use crate::failure::Failure;

/// The options of every command: only memory (in bytes) is the user's to choose.
fn options(memory: usize) -> Options {
    Options {
        memory_budget: memory,
        ..Options::default()
    }
}

/// Opens a store that exists; a command that asks must not make one.
fn open(dir: &Path, memory: usize) -> Result<Database, Failure> {
    Ok(Database::open(dir, options(memory))?)
}

/// Opens a store that exists to ask it: beside a process that has it open for writing, too.
fn open_to_read(dir: &Path, memory: usize) -> Result<Database, Failure> {
    Ok(Database::open_reader(dir, options(memory))?)
}

/// Opens a dataset that exists, or says which ones do.
fn dataset(db: &Database, name: &str) -> Result<Dataset, Failure> {
    db.dataset(name).map_err(|error| match error.kind() {
        ErrorKind::UnknownDataset => {
            let names = db.dataset_names();
            let known = if names.is_empty() {
                "none".to_string()
            } else {
                names.join(", ")
            };
            Failure::Usage(format!("there is no dataset `{name}` (there are: {known})"))
        }
        _ => error.into(),
    })
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
