//! The write path: records become one batch of the engine (`batch.rs`), and what they replace is looked up where an insert or the
//! maintenance strategy has to know it (`pre_images.rs`).

mod batch;
mod pre_images;

pub use batch::WriteBatch;
