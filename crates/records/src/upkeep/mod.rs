//! The upkeep of a dataset's indexes: which maintenance strategy, and when to repair.

mod switch;

pub use switch::{OnSwitch, SwitchProgress, SwitchReport, SwitchStep};
