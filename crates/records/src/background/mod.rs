//! Background maintenance of a dataset: choosing the strategy (`choose.rs`) and timing repairs
//! (`pacing.rs`), both from measurements. `step.rs` runs due work, `thread.rs` schedules it.

mod choose;
mod pacing;
mod step;
mod thread;

pub(crate) use thread::MaintenanceThread;
