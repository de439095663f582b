//! Counters of how a dataset is used and of what its maintenance costs: statistics, and no part of the store.

mod measured;
mod usage;

pub(crate) use measured::{KeptMaintenance, Live, Measured};
pub use measured::{LastRepair, StrategyChoice};
pub use usage::{QueryStats, UsageCounts};
pub(crate) use usage::{Usage, keep, load};
