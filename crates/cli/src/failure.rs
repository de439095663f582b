//! Outcomes and failures of commands, with their exit codes.

use std::io;

use esker::Error;
use esker_store::served_at;

/// The result of a command that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Found, or done.
    Done,
    /// The record does not exist.
    NotFound,
    /// A signal of this number ended the command in good order.
    Interrupted(u8),
}

impl Outcome {
    /// The process's exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::NotFound => 1,
            Self::Interrupted(signal) => 128 + signal,
        }
    }

    /// `Done` if at least one record was printed.
    pub(crate) fn found(records: u64) -> Self {
        if records > 0 {
            Self::Done
        } else {
            Self::NotFound
        }
    }
}

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Wrong usage or bad input: the problem, and what to do about it.
    Usage(String),
    /// The store is damaged or cannot be used now.
    Store(String),
    /// The reader closed standard output; it has the data that it wants.
    BrokenPipe,
}

impl Failure {
    /// The process's exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Store(_) => 3,
            Self::BrokenPipe => 0,
        }
    }

    /// The message for standard error, if any.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Self::Usage(message) | Self::Store(message) => Some(message),
            Self::BrokenPipe => None,
        }
    }

    /// Converts a failed write to standard output.
    pub(crate) fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Store(format!("cannot write to standard output: {error}")),
        }
    }
}

impl From<esker::schema::ModelError> for Failure {
    fn from(error: esker::schema::ModelError) -> Self {
        Error::from(error).into()
    }
}

impl From<esker_import::Error> for Failure {
    fn from(error: esker_import::Error) -> Self {
        match error {
            esker_import::Error::Store(error) => error.into(),
            other => Self::Usage(other.to_string()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::UnknownDataset { .. }
            | Error::UnknownSnapshot { .. }
            | Error::BadInput(_)
            | Error::Record(_)
            | Error::Condition(_)
            | Error::NoOldRecords { .. }
            | Error::NotUnique(_)
            | Error::Exists(_) => Self::Usage(error.to_string()),
            Error::NoStore { .. } => Self::Store(format!(
                "{error}; `esker load`, `create` and `publish` create one"
            )),
            Error::PositionExpired { .. } => Self::Store(format!(
                "{error}; leave --from out to begin there, or keep changes with --consumer"
            )),
            Error::Locked { ref folder } => Self::Store(match served_at(folder) {
                Some(address) => format!(
                    "{error}: it is served at {address}, which stands where the folder stands, as in `esker list {address}`"
                ),
                None => format!(
                    "{error}: one process writes at a time, and commands that only read work beside it"
                ),
            }),
            _ => Self::Store(error.to_string()),
        }
    }
}
