//! Errors of the driver, in words of this crate.

use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, NewSessionError, PrepareError, RequestAttemptError,
};

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
        // So nodes answer a change of the schema. They may not have heard of a keyspace yet that
        // another node has made a moment ago, even if they seemed to agree.
        DbError::Invalid if text.contains("doesn't exist") => {
            Error::Unavailable(format!("a node does not know the keyspace: {text}"))
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

/// The error of an answer that is not of the form that was asked for.
pub(super) fn unexpected(error: &dyn std::fmt::Display) -> Error {
    Error::Damaged(format!("the cluster's answer cannot be read: {error}"))
}

/// The error of a connection that will be refused again, if it is one: the user, or a certificate.
pub(super) fn refused(error: &NewSessionError) -> Option<Error> {
    use ConnectionSetupRequestErrorKind as Setup;
    let NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
        ConnectionPoolError::Broken {
            last_connection_error: last,
        },
    )) = error
    else {
        return None;
    };
    match last {
        ConnectionError::ConnectionSetupRequestError(setup) => match setup.get_error() {
            Setup::DbError(DbError::AuthenticationError | DbError::Unauthorized, text) => Some(
                Error::BadInput(format!("the cluster refuses this user: {text}")),
            ),
            Setup::MissingAuthentication => Some(Error::BadInput(
                "the cluster asks for a user: give user=NAME and a password".to_string(),
            )),
            _ => None,
        },
        ConnectionError::IoError(error) => {
            let inner = error.get_ref()?;
            let tls = inner.downcast_ref::<rustls::Error>()?;
            let is_lasting = matches!(tls, rustls::Error::InvalidCertificate(_));
            is_lasting
                .then(|| Error::BadInput(format!("the certificate of a node is refused: {tls}")))
        }
        _ => None,
    }
}

/// True if the same request may succeed later.
pub(super) fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of three nodes answered the creation of a table with this, a moment after another had
    /// made the keyspace: it failed for good.
    #[test]
    fn a_node_may_yet_hear_of_a_keyspace() {
        let of = |text: &str| of_server(&DbError::Invalid, text);
        assert!(may_pass(&of("Keyspace 'shop' doesn't exist")));
        let gone = of("Keyspace shop does not exist");
        assert!(matches!(gone, Error::Busy(_)), "{gone}");
    }
}
