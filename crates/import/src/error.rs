//! Errors of imports.

use std::fmt;

/// The reason why an import failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An input cannot be read, or a file that belongs to it cannot be written; the text says what
    /// is wrong and what to do.
    Input(String),
    /// The store refused a write.
    Store(esker::Error),
}

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(what) => f.write_str(what),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Input(_) => None,
            Self::Store(error) => Some(error),
        }
    }
}

impl From<esker::Error> for Error {
    fn from(error: esker::Error) -> Self {
        Self::Store(error)
    }
}
