//! The maintenance strategies: they differ in when index entries are found to be obsolete. Each has
//! a file with its trees, its work at a write, the rule of range filters, the reports of its
//! compactions, and its cost (`cost.rs`). `validity.rs` validates candidates for all of them.

pub(crate) mod cost;
mod deferred;
mod deleted_key;
mod eager;
mod mutable_bitmap;
mod strategies;
mod strategy;
#[cfg(test)]
mod tests;
mod validation;
mod validity;

pub(crate) use strategies::{cost_per_write, lookup, strategy_of};
pub(crate) use strategy::AtCommit;
#[cfg(test)]
pub(crate) use strategy::MissingEntry;
pub(crate) use validity::Validity;
