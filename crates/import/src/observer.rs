//! How a program follows an import: its progress, its notes, and whether it is to stop.

use std::fmt;
use std::path::PathBuf;

use crate::text::thousands;

/// What an import tells the program that runs it. Every method has a default that does nothing.
pub trait Observer {
    /// Progress, after each batch: bytes of input that were read, before decompression, and records that are loaded.
    fn progress(&mut self, bytes: u64, records: u64) {
        let _ = (bytes, records);
    }

    /// Something that a person may want to know. Its `Display` is a sentence.
    fn note(&mut self, note: &Note) {
        let _ = note;
    }

    /// True when the import is to commit what it has read and return.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Ignores everything.
impl Observer for () {}

/// Something that an import tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note {
    /// An earlier import of these files was interrupted, and they have changed since.
    Changed,
    /// An earlier import of these files was interrupted: this one resumes it.
    Resuming {
        /// The name of the input.
        name: String,
        /// Its last line that is loaded or rejected.
        line: u64,
        /// Records that are loaded.
        records: u64,
    },
    /// How an input is read, where that is not a record a line.
    Read(String),
    /// The file of rejected lines cannot be written: the lines follow as `Rejected`.
    Unwritten {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A rejected line that no file keeps.
    Rejected {
        /// Its number.
        line: u64,
        /// Why it is rejected.
        reason: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str(
                "an interrupted load of these files is not resumed, for they have changed since: all is loaded",
            ),
            Self::Resuming {
                name,
                line,
                records,
            } => write!(
                f,
                "resuming after line {} of {name}: {} records are loaded (--restart loads all again)",
                thousands(*line),
                thousands(*records)
            ),
            Self::Read(how) => f.write_str(how),
            Self::Unwritten { path, reason } => write!(
                f,
                "cannot write {}: {reason}; rejected lines are listed here",
                path.display()
            ),
            Self::Rejected { line, reason } => write!(f, "line {line}: {reason}"),
        }
    }
}
