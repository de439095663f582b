//! Changing what a dataset is while it is in use: its indexes (`indexes.rs`, `build.rs`) and its maintenance strategy
//! (`strategy.rs`), and when its records expire (`expiry.rs`). The first two begin with one edit of the engine after which writes do both the old and the new, bring the older
//! records over (`backfill.rs`), and can be cut off anywhere and resumed.

mod backfill;
mod build;
mod expiry;
mod indexes;
mod strategy;

pub use indexes::{IndexChange, IndexProgress, IndexStep};
pub use strategy::{SwitchProgress, SwitchReport, SwitchStep};
