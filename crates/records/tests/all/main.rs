//! The tests of the record store, one module per subject. The simulation, and tests that measure
//! the allocations of the process, are separate programs beside it.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/hooked.rs"]
mod hooked;

mod advise;
mod architecture;
mod area_walk;
mod backup;
mod batches;
mod bulk;
mod by_key;
mod change;
#[cfg(unix)]
mod change_sigkill;
mod changes;
mod check;
mod closed;
mod clustered;
mod combined;
mod compound;
mod conditions;
mod contention;
mod coverage;
mod damage;
mod ddl;
mod deli;
mod dependent;
mod deterministic;
mod edges;
mod estimates;
mod examples;
mod expiry;
mod extension;
mod fields;
mod format;
mod from_index;
mod held_heads;
mod inserts;
mod limits;
mod maintenance;
mod maintenance_errors;
#[cfg(target_os = "linux")]
mod many_keys;
mod memory;
mod nearest;
mod notes;
mod obsolete_set;
mod odd_values;
mod old_records;
mod paper_faults;
mod paper_gaps;
mod passed_over;
mod place_and_times;
mod questions;
mod range_filter;
mod rebuild;
mod refusals;
mod remarks;
mod rename;
mod repair;
#[cfg(unix)]
mod sigkill;
mod snapshots;
mod space;
mod space_cuts;
mod space_tables;
mod stop;
mod threads;
mod unique;
mod updates;
mod waiting_syncs;
