//! The public interface: a store, its datasets, their snapshots. A thin layer: the modules below do
//! the work, and do not depend on it.

mod batch;
mod database;
mod dataset;
mod dependent;
mod maintenance;
mod query;
mod snapshots;
mod space;
mod task;
mod versions;

pub use batch::{Batch, WriteBatch};
#[doc(hidden)]
pub use database::Tuning;
pub use database::{Database, Options};
pub use dataset::{Dataset, DatasetSnapshot};
pub use query::{Answer, Keys, Query, Scan};
pub use snapshots::StoreSnapshot;
pub use task::{ObservedTask, OnProgress, Task};
pub use versions::{KeyVersions, ValueVersions};
