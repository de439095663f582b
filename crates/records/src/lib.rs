//! Esker: an embeddable record store that finds records by any attribute.
//!
//! A [`Database`] is a folder; it has [`Dataset`]s of JSON records, each with a primary key and any
//! number of indexed attributes. All kinds of index give exactly what a scan would give, newest
//! first; [`IndexKind`] says what each costs. Writes are atomic over the record and all its indexes,
//! and as durable as asked for ([`Durability`]).
//!
//! ```
//! use esker::{Database, DatasetDef, IndexKind, KeyType, Options, Order, Type};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! let db = Database::create_or_open(dir, Options::default())?;
//! let def = DatasetDef::new("id".parse()?, KeyType::Int)
//!     .index("user.name".parse()?, IndexKind::Lazy, Type::String)
//!     .index("at".parse()?, IndexKind::Embedded, Type::Time);
//! let events = db.create_dataset("events", def)?;
//!
//! let mut batch = events.batch();
//! batch.put_json(br#"{"id": 1, "user": {"name": "ann"}, "at": "2026-11-21T09:00:00Z"}"#)?;
//! batch.put_json(br#"{"id": 2, "user": {"name": "bob"}, "at": "2026-11-21T09:00:30Z"}"#)?;
//! batch.put_json(br#"{"id": 3, "user": {"name": "ann"}, "at": "2026-11-21T09:02:00Z"}"#)?;
//! batch.commit()?;
//!
//! let newest = events.query().equals(&"user.name".parse()?, "ann").limit(10).run()?;
//! let ids: Vec<String> = newest.map(|r| Ok(r?.key().to_string())).collect::<Result<_, esker::Error>>()?;
//! assert_eq!(ids, ["3", "1"]);
//!
//! let minute = events.query().between(&"at".parse()?, "2026-11-21T09:00:00Z", "2026-11-21T09:01:00Z");
//! assert_eq!(minute.count()?, 2);
//! # Ok(())
//! # }
//! ```

mod advise;
mod api;
mod background;
mod catalog;
mod check;
mod ddl;
mod error;
pub mod extension;
mod feed;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod index;
mod maintenance;
mod query;
mod record;
mod repair;
mod stats;
mod store;
mod telemetry;
mod trees;
mod write;

pub use advise::{Advice, AdvisedChange, AttributeAdvice, KindCost, Mix, MixSource, Workload};
#[doc(hidden)]
pub use api::Tuning;
pub use api::{Database, Dataset, DatasetSnapshot, Options, StoreSnapshot};
pub use check::CheckReport;
pub use ddl::{
    IndexChange, IndexProgress, IndexStep, OnProgress, OnSwitch, SwitchProgress, SwitchReport,
    SwitchStep,
};
pub use error::{Error, ErrorKind, Result};
pub use feed::{Change, ChangeKind, Changes, ChangesFrom};
pub use lsm::fs;
pub use lsm::{
    Budget, Clock, Durability, KeepLog, LookupOptions, NamedSnapshot, Position, Seq, Stop,
};
pub use maintenance::Validation;
pub use model::Error as ModelError;
pub use model::Key;
pub use model::condition::{Expr, Field, Op, Operand, ParseError, field};
pub use model::definition::{
    DatasetDef, Expiry, IndexDef, IndexKind, Maintenance, Merging, Repair,
};
pub use model::schema::{KeyType, Path, RecordError, RecordErrorKind, Type, Value};
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// use esker::{Database, DatasetDef, IndexKind, KeyType, Options, Tokenizer, Type, field};
///
/// let db = Database::create_or_open(dir.path(), Options::default())?;
/// let def = DatasetDef::new("id".parse()?, KeyType::Int)
///     .tokenized("name".parse()?, IndexKind::Lazy, Type::String, Tokenizer::Prefix);
/// let people = db.create_dataset("people", def)?;
/// people.put_json(br#"{"id": 1, "name": "Ada Lovelace"}"#)?;
/// people.put_json(br#"{"id": 2, "name": "Adam Smith"}"#)?;
///
/// let query = people.query().filter(field("name").prefix("Ada"));
/// assert_eq!(query.count()?, 2);
/// # Ok(())
/// # }
/// ```
pub use model::tokens::Tokenizer;
pub use query::{
    Answer, BulkOrder, Compared, Explain, ExplainedCost, ExplainedIndex, ExplainedPlan, Keys,
    Order, Page, PageToken, Query, ReadCost, Scan, Steps, ValuePage, ValueToken,
};
pub use record::Record;
pub use repair::{
    Compaction, Lookups, OnRepair, RepairMethod, RepairOptions, RepairProgress, RepairReport,
};
pub use store::check_dataset_name;
pub use telemetry::{Asked, UsageCounts};
pub use write::{Update, WriteBatch};

/// The type that the samples (records) show at `path`; `None` when none has a value there.
pub fn infer_type(samples: &[Vec<u8>], path: &Path) -> Option<Type> {
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    model::schema::infer(&samples, path)
}

/// The type of key that the samples (records) show at `path`; `None` when none has one.
pub fn infer_key_type(samples: &[Vec<u8>], path: &Path) -> Option<KeyType> {
    infer_type(samples, path)?;
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    Some(model::schema::infer_key(&samples, path))
}

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
