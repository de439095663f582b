//! The write path: records become one batch of the engine (`batch.rs`), and what they replace is looked up where an insert, an
//! expectation or the maintenance strategy has to know it (`pre_images.rs`); updates read, change and write a record as one (`update.rs`); what has
//! expired is deleted (`expire.rs`). What a program notes beside its records is written in their commit (`notes.rs`).

mod auto_key;
mod batch;
#[cfg(test)]
mod batch_tests;
mod commit;
mod expire;
mod notes;
mod pre_images;
mod update;

pub(crate) use batch::Part;
pub(crate) use commit::commit;
pub use update::{IntoUpdate, Update};
