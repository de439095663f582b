//! What users hold: a store, its datasets, their snapshots. Thin: what a call does is below, and nothing there knows of this.

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
pub use space::{Latest, Neighbour};
pub use task::Task;
pub use versions::{KeyVersions, ValueVersions};
