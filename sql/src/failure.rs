//! Why the command failed, with its message and exit code.

use std::io;

use datafusion::error::DataFusionError;
use esker::ErrorKind;

/// Why the command failed.
pub(crate) enum Failure {
    /// A statement that failed, or wrong usage.
    Usage(String),
    /// The store is damaged or cannot be used now.
    Store(String),
    /// The reader closed standard output: it has the rows that it wants.
    BrokenPipe,
}

impl Failure {
    /// The exit code: those of `esker`.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Store(_) => 3,
            Failure::BrokenPipe => 0,
        }
    }

    /// The message for standard error, if any.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Failure::Usage(message) | Failure::Store(message) => Some(message),
            Failure::BrokenPipe => None,
        }
    }

    /// Of a failed write to standard output.
    pub(crate) fn output(error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::Usage(format!("cannot write to standard output: {error}")),
        }
    }

    fn of(error: &esker::Error) -> Failure {
        let message = error.to_string();
        match error.kind() {
            ErrorKind::UnknownDataset
            | ErrorKind::UnknownSnapshot
            | ErrorKind::BadInput
            | ErrorKind::Unsupported => Failure::Usage(message),
            _ => Failure::Store(message),
        }
    }
}

impl From<esker::Error> for Failure {
    fn from(error: esker::Error) -> Failure {
        Failure::of(&error)
    }
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Failure {
        match error.find_root() {
            DataFusionError::External(inner) => match inner.downcast_ref::<esker::Error>() {
                Some(error) => Failure::of(error),
                None => Failure::Usage(inner.to_string()),
            },
            DataFusionError::Execution(why) => Failure::Usage(why.clone()),
            root => Failure::Usage(root.strip_backtrace()),
        }
    }
}
