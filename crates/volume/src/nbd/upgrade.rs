//! The seam for encryption: another part of the crate implements it.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// What an encrypted connection is read and written by, and the name in the client's certificate,
/// if it has one.
pub type Encrypted = (Box<dyn Read + Send>, Box<dyn Write + Send>, Option<String>);

/// Encrypts connections, when clients ask for it by `NBD_OPT_STARTTLS`.
pub trait Upgrade: Send + Sync {
    /// Runs the handshake of TLS as the server, and splits the connection. The reader and the
    /// writer are used on two threads at the same time: a read that waits must not hold up writes.
    /// The server shuts the socket down where the handshake takes too long, so reads and writes
    /// need no time limits of their own. The writer ends the encrypted session when it is
    /// dropped. Fails where the client may not connect.
    fn accept(&self, stream: TcpStream) -> io::Result<Encrypted>;

    /// True where clients must encrypt the connection before anything else.
    fn required(&self) -> bool;
}
