//! The public interface: a store (`database.rs`), its datasets (`dataset.rs` and, by purpose,
//! `dependent.rs`, `maintenance.rs`, `space.rs`, `versions.rs`), their snapshots, batches and
//! queries. A thin layer: the modules below do the work, and do not depend on it.

mod aggregate;
mod batch;
mod batch_any_dataset;
mod batch_one_dataset;
mod batch_writes;
mod database;
mod dataset;
mod dataset_snapshot;
mod dependent;
mod maintenance;
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
