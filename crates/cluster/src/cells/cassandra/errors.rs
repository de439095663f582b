//! Errors of the driver, in words of this crate.

use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};

use crate::error::Error;

/// The error of a request that failed for good.
pub(super) fn failed(error: &ExecutionError) -> Error {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(db, text)) => {
            of_server(db, text)
        }
        other => Error::Unavailable(format!("the cluster did not answer: {other}")),
    }
}

/// The error of a statement that could not be prepared.
pub(super) fn not_prepared(error: &PrepareError) -> Error {
    let text = error.to_string();
    if text.contains("does not exist") || text.contains("unconfigured table") {
        Error::Busy(format!("a table is gone: {text}"))
    } else {
        Error::Unavailable(format!("the cluster did not answer: {text}"))
    }
}

fn of_server(error: &DbError, text: &str) -> Error {
    match error {
        DbError::Unauthorized | DbError::AuthenticationError => {
            Error::BadInput(format!("the cluster refuses this user: {text}"))
        }
        DbError::Invalid if text.contains("does not exist") || text.contains("unconfigured") => {
            Error::Busy(format!("a table is gone: {text}"))
        }
        DbError::Invalid | DbError::SyntaxError | DbError::ConfigError => {
            Error::Unsupported(format!("the cluster refuses the request: {text}"))
        }
        DbError::Unavailable {
            required, alive, ..
        } => Error::Unavailable(format!(
            "{alive} of {required} replicas that are needed are alive"
        )),
        other => Error::Unavailable(format!("the cluster did not answer in time: {other}")),
    }
}

/// True if the same request may succeed later.
pub(super) fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_))
}
