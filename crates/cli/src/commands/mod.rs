//! The commands, a file per group.

pub(crate) mod admin;
pub(crate) mod advise;
pub(crate) mod aggregate;
pub(crate) mod changes;
mod city;
pub(crate) mod complete;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod datasets;
mod definition;
pub(crate) mod demo;
mod demo_folder;
#[cfg(feature = "server")]
mod demo_serve;
pub(crate) mod expiry;
mod feed;
pub(crate) mod fence;
pub(crate) mod fields;
pub(crate) mod find;
pub(crate) mod index;
mod inference;
mod latest;
mod levels;
pub(crate) mod load;
pub(crate) mod maintain;
mod merges;
mod picture;
mod plan;
pub(crate) mod pubsub;
pub(crate) mod put;
pub(crate) mod query;
pub(crate) mod repair;
pub(crate) mod replay;
#[cfg(feature = "server")]
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod space;
pub(crate) mod stat;
mod stat_cluster;
pub(crate) mod update;
pub(crate) mod versions;
pub(crate) mod view;
#[cfg(feature = "volume")]
pub(crate) mod volume;
pub(crate) mod write;

use esker::Durability;
use esker_store::Dataset;

/// Prints the remarks on written records, each once.
fn say_remarks(dataset: &dyn Dataset) {
    for remark in dataset.remarks() {
        crate::output::note(format_args!("note: {remark}"));
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
