//! SQL over an Esker store: each dataset is a table of Apache DataFusion.
//!
//! The columns of a table are the fields of all records of the dataset, by the statistics that the
//! store keeps of them ([`esker::Dataset::fields`]), and `_record`, the whole record as it was put
//! (`columns.rs` says which type a column has). Conditions and orders become those of the dataset
//! where both mean the same (`filter.rs`, `exec.rs`), so that its indexes answer them; a statement
//! reads one moment of the store (`catalog.rs`).
//!
//! ```no_run
//! # async fn run() -> datafusion::error::Result<()> {
//! let db = esker::Database::open_reader("db", esker::Options::default()).unwrap();
//! let session = esker_sql::Session::new(db, 128 << 20)?;
//! let rows = session.sql("select count(*) from visits").await?.collect().await?;
//! # Ok(())
//! # }
//! ```

mod catalog;
mod columns;
mod exec;
mod filter;
mod object;
mod rows;
mod session;
mod table;
mod topics;

pub use session::Session;
