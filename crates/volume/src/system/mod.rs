//! The state of the system group: names, sizes, snapshots, and the members that are wanted. Without
//! I/O.
//!
//! - `state.rs`: [`System`], and its encoding. `command.rs`, `outcome.rs`: what clients and leaders
//!   ask, and the answers.
//! - `apply.rs`: what commands do. `source.rs`: what has a name. `ranges.rs`: which group has which
//!   part. `todo.rs`: what is left to be done in data groups.

mod apply;
mod command;
mod outcome;
mod ranges;
mod source;
mod state;
#[cfg(test)]
mod tests;
mod todo;

pub use command::SystemCommand;
pub use outcome::{SystemError, SystemErrorKind, SystemOutcome, VolumeInfo};
pub use ranges::{RANGE, group_at};
pub use source::{Shape, Source};
pub use state::{
    DEFAULT_BLOCK_SIZE, LARGEST_BLOCK, LARGEST_VOLUME, Pending, SMALLEST_BLOCK, Snapshot, State,
    System, Volume,
};
pub use todo::Task;
