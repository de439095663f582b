//! The upkeep of a dataset's indexes: which maintenance strategy (`choose.rs`, `switch.rs`), and when to repair
//! (`pacing.rs`), from what is measured (`measured.rs`). `step.rs` does what is due, `keeper.rs` has it done.

mod choose;
mod keeper;
mod measured;
mod pacing;
mod step;
mod switch;

pub(crate) use keeper::Keeper;
pub(crate) use measured::{Live, Measured};
pub use switch::{OnSwitch, SwitchProgress, SwitchReport, SwitchStep};
