//! The fields of records: which paths occur, and which types of JSON values at each. Gathered from
//! the bodies of records, kept with each table of a store, and combined when they are read.
//!
//! **Invariants.** A set has every field of the records that were added to it, unless it says that
//! there are more ([`Fields::has_more`]). Its size is bounded, whatever the records are.

mod gather;
mod scan;
mod stored;
mod tree;
mod types;

#[cfg(test)]
mod tests;

pub use gather::FieldGatherer;
pub use tree::{Field, FieldNode, Fields, FieldsOf};
pub use types::JsonTypes;
