//! What the maintenance strategy of a dataset knows of the candidates that an index offers.

mod validity;

pub use validity::Validation;
pub(crate) use validity::Validity;
