//! What the maintenance strategies know of obsolete writes: how far the obsolete set is complete (`coverage.rs`), and
//! whether a candidate is current (`validity.rs`).

mod coverage;
mod validity;

pub(crate) use coverage::{Complete, Coverage, Source};
pub use validity::Validation;
pub(crate) use validity::{CURRENT, Candidate, Validity, leave_out_noted};
