//! The observer of an import: receives progress and notes, and can stop it.

use std::fmt;
use std::path::PathBuf;

use crate::text::thousands;

/// Receives the progress and the notes of an import. Every method has a default that does nothing.
pub trait Observer {
    /// Receives the progress after each batch: bytes of input read (before decompression) and
    /// records loaded.
    fn progress(&mut self, bytes: u64, records: u64) {
        let _ = (bytes, records);
    }

    /// Receives a note for people. Its `Display` is a sentence.
    fn note(&mut self, note: &Note) {
        let _ = note;
    }

    /// True if the import should commit what it has read and return.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Ignores everything.
impl Observer for () {}

/// A note of an import.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note {
    /// An earlier import of these files was interrupted, and the files have changed since: the
    /// import starts over.
    Changed,
    /// An earlier import of these files was interrupted, and some of the lines that it had rejected
    /// are no longer in their file: the import starts over.
    RejectsLost {
        /// The file.
        path: PathBuf,
    },
    /// An earlier import of these files was interrupted: this one resumes it.
    Resuming {
        /// The name of the input.
        name: String,
        /// Its last line that is loaded or rejected.
        line: u64,
        /// Records that are loaded.
        records: u64,
    },
    /// The format in which an input is read, if not as one record per line.
    Read(String),
    /// The file for rejected lines cannot be written: the lines follow as `Rejected`.
    Unwritten {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A rejected line that is not in a file.
    Rejected {
        /// Its number.
        line: u64,
        /// The reason for the rejection.
        reason: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str(
                "an interrupted load of these files is not resumed, because they have changed since: everything is loaded from the start",
            ),
            Self::RejectsLost { path } => write!(
                f,
                "an interrupted load of these files is not resumed, because lines that it had rejected are no longer in {}: everything is loaded from the start",
                path.display()
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
