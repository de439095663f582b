//! The operations of a store and its datasets, as object-safe traits: what a command line, a server
//! or a binding for another language works with, wherever the records are.
//!
//! | trait | operations |
//! | --- | --- |
//! | [`Store`] | datasets by name, named snapshots, compaction, check, backup |
//! | [`Records`] | reads of a dataset, now or at a moment: get, find, count, scan, versions |
//! | [`Dataset`] | also writes, changes of indexes and strategy, statistics, the change feed |
//! | [`Batch`] | writes that are applied together |
//!
//! [`open`] takes a path or an address and returns a store. Queries are data ([`esker::Request`]).
//! Operations that a store does not have return [`esker::Error::Unsupported`];
//! [`Store::capabilities`] says which those are.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("db");
//! use esker::{DatasetDef, KeyType, Options, Request, field};
//! use esker_store::{Mode, open};
//!
//! let store = open(&path, Mode::Create, Options::default())?;
//! let events = store.create_dataset("events", DatasetDef::new("id", KeyType::Int))?;
//! let mut batch = events.batch();
//! for id in 0..10 {
//!     batch.put_json(format!(r#"{{"id": {id}, "n": {}}}"#, id % 3).as_bytes())?;
//! }
//! batch.commit()?;
//! assert_eq!(events.count(&Request::of(field("n").eq(0)))?.0, 4);
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A Rust program with an embedded store uses [`esker::Database`] itself, which has typed keys and
//! values.

mod answer;
mod batch;
mod bounded_groups;
mod capabilities;
#[cfg(feature = "cluster")]
mod cluster;
mod embedded;
mod open;
mod part;
#[cfg(feature = "plain")]
mod plain;
mod records;
#[cfg(feature = "http")]
mod remote;
mod served;
mod store;
mod summary;

pub use answer::Answer;
pub use batch::Batch;
pub use capabilities::Capabilities;
pub use embedded::Embedded;
#[cfg(feature = "http")]
pub use esker_client::Access;
pub use open::open;
#[cfg(feature = "http")]
pub use open::open_with;
pub use part::Part;
pub use records::{ChangeFeed, Dataset, Records, VersionRequest};
#[cfg(feature = "http")]
pub use remote::Remote;
pub use served::{ServedAt, served_at};
pub use store::{Mode, Store};
pub use summary::{IndexSummary, Summary};
