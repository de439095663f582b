//! What can go wrong with records.

use std::fmt;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// A class of errors, for programs that act on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no store in the folder.
    NoStore,
    /// The store has no dataset of that name.
    UnknownDataset,
    /// There is something of that name or key already.
    Exists,
    /// The input does not fit: a record, a key, a condition, a name, a limit.
    BadInput,
    /// A file is damaged, missing, or of a newer format.
    Damaged,
    /// The store cannot be used now: another process has it, the disk is full, a call failed.
    Unavailable,
}

/// An error, with the thing it is about in its text.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    text: String,
    source: Option<lsm::Error>,
    busy: bool,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error {
            kind,
            text: text.into(),
            source: None,
            busy: false,
        }
    }

    /// Somebody is changing the dataset, or has not finished that: nothing is wrong, later it will be possible.
    pub(crate) fn busy(text: impl Into<String>) -> Error {
        Error {
            busy: true,
            ..Error::new(ErrorKind::Unavailable, text)
        }
    }

    pub(crate) fn bad_input(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::BadInput, text)
    }

    pub(crate) fn damaged(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Damaged, text)
    }

    /// Its class.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// True for an [`Error::busy`], among all that are [`ErrorKind::Unavailable`].
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// The engine's error behind it, if it is one.
    pub fn engine(&self) -> Option<&lsm::Error> {
        self.source.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<lsm::Error> for Error {
    fn from(source: lsm::Error) -> Error {
        let kind = match &source {
            lsm::Error::NoStore { .. } => ErrorKind::NoStore,
            lsm::Error::Corruption { .. } | lsm::Error::NewerFormat { .. } => ErrorKind::Damaged,
            lsm::Error::Io { source, op, .. }
                if *op != "lock" && source.kind() == std::io::ErrorKind::NotFound =>
            {
                ErrorKind::Damaged
            }
            lsm::Error::Limit { .. } | lsm::Error::Invalid(_) => ErrorKind::BadInput,
            _ => ErrorKind::Unavailable,
        };
        Error {
            kind,
            text: source.to_string(),
            source: Some(source),
            busy: false,
        }
    }
}
