//! Compaction: policies decide (pure functions from a tree's version to a choice), the job executes
//! the choice.

mod choice;
pub(crate) mod context;
mod digests;
pub(crate) mod expired;
pub(crate) mod job;
mod lazy_leveled;
mod leveled;
mod output;
pub(crate) mod pace;
mod pieces;
mod sets;
pub(crate) mod shared;
pub(crate) mod slots;
pub(crate) mod sweep;
mod tiered;

pub(crate) use choice::{all, followed_by, oldest_level, pick_above, pick_all};
pub(crate) use digests::has_stale_digests;
pub use job::{RunSink, WriteRun};
pub use lazy_leveled::LazyLeveled;
pub use leveled::{Leveled, NextTable};
pub use sweep::held;
pub use tiered::Tiered;

#[cfg(test)]
mod tests;
