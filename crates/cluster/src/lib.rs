//! Datasets with indexes on a cluster of Apache Cassandra or Apache HBase that someone already
//! runs: DELI (Tang et al., 2015) over a small trait of a store of partitions and rows ([`cells`]).
//!
//! | subject | module |
//! | --- | --- |
//! | what a store must do; Cassandra, HBase | `cells/` |
//! | addresses | `address`, `hbase_address` |
//! | timestamps, clocks, bounds | `time`, `clock` |
//! | datasets, leases of writers | `catalog`, `writer`, `bound` |
//! | where entries lie | `rows`, `layout`, `split`, `counts` |
//! | writes: entries, then the record | `write`, `conditional`, `deletion` |
//! | the state of a dataset | `summary` |
//! | queries | `view`, `find`, `scan`, `part`, `values` |
//! | candidates of indexes | `probe`, `sources`, `candidates`, `intersect` |
//! | what counts of them | `verdict`, `judge`, `useless` |
//! | what experiments compare with, by a feature | `experimental` |
//! | repair, check, changes of indexes | `repair`, `removals`, `check`, `sketch`, `indexes` |
mod address;
mod answer;
mod bound;
mod candidates;
mod catalog;
pub mod cells;
mod check;
mod clock;
mod conditional;
mod counts;
mod dataset;
mod deletion;
mod error;
#[cfg(feature = "experimental")]
#[doc(hidden)]
pub mod experimental;
mod find;
mod given;
mod hbase_address;
mod hit;
mod indexes;
mod intersect;
mod judge;
mod layout;
mod notes;
mod pages;
mod part;
mod probe;
mod ranked;
mod removals;
mod repair;
mod rows;
mod scan;
mod shared;
mod sketch;
mod sources;
mod split;
mod store;
mod summary;
mod time;
mod unique;
mod useless;
mod values;
mod verdict;
mod view;
mod write;
mod writer;

pub use address::cassandra_address;
pub use answer::Answer;
pub use check::Checked;
pub use dataset::{Batch, Dataset, Scanned};
pub use error::{Error, Result};
pub use find::Explained;
pub use hbase_address::hbase_address;
pub use indexes::{Filled, IndexProgress, IndexStep, OnIndex};
pub use part::PartScan;
pub use repair::{OnRepair, RepairOptions, Repaired};
pub use shared::Options;
pub use store::{Store, adapted};
pub use summary::{IndexSummary, Summary};
pub use time::{CLOCK_BOUND, Clocks, SystemClocks, millis};
