//! Changing a dataset while it is in use: its indexes (`index.rs`, `build.rs`), and its maintenance strategy (`migration.rs`).

mod build;
mod index;
mod migration;

pub use index::{IndexChange, IndexProgress, IndexStep, OnProgress};
pub(crate) use index::{
    add_tokenized, drop_index, rebuild_index, resume_index, switch_index, unfinished_index,
};
pub use migration::{OnSwitch, SwitchProgress, SwitchReport, SwitchStep};
pub(crate) use migration::{is_settled, set_auto, switch};
