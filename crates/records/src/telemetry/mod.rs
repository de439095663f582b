//! Counters of a dataset's use and of the cost of its maintenance: statistics, not part of the
//! store's data.

mod measured;
mod usage;

pub use measured::{LastRepair, StrategyChoice};
pub(crate) use measured::{LiveMeasurements, Measured, StoredMaintenance};
pub use usage::{QueryStats, UsageCounts};
pub(crate) use usage::{Usage, load, save};
