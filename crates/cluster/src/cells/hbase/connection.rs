//! A connection to a gateway: one request at a time.

use std::io::{BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::wire::{EXCEPTION, REPLY, Reader, kind, malformed};

const CONNECT: Duration = Duration::from_secs(5);

/// What answers a request with an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) message: String,
}

/// The result of a request that was answered.
pub(super) type Answer<T> = std::result::Result<T, Refused>;

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(to),
            Stream::Tls(stream) => stream.read(to),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(from),
            Stream::Tls(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

pub(super) struct Connection {
    stream: BufReader<Stream>,
}

impl Connection {
    /// Connects to `HOST:PORT`; an answer may take `patience`.
    pub(super) fn open(
        host: &str,
        tls: Option<&Arc<ClientConfig>>,
        patience: Duration,
    ) -> Result<Connection> {
        let mut failed = Error::new(ErrorKind::NotFound, "the host has no address");
        for address in host.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => return Connection::on(stream, host, tls, patience),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn on(
        stream: TcpStream,
        host: &str,
        tls: Option<&Arc<ClientConfig>>,
        patience: Duration,
    ) -> Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let stream = match tls {
            None => Stream::Plain(stream),
            Some(config) => {
                let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
                let name = name.trim_matches(['[', ']']).to_string();
                let name = ServerName::try_from(name).map_err(Error::other)?;
                let client = ClientConnection::new(config.clone(), name).map_err(Error::other)?;
                Stream::Tls(Box::new(StreamOwned::new(client, stream)))
            }
        };
        Ok(Connection {
            stream: BufReader::with_capacity(64 << 10, stream),
        })
    }

    /// Sends a request, and reads its answer, of which `read` reads the result by its type. After
    /// an error the connection is of no use.
    pub(super) fn call<T>(
        &mut self,
        request: &[u8],
        read: &dyn Fn(&mut Reader<'_>, u8) -> Result<T>,
    ) -> Result<Answer<Option<T>>> {
        let stream = self.stream.get_mut();
        stream.write_all(request)?;
        stream.flush()?;
        let mut reader = Reader::new(&mut self.stream);
        match reader.begin()? {
            REPLY => {}
            EXCEPTION => return Ok(Err(refused(&mut reader, 1)?)),
            _ => return Err(malformed("it is not an answer")),
        }
        let (mut result, mut error) = (None, None);
        reader.structure(|reader, id, of| {
            match (id, of) {
                (0, of) => result = Some(read(reader, of)?),
                (_, kind::STRUCT) => error = Some(refused(reader, 1)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(match error {
            Some(error) => Err(error),
            None => Ok(result),
        })
    }
}

fn refused(reader: &mut Reader<'_>, field: i16) -> Result<Refused> {
    let mut message = String::new();
    reader.structure(|reader, id, of| {
        let is_message = id == field && of == kind::BINARY;
        if is_message {
            message = String::from_utf8_lossy(&reader.bytes()?).into_owned();
        }
        Ok(is_message)
    })?;
    Ok(Refused { message })
}
