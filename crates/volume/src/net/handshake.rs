//! TLS until both sides know each other, within a time limit for the whole.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use super::error::Error;
use super::name::name;
use super::security::Roles;

/// A socket whose reads and writes end at a point in time.
struct Until<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Until<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }
}

impl Read for Until<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into).map_err(timed_out)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket reports its timeouts as `WouldBlock`; they become `TimedOut`.
pub(super) fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

/// The error of TLS within an error of input and output becomes one of this crate.
fn typed(error: io::Error) -> io::Error {
    match error.downcast::<rustls::Error>() {
        Ok(error) => Error::Tls(error).into(),
        Err(error) => error,
    }
}

/// The handshake of the side that connected to `host`.
pub(super) fn client(
    stream: &TcpStream,
    roles: &Roles,
    host: &str,
    end: Instant,
) -> io::Result<Connection> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_string());
    let name = name.map_err(|_| Error::Address(host.to_string()))?;
    let started = ClientConnection::new(Arc::clone(&roles.client), name);
    finish(stream, started.map_err(Error::Tls)?.into(), end)
}

/// The handshake of the side that accepted.
pub(super) fn server(stream: &TcpStream, roles: &Roles, end: Instant) -> io::Result<Connection> {
    let started = ServerConnection::new(Arc::clone(&roles.server));
    finish(stream, started.map_err(Error::Tls)?.into(), end)
}

fn finish(stream: &TcpStream, mut tls: Connection, end: Instant) -> io::Result<Connection> {
    let mut until = Until { stream, end };
    while tls.is_handshaking() {
        tls.complete_io(&mut until).map_err(typed)?;
    }
    while tls.wants_write() {
        tls.write_tls(&mut until)?;
    }
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(tls)
}

/// The name in the other side's certificate, which the handshake has verified.
pub(super) fn peer(tls: &Connection) -> io::Result<Option<String>> {
    let first = tls.peer_certificates().and_then(<[_]>::first);
    Ok(name(first.ok_or(Error::NoCertificate)?))
}
