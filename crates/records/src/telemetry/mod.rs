//! What is counted: the use of a dataset, and what operations cost, for the advisor and for background maintenance.

mod measured;
mod usage;

pub(crate) use measured::{LastRepair, Measured};
pub use usage::{Asked, UsageCounts};
pub(crate) use usage::{Usage, keep, load};
