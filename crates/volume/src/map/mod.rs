//! The state machine of all groups of a node, on trees of the engine that have no log of their own.
//!
//! - [`Map`] (`core.rs`): what is in memory, and how a batch is written.
//! - `apply.rs`: chosen commands. `read.rs`, `source.rs`: lookups. `merge.rs`: unnamed layers, in
//!   the background. `vacuum.rs`: what refers to a segment. `image.rs` and `install.rs`: the state
//!   of a group, on its way to another replica.
//! - `store.rs`: the trees, and their reading at the start. `walk.rs`: entries of a chain of
//!   layers.
//! - `layers.rs`, `sessions.rs`, `usage.rs`, `positions.rs`, `ranges.rs`, `entries.rs`: parts
//!   without I/O.

mod apply;
mod core;
mod entries;
mod image;
mod install;
mod layers;
mod merge;
mod outcome;
mod positions;
mod ranges;
mod read;
mod sessions;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod usage;
mod vacuum;
mod walk;

pub use core::Map;
pub use entries::Extent;
pub use image::{Chunk, Image, ImageEntry, ImageMeta};
pub use outcome::{Applied, Outcome, Refusal};
pub use read::Run;
pub use vacuum::{LiveBlock, LiveBlocks, Move, Source};
