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
mod said;
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
