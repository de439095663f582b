//! Why a client failed.

use std::fmt;
use std::io;

use super::device::Failure;

/// Why a client failed.
#[derive(Debug)]
pub enum ClientError {
    /// The connection failed; no further request can succeed.
    Connection(io::Error),
    /// The server sent something that the protocol does not have; no further request can succeed.
    Protocol(&'static str),
    /// The server refused the export, and this is what it says.
    Refused(String),
    /// The request failed.
    Failed(Failure),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Connection(error) => write!(f, "the NBD connection failed: {error}"),
            ClientError::Protocol(what) => write!(f, "the server breaks the NBD protocol: {what}"),
            ClientError::Refused(why) => write!(f, "the server refuses the export: {why}"),
            ClientError::Failed(failure) => write!(f, "the request failed: {failure}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> ClientError {
        ClientError::Connection(error)
    }
}
