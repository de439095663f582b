//! The write path:
//!
//! - `batch.rs`, `encode.rs`: records become one batch of the engine.
//! - `pre_images.rs`: lookup of replaced records, for inserts, expectations and some maintenance
//!   strategies.
//! - `commit.rs`: the append. `reencode.rs`: the batch for a newer layout.
//! - `update.rs`: atomic updates of a record. `delete_where.rs`: deletion by condition.
//!   `expire.rs`: deletion of expired records.
//! - `notes.rs`: notes of programs, in the same commit.
//! - `unique.rs`, `duplicates.rs`: values that no two records may share.
//! - `auto_key.rs`: generated keys.

mod auto_key;
mod batch;
#[cfg(test)]
mod batch_tests;
mod commit;
mod delete_where;
mod duplicates;
mod encode;
mod expire;
mod notes;
mod pre_images;
mod reencode;
mod unique;
mod update;

pub use auto_key::with_generated_key;
pub(crate) use batch::{DatasetWrites, KeyRule};
pub(crate) use commit::commit;
pub(crate) use duplicates::Duplicates;
pub(crate) use unique::Holders;
pub use update::IntoUpdate;
