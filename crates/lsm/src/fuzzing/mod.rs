//! Entry points for fuzzing: each takes arbitrary bytes and feeds them to one decoder, or to one
//! structure and a model of it. None may panic, hang or allocate without bound; each asserts the
//! invariants of what it decodes.
//!
//! Only with the feature `fuzzing`, and in tests, which run each briefly with [`campaign`]. The
//! targets for `cargo fuzz` are in `fuzz/`.

#![allow(
    clippy::unwrap_used,
    reason = "a target says what must hold by failing"
)]

mod campaign;
mod decoders;
mod fingerprints;
mod memtable;
mod store;
#[cfg(test)]
mod tests;

pub use crate::table::fuzzing::table;
pub use campaign::campaign;
pub use decoders::{batch, current, edit, log, obsolete, place};
pub use fingerprints::fingerprints;
pub use memtable::memtable;
pub use store::store;
