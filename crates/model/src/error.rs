//! Errors in user input and in stored bytes.

use std::fmt;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error; its text names the object concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Invalid input: a record, a key, a condition, a name, a limit.
    BadInput(String),
    /// A sum, or the start of a bucket, is beyond the numbers that can be represented.
    Overflow(String),
    /// Stored bytes are malformed.
    Damaged(String),
}

impl Error {
    /// An [`Error::BadInput`].
    pub fn bad_input(text: impl Into<String>) -> Error {
        Error::BadInput(text.into())
    }

    /// An [`Error::Damaged`].
    pub fn damaged(text: impl Into<String>) -> Error {
        Error::Damaged(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BadInput(text) | Error::Overflow(text) | Error::Damaged(text) => {
                f.write_str(text)
            }
        }
    }
}

impl std::error::Error for Error {}
