//! Imports records into an Esker dataset: from files (NDJSON and other JSON, and CSV; plain, gzip
//! or zstd), and from another store ([`StoreCopy`]).
//!
//! [`sources`] checks the files, [`Import::new`] begins to read them, and [`Import::run`] writes
//! the records into a dataset in batches. A line that does not hold a record of the dataset is
//! rejected: it is written to `FILE.rejected` with the reason, and the import continues. Each batch
//! stores the progress of the import in the same commit, so a killed import resumes after its last
//! batch when it is run again. An [`Observer`] receives the progress; the crate itself prints
//! nothing.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! use esker::{Database, DatasetDef, Key, KeyType, Options};
//! use esker_import::{Import, sources};
//!
//! let file = dir.path().join("visits.ndjson");
//! std::fs::write(&file, "{\"id\":1}\n{\"id\":2}\nbad\n")?;
//! let db = Database::create_or_open(dir.path().join("db"), Options::default())?;
//! let visits = db.create_dataset::<Key>("visits", DatasetDef::new("id", KeyType::Int))?;
//!
//! let report = Import::new(sources(&[file], None)?).run(&visits, &mut ());
//! assert_eq!((report.records, report.rejected), (2, 1));
//! # Ok(())
//! # }
//! ```
//!
//! [`Feed`] returns the lines only, for programs that process them in another way.

// The layers of these modules: `../layers.txt`.

mod compression;
mod copy;
mod error;
mod feed;
mod load;
mod observer;
mod pending;
mod put;
mod refused;
mod rejects;
mod replaced;
mod resume;
mod source;
mod text;
mod utf16;

pub use copy::{Copied, CopyEnd, CopyObserver, CopyStep, Differing, StoreCopy, Unequal};
pub use error::{Error, Result};
pub use feed::{Event, Feed, LINE_MAX, Place, Sample};
pub use load::{BATCH_BYTES, BATCH_RECORDS, End, Import, Report};
pub use observer::{Note, Observer};
pub use put::{is_of_record, put_parts};
pub use resume::{InterruptedImport, interrupted_imports};
pub use source::{Format, Source, read_text, sources};
pub use text::thousands;

#[cfg(test)]
mod faulty_tests;
#[cfg(test)]
mod tests;
