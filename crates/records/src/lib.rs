//! Esker: an embedded record store that finds records by any field.
//!
//! A [`Database`] is a folder. It has [`Dataset`]s of JSON records, each with a primary key and up
//! to 64 indexed fields, which this documentation calls *attributes*. All kinds of index return
//! exactly the records that a scan would return, newest first; [`IndexKind`] describes the cost of
//! each. A write is atomic over the record and all its indexes; [`Durability`] sets when it is
//! synced.
//!
//! | to | see |
//! | --- | --- |
//! | open a store, set its memory and durability | [`Database`], [`Options`] |
//! | define a dataset: key, indexes, time to live, versions | [`DatasetDef`], [`Index`] |
//! | write, read, update one record | [`Dataset`], [`Update`] |
//! | write several as one, with conditions | [`Batch`] |
//! | query | [`field`], [`Query`], [`DatasetSnapshot`] |
//! | follow changes | [`Dataset::changes`], [`Changes`] |
//! | change indexes, repair | [`Dataset::add_index`], [`Dataset::repair`], [`Task`] |
//! | handle errors | [`Error`] |
//!
//! The guide `docs/library.md` describes all of these.
//!
//! ```
//! use esker::{Database, DatasetDef, Index, Options, field};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! let db = Database::create_or_open(dir, Options::default())?;
//! let def = DatasetDef::key("id")
//!     .index("user.name", Index::lazy().string())
//!     .index("at", Index::embedded().time());
//! let events = db.create_dataset::<u64>("events", def)?;
//!
//! let mut batch = events.batch();
//! batch.put_json(br#"{"id": 1, "user": {"name": "ann"}, "at": "2026-11-21T09:00:00Z"}"#)?;
//! batch.put_json(br#"{"id": 2, "user": {"name": "bob"}, "at": "2026-11-21T09:00:30Z"}"#)?;
//! batch.put_json(br#"{"id": 3, "user": {"name": "ann"}, "at": "2026-11-21T09:02:00Z"}"#)?;
//! batch.commit()?;
//!
//! let mut ids = Vec::new();
//! for hit in events.find(field("user.name").eq("ann")).limit(10) {
//!     ids.push(*hit?.key());
//! }
//! assert_eq!(ids, [3, 1]);
//!
//! let minute = r#"at >= "2026-11-21T09:00:00Z" and at <= "2026-11-21T09:01:00Z""#;
//! let minute = events.find(minute.parse()?);
//! assert_eq!(minute.count()?, 2);
//! # Ok(())
//! # }
//! ```

// The layers of these modules: `../layers.txt`.

pub mod advise;
mod api;
mod background;
mod bodies;
mod catalog;
mod check;
mod consumer;
mod coverage;
mod ddl;
mod error;
pub mod extension;
mod feed;
mod fields;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod index;
mod maintenance;
mod query;
mod record;
mod repair;
pub mod stats;
mod store;
mod telemetry;
mod trees;
mod write;

pub use api::{
    AggregateQuery, Answer, Batch, Database, Dataset, DatasetSnapshot, Keys, Options, Query, Scan,
    StoreSnapshot, Task, WriteBatch,
};
pub use consumer::Consumer;
pub use error::{Error, ErrorKind, NotUnique, Result};
pub use esker_lsm::fs;
pub use esker_lsm::{Durability, Position, Seq, Stop};
pub use esker_model::condition::{AreaExpr, Expr, Field, Op, Operand, Predicate, field};
pub use esker_model::definition::{DatasetDef, Index, IndexKind};
pub use esker_model::schema::{IntoPath, KeyType, Path, Type, Value};
pub use esker_model::{AsKey, FromRecord, Key, KeyRange, PrimaryKey, Record, Update, units};
pub use feed::{Change, ChangeKind, Changes, ChangesFrom};
pub use query::{Explain, Order, PageToken, Request};
pub use write::IntoUpdate;

/// Definitions of datasets in detail, their texts, and the types of values.
pub mod schema {
    pub use crate::store::check_dataset_name;
    pub use crate::write::with_generated_key;
    pub use esker_model::Error as ModelError;
    pub use esker_model::condition::ParseError;
    pub use esker_model::definition::{
        DefinitionDocument, ExpiresText, Expiry, ExternalKind, IndexDef, IndexText, KINDS, KeyText,
        Layout, Maintenance, Merging, Repair,
    };
    pub use esker_model::fields::{Field, FieldNode, Fields, FieldsOf, JsonTypes};
    pub use esker_model::merge_patch;
    pub use esker_model::schema::{
        KeyError, RecordError, RecordErrorKind, compound_paths, point_time_paths,
    };
    use esker_model::schema::{KeyType, Path, Type};
    use esker_model::schema::{infer, infer_counted, infer_key, infer_time};
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// use esker::schema::Tokenizer;
    /// use esker::{Database, DatasetDef, Index, Options, field};
    ///
    /// let db = Database::create_or_open(dir.path(), Options::default())?;
    /// let def = DatasetDef::key("id")
    ///     .index("name", Index::lazy().string().tokenizer(Tokenizer::Prefix));
    /// let people = db.create_dataset::<u64>("people", def)?;
    /// people.put_json(br#"{"id": 1, "name": "Ada Lovelace"}"#)?;
    /// people.put_json(br#"{"id": 2, "name": "Adam Smith"}"#)?;
    ///
    /// let query = people.query().filter(field("name").prefix("Ada"));
    /// assert_eq!(query.count()?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub use esker_model::tokens::Tokenizer;

    /// The type of most values at `path` in the sample records; `None` if no sample has a value
    /// there.
    pub fn infer_type(samples: &[Vec<u8>], path: &Path) -> Option<Type> {
        let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        infer(&samples, path)
    }

    /// As [`infer_type`]; also returns the number of samples that have a value of another type
    /// there.
    pub fn infer_type_counted(samples: &[Vec<u8>], path: &Path) -> Option<(Type, usize)> {
        let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        infer_counted(&samples, path)
    }

    /// The type of the times at `path` in the sample records, by the unit of their numbers: for an
    /// attribute that was declared as [`Type::Time`].
    pub fn infer_time_type(samples: &[Vec<u8>], path: &Path) -> Type {
        let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        infer_time(&samples, path)
    }

    /// The key type of most values at `path` in the sample records; `None` if no sample has a value
    /// there.
    pub fn infer_key_type(samples: &[Vec<u8>], path: &Path) -> Option<KeyType> {
        infer_key_type_counted(samples, path).map(|(ty, _)| ty)
    }

    /// As [`infer_key_type`]; also returns the number of samples that have a value of another type
    /// there.
    pub fn infer_key_type_counted(samples: &[Vec<u8>], path: &Path) -> Option<(KeyType, usize)> {
        let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        infer_key(&samples, path)
    }
}

/// The datasets that a [`Batch`] writes to, as types.
pub mod batch {
    pub use crate::api::{AnyDataset, OneDataset};
}

/// The parts of an explanation of a query ([`Explain`]).
pub mod explain {
    pub use crate::query::{
        Alternative, Compared, ExplainedCombination, ExplainedCost, ExplainedIndex, ExplainedPlan,
        Note, Outcome, ReadCost, Steps,
    };
}

/// Parts of requests as data: orders, projections, aggregates.
pub mod request {
    pub use esker_model::query::{
        Aggregate, Aggregation, Direction, FieldOrder, Group, GroupBy, Grouping, Groups, Ranking,
    };
    pub use esker_model::schema::Projection;
}

/// Results of queries of points.
pub mod space {
    pub use crate::query::{CellCount, Latest, Neighbour, TableBox};
}

/// Reads of the versions of records.
pub mod versions {
    pub use crate::api::{KeyVersions, ValueVersions};
    pub use crate::query::{ValuePage, ValueToken};
}

/// Changes of indexes and strategies, repair and check: their options, progress and reports.
pub mod maintain {
    pub use crate::api::{ObservedTask, OnProgress};
    pub use crate::check::CheckReport;
    pub use crate::ddl::{
        IndexChange, IndexProgress, IndexStep, MigrationProgress, MigrationReport, MigrationStep,
    };
    pub use crate::repair::{
        Compaction, Lookups, RepairMethod, RepairOptions, RepairProgress, RepairReport,
    };
    pub use esker_model::query::Validation;
}

/// Consumers of changes, and waiting for changes without a thread.
pub mod changes {
    pub use crate::consumer::ChangeConsumer;
    pub use esker_lsm::{Listening, Signal, Wake};
}

/// The types of settings of a store ([`Options`]).
pub mod options {
    pub use esker_lsm::{Budget, Clock, KeepLog};
}

/// Settings and measurements for benchmarks and tests. Programs do not need them, and they may
/// change at any time.
#[doc(hidden)]
pub mod experimental {
    pub use crate::query::Combining;
    pub use esker_lsm::{LookupOptions, NextTable};
}

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the examples in the guide to the library.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryGuide;
