//! Background maintenance of a dataset's indexes: which maintenance strategy (`choose.rs`), and when to repair
//! (`pacing.rs`), from what is measured. `step.rs` does what is due, `thread.rs` has it done.

mod choose;
mod pacing;
mod step;
mod thread;

pub(crate) use thread::MaintenanceThread;
