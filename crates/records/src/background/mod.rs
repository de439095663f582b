//! Background maintenance of a dataset's indexes: which maintenance strategy (`choose.rs`), and when to repair
//! (`pacing.rs`), from what is measured. `step.rs` does what is due, `keeper.rs` has it done.

mod choose;
mod keeper;
mod pacing;
mod step;

pub(crate) use keeper::Keeper;
