//! What users hold: a store, its datasets, their snapshots. Thin: what a call does is below, and nothing there knows of this.

mod database;
mod dataset;
mod maintenance;
mod snapshots;

#[doc(hidden)]
pub use database::Tuning;
pub use database::{Database, Options};
pub use dataset::{Dataset, DatasetSnapshot};
pub use snapshots::StoreSnapshot;
