//! The write path: records and their index entries become one batch (`batch.rs`); what it replaces is looked up where a
//! strategy, or an insert, has to know (`preimage.rs`).

mod batch;
mod preimage;

pub(crate) use batch::Batch;
