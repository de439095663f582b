//! The public interface. A thin layer: the modules below do the work, and do not depend on it.
//!
//! - `database.rs`, `options.rs`: a store, and how it is opened; `snapshots.rs`: its snapshots.
//! - `dataset.rs`: a dataset. More of its methods: `merge_and_delete.rs` and `maintenance.rs`.
//! - `dataset_snapshot.rs`: a dataset at one moment; `reading.rs`: reads that both share.
//! - `query.rs`: queries, scans and their iterators. More methods of queries: `aggregate.rs` and
//!   `space.rs`, which also has a method of snapshots. `versions.rs`: queries for versions.
//! - `batch.rs`: batches; `batch_one_dataset.rs`, `batch_any_dataset.rs`: their methods, by whether
//!   they name the dataset; `batch_writes.rs`: their writes, by dataset.
//! - `task.rs`: long operations that report their progress.

mod aggregate;
mod batch;
mod batch_any_dataset;
mod batch_one_dataset;
mod batch_writes;
mod database;
mod dataset;
mod dataset_snapshot;
mod maintenance;
mod merge_and_delete;
mod options;
mod query;
mod reading;
mod snapshots;
mod space;
mod task;
mod versions;

pub use aggregate::AggregateQuery;
pub use batch::{AnyDataset, Batch, OneDataset, WriteBatch};
pub use database::Database;
pub use dataset::Dataset;
pub use dataset_snapshot::DatasetSnapshot;
pub use options::Options;
pub use query::{Answer, Keys, Query, Scan};
pub use snapshots::StoreSnapshot;
pub use task::{ObservedTask, OnProgress, Task};
pub use versions::{KeyVersions, ValueVersions};
