//! Connecting and accepting.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::error::Error;
use super::frame::{Receiver, Sender};
use super::halves::{ReadHalf, STUCK, WriteHalf, halves};
use super::handshake;
use super::security::{Security, check_listen};

/// How long a handshake of the accepting side may take.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);

/// A connection on which frames are sent and received, by different threads if need be.
pub struct Connection {
    /// The frames of the other side.
    pub receive: Receiver,
    /// Frames to the other side.
    pub send: Sender,
    /// The name in the other side's certificate (common name, or else its first DNS name), with
    /// TLS.
    pub peer: Option<String>,
    /// The other side's address.
    pub address: SocketAddr,
}

impl Connection {
    fn new(address: SocketAddr, (read, write, peer): Secured) -> io::Result<Connection> {
        let send = Sender::new(write);
        send.set_stuck_timeout(STUCK)?;
        Ok(Connection {
            receive: Receiver::new(read),
            send,
            peer,
            address,
        })
    }
}

type Secured = (ReadHalf, WriteHalf, Option<String>);

/// Connects to `HOST:PORT` and, with TLS, verifies that the other side's certificate is for that
/// host. All of it takes at most `timeout` (but for the system's search for the host's address).
/// The other side may refuse the own certificate later: then the first `receive` fails.
pub fn connect(addr: &str, security: &Security, timeout: Duration) -> io::Result<Connection> {
    let end = Instant::now() + timeout;
    let wrong = || Error::Address(addr.to_string());
    let (host, _) = addr.rsplit_once(':').ok_or_else(wrong)?;
    let mut failure = io::Error::from(wrong());
    for address in addr.to_socket_addrs()? {
        // The other side would not listen there either.
        check_listen(address, security)?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                let secured = secure(stream, security, Some(host), end)?;
                return Connection::new(address, secured);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Accepts a connection: with TLS, the other side must show a certificate of a trusted issuer
/// within ten seconds.
pub fn accept(stream: TcpStream, security: &Security) -> io::Result<Connection> {
    let address = stream.peer_addr()?;
    let secured = secure(stream, security, None, Instant::now() + HANDSHAKE)?;
    Connection::new(address, secured)
}

/// Secures a connection of another protocol (NBD's STARTTLS), as the accepting side: its two
/// directions, and the name in the other side's certificate. Bytes that were read from `stream`
/// before must not belong to TLS.
pub fn upgrade(
    stream: TcpStream,
    security: &Security,
) -> io::Result<(ReadHalf, WriteHalf, Option<String>)> {
    secure(stream, security, None, Instant::now() + HANDSHAKE)
}

/// Does the handshake of the side that connects to `host`, or of the accepting side.
fn secure(
    stream: TcpStream,
    security: &Security,
    host: Option<&str>,
    end: Instant,
) -> io::Result<Secured> {
    let Security::Tls(roles) = security else {
        let (read, write) = halves(stream, None)?;
        return Ok((read, write, None));
    };
    // The pieces of a handshake would wait for each other's acknowledgement.
    stream.set_nodelay(true)?;
    let tls = match host {
        Some(host) => handshake::client(&stream, roles, host, end)?,
        None => handshake::server(&stream, roles, end)?,
    };
    let peer = handshake::peer(&tls)?;
    let (read, write) = halves(stream, Some(tls))?;
    Ok((read, write, peer))
}
