//! The check of a store: the engine's files, and all derived data against its source. Index
//! entries, keys, replaced values and the obsolete set are checked against the records and their
//! versions (`obsolete.rs`); synopses of tables against their entries (by the engine); sequence
//! numbers in definitions against the last write (`numbers.rs`).

mod dataset;
mod entries;
mod expiry;
mod numbers;
mod obsolete;
mod report;
mod store;

pub use report::CheckReport;
pub(crate) use store::check;
