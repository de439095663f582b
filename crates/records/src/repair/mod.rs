//! Repair: finds obsolete writes, so that queries skip their index entries and compactions drop
//! them (Luo & Carey section 4.4; DELI section V).
//!
//! The findings go to the dataset's obsolete set, with a repair watermark: every write that was
//! replaced up to the watermark is in the set. A repair changes no record and no index entry, so it
//! can be repeated, cancelled, and overtaken by another one. The findings of a cancelled repair are
//! kept; only the watermark does not move.
//!
//! A repair that a program requests first flushes the memtables. Any repair creates the obsolete
//! set if the dataset has none, or its files cannot be read (`run.rs`). A repair from the records
//! can also compact them ([`Compaction`]).
//!
//! The methods; [`RepairMethod::Auto`] is the first of them that fits. Those by key and from the
//! records need compactions that report what they drop.
//!
//! - [`RepairMethod::Key`] (`by_key.rs`) reads the primary-key index since the watermark, in key
//!   order, and probes its older part.
//! - [`RepairMethod::Primary`] (`primary.rs`) reads all versions of the records in key order, and
//!   probes nothing.
//! - [`RepairMethod::Index`] (`by_index.rs`) reads each index, sorts it by key on disk
//!   (`esker_lsm::sort`), and probes the primary-key index since the watermark, the deleted keys,
//!   or the data.

mod by_index;
mod by_key;
mod options;
mod primary;
mod reading;
mod run;
mod validator;
mod work;

pub use options::{Compaction, Lookups, RepairMethod, RepairOptions, RepairProgress, RepairReport};
