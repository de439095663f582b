//! The model of an Esker dataset, without storage: the types of keys and attributes with their
//! order-preserving encodings, their extraction from JSON records, the stored forms of records and
//! posting lists, conditions, definitions of datasets, queries as data and their compiled form.
//!
//! This crate does no I/O and does not depend on an engine, so it works with any storage. Decoders
//! accept any bytes: none panics or allocates without bound.

// The layers of these modules: `../layers.txt`.

pub mod condition;
pub mod definition;
pub mod error;
pub mod fields;
mod geojson;
pub mod geometry;
pub mod key;
mod merge;
pub mod posting;
pub mod query;
pub mod range;
pub mod record;
pub mod region;
pub mod schema;
pub mod suggest;
mod text;
pub mod tokens;
pub mod typed;
pub mod units;

pub use error::{Error, Result};
pub use key::Key;
pub use merge::merge_patch;
pub use record::{FromRecord, Record, Update};
pub use typed::{AsKey, KeyRange, PrimaryKey};
