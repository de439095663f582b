//! x
mod bound;
mod candidates;
mod catalog;
pub mod cells;
mod check;
mod conditional;
mod counts;
mod dataset;
mod error;
mod find;
mod judge;
mod layout;
mod repair;
mod rows;
mod scan;
mod split;
mod store;
mod time;
mod write;
mod writer;

pub use check::Checked;
pub use dataset::{Answer, Batch, Dataset, Scanned};
pub use error::{Error, Result};
pub use find::Explained;
pub use repair::{OnRepair, RepairOptions, Repaired};
pub use store::{Options, Store};
pub use time::{CLOCK_BOUND, Clocks, SystemClocks, millis};
