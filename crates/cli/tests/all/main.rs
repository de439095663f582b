//! The tests of the command line, one module per subject.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod advise;
mod architecture;
mod beside;
mod changes;
mod cli;
#[cfg(feature = "cluster")]
mod clusters;
mod conditions;
mod copy;
mod datasets;
#[cfg(feature = "server")]
mod demo_serve;
mod documents;
mod edges;
mod estimates;
mod everyday;
mod expiry;
mod fence;
mod fields;
mod imports;
mod index;
mod manners;
mod partial;
mod pictures;
mod plain;
mod protocols;
mod puts;
mod questions;
mod repair;
mod replay;
mod repository;
mod resume;
#[cfg(feature = "server")]
mod serve;
#[cfg(feature = "server")]
mod served;
#[cfg(feature = "server")]
mod served_commands;
mod snapshots;
mod streams;
mod truth;
mod truth_space;
mod values;
mod versions;
mod volume;
