//! Errors of connections. Calls that read and write return them within an `io::Error`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a connection, a frame or a certificate is refused.
#[derive(Debug)]
pub enum Error {
    /// A file of keys or certificates cannot be read.
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of keys or certificates has not what it should have.
    Pem {
        /// The file.
        path: PathBuf,
        /// What is missing or damaged.
        reason: String,
    },
    /// Keys and certificates that do not go together, or that TLS cannot use.
    Identity(String),
    /// Without TLS there are connections on loopback only.
    NotLoopback(SocketAddr),
    /// The address has no host and port, or no IP address.
    Address(String),
    /// TLS refused the other side, or was refused by it.
    Tls(rustls::Error),
    /// The other side has no certificate.
    NoCertificate,
    /// The certificate is for something else.
    OtherName {
        /// The common name that it should have.
        wanted: String,
        /// The one that it has.
        found: Option<String>,
    },
    /// A frame is longer than the limit of its connection.
    TooLong {
        /// The frame's bytes.
        length: usize,
        /// The limit in bytes.
        most: usize,
    },
    /// A frame's payload does not have the checksum in its header.
    Damaged {
        /// The frame's bytes.
        length: usize,
    },
    /// The connection had failed before, so nothing more is sent on it.
    Broken,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::File { path, source } => write!(f, "{}: {source}", path.display()),
            Error::Pem { path, reason } => write!(f, "{}: {reason}", path.display()),
            Error::Identity(reason) => write!(f, "the certificate cannot be used: {reason}"),
            Error::NotLoopback(address) => write!(
                f,
                "{address} is not on loopback: connections beyond it need TLS"
            ),
            Error::Address(address) => write!(f, "{address:?} is no address HOST:PORT"),
            Error::Tls(source) => write!(f, "TLS: {source}"),
            Error::NoCertificate => write!(f, "the other side has no certificate"),
            Error::OtherName { wanted, found } => {
                let found = found.as_deref().unwrap_or("nothing");
                write!(
                    f,
                    "it names {found}, and should have the common name {wanted}"
                )
            }
            Error::TooLong { length, most } => {
                write!(f, "a frame of {length} bytes, the limit is {most}")
            }
            Error::Damaged { length } => {
                write!(f, "a frame of {length} bytes has another checksum")
            }
            Error::Broken => write!(f, "the connection had failed before"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::File { source, .. } => Some(source),
            Error::Tls(source) => Some(source),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::File { source, .. } => source.kind(),
            Error::NotLoopback(_) | Error::NoCertificate | Error::OtherName { .. } => {
                io::ErrorKind::PermissionDenied
            }
            Error::Address(_) | Error::Identity(_) => io::ErrorKind::InvalidInput,
            Error::Broken => io::ErrorKind::BrokenPipe,
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}
