//! The errors of this crate.

use std::fmt;

use esker_model::Key;
use esker_model::schema::RecordError;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error; each variant names the object that it concerns.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The keyspace does not exist, or holds no datasets.
    NoStore(String),
    /// There is no dataset of that name.
    UnknownDataset {
        /// The name.
        name: String,
        /// A dataset with a similar name, if there is one.
        meant: Option<String>,
    },
    /// Something with that name or key exists already; the text says what.
    Exists(String),
    /// The input does not fit; the text says what and why.
    BadInput(String),
    /// A sum is too large to be represented exactly.
    Overflow(String),
    /// A record is not valid JSON, or does not fit the dataset.
    Record(RecordError),
    /// What was asked for does not exist on a cluster; the text says what to use instead.
    Unsupported(String),
    /// Another writer changed the data first. The same call may succeed if it is made again.
    Conflict {
        /// The key whose record is not as expected.
        key: Option<Box<Key>>,
        /// The actual state.
        what: String,
    },
    /// A change of the dataset is running. Nothing is wrong: try again later.
    Busy(String),
    /// The cluster did not answer in time, or too few of its nodes are alive. Nothing that was to
    /// be written is acknowledged; it may still take effect.
    Unavailable(String),
    /// The clock of this machine differs from the cluster's by more than the bound.
    ClockOff {
        /// By how much this machine's clock is ahead, in milliseconds.
        ahead: i64,
        /// The bound, in milliseconds.
        bound: u64,
    },
    /// A new timestamp must be later than one that is too far ahead of this machine's clock: of a
    /// record of the key, or of the process's last write. Writers made it whose clock was wrong.
    TimestampAhead {
        /// By how much, in milliseconds.
        ahead: u64,
        /// The bound, in milliseconds.
        bound: u64,
    },
    /// The store was opened for reading.
    ReadOnly,
    /// Stored data cannot be read; the text says which.
    Damaged(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoStore(what)
            | Error::Exists(what)
            | Error::BadInput(what)
            | Error::Overflow(what)
            | Error::Unsupported(what)
            | Error::Busy(what)
            | Error::Unavailable(what) => f.write_str(what),
            Error::UnknownDataset { name, meant } => {
                write!(f, "there is no dataset `{name}`")?;
                match meant {
                    Some(meant) => write!(f, "; did you mean `{meant}`?"),
                    None => Ok(()),
                }
            }
            Error::Record(error) => error.fmt(f),
            Error::Conflict { what, .. } => write!(f, "conflict: {what}"),
            Error::ClockOff { ahead, bound } => write!(
                f,
                "the clock of this machine is {} ms {} the cluster's; writes need it within {bound} ms",
                ahead.unsigned_abs(),
                if *ahead > 0 { "ahead of" } else { "behind" }
            ),
            Error::TimestampAhead { ahead, bound } => write!(
                f,
                "a record or this process's last write has a timestamp that is {ahead} ms ahead of this machine's clock, over the bound of {bound} ms: a clock was wrong when it was written"
            ),
            Error::ReadOnly => f.write_str("the store is open for reading only"),
            Error::Damaged(what) => write!(f, "damaged: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Record(error) => Some(error),
            _ => None,
        }
    }
}

impl From<esker_model::Error> for Error {
    fn from(error: esker_model::Error) -> Error {
        match error {
            esker_model::Error::Damaged(what) => Error::Damaged(what),
            esker_model::Error::Overflow(what) => Error::Overflow(what),
            other => Error::BadInput(other.to_string()),
        }
    }
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Error {
        Error::Record(error)
    }
}
