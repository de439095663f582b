//! A client that waits for its answers, and one method that keeps several requests in flight.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::answers::{Answer, Expected, read_answer};
use super::device::{Failure, Run};
use super::error::ClientError;
use super::greeting::{self, Export};
use super::protocol::{Request, can, command, flag};

/// What a client asks for. Offsets and lengths are in bytes, at any alignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Reads.
    Read {
        /// The first byte.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// Writes.
    Write {
        /// The first byte.
        offset: u64,
        /// What.
        data: Vec<u8>,
        /// Durable when it is answered, whatever the server does with other writes.
        fua: bool,
    },
    /// Makes all writes durable that were answered before.
    Flush,
    /// Says that a range is not needed any more.
    Trim {
        /// The first byte.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// Writes zeros.
    Zero {
        /// The first byte.
        offset: u64,
        /// How many.
        length: u32,
    },
}

/// A connection to an export.
pub struct Client {
    reader: Box<dyn Read + Send>,
    writer: Box<dyn Write + Send>,
    export: Export,
    next_cookie: u64,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("export", &self.export)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to an export, without a time limit.
    pub fn connect(addr: impl ToSocketAddrs, export: &str) -> Result<Client, ClientError> {
        Client::connect_within(addr, export, None)
    }

    /// Connects to an export. Each wait for the server, now and later, is at most `patience` long.
    pub fn connect_within(
        addr: impl ToSocketAddrs,
        export: &str,
        patience: Option<Duration>,
    ) -> Result<Client, ClientError> {
        let (reader, writer) = open(addr, patience)?;
        Client::over(reader, writer, export)
    }

    /// Connects to an export over TLS: `encrypt` runs its handshake as the client, and splits the
    /// connection.
    pub fn connect_encrypted<R: Read + Send + 'static, W: Write + Send + 'static>(
        addr: impl ToSocketAddrs,
        export: &str,
        patience: Option<Duration>,
        encrypt: impl FnOnce(TcpStream) -> io::Result<(R, W)>,
    ) -> Result<Client, ClientError> {
        let (mut reader, mut writer) = open(addr, patience)?;
        greeting::begin(&mut reader, &mut writer)?;
        greeting::start_tls(&mut reader, &mut writer)?;
        let (reader, writer) = encrypt(writer)?;
        Client::choose(reader, writer, export)
    }

    /// Speaks NBD over a connection that exists already, from the server's greeting on.
    pub fn over(
        mut reader: impl Read + Send + 'static,
        mut writer: impl Write + Send + 'static,
        export: &str,
    ) -> Result<Client, ClientError> {
        greeting::begin(&mut reader, &mut writer)?;
        Client::choose(reader, writer, export)
    }

    fn choose(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        export: &str,
    ) -> Result<Client, ClientError> {
        let mut reader: Box<dyn Read + Send> = Box::new(BufReader::new(reader));
        let mut writer: Box<dyn Write + Send> = Box::new(writer);
        let export = greeting::choose(&mut reader, &mut writer, export)?;
        Ok(Client {
            reader,
            writer,
            export,
            next_cookie: 1,
        })
    }

    /// The names of a server's exports. Each wait for the server is at most `patience` long.
    pub fn list(
        addr: impl ToSocketAddrs,
        patience: Option<Duration>,
    ) -> Result<Vec<String>, ClientError> {
        let (mut reader, mut writer) = open(addr, patience)?;
        greeting::list(&mut reader, &mut writer)
    }

    /// Bytes of the export, when it was opened.
    pub fn size(&self) -> u64 {
        self.export.size
    }

    /// The preferred size and alignment of requests in bytes.
    pub fn block_size(&self) -> u32 {
        self.export.block_size
    }

    /// The most bytes of a read or a write.
    pub fn request_bytes(&self) -> u32 {
        self.export.request_bytes
    }

    /// True where writes are refused.
    pub fn read_only(&self) -> bool {
        self.export.flags & can::READ_ONLY != 0
    }

    /// True where several connections see each other's writes.
    pub fn multi_conn(&self) -> bool {
        self.export.flags & can::MULTI_CONN != 0
    }

    /// Reads.
    pub fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, ClientError> {
        self.ask(&Operation::Read { offset, length })
    }

    /// Writes, durable when it returns where the server has FUA, and else after a flush.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        let (data, fua) = (data.to_vec(), self.export.flags & can::FUA != 0);
        self.ask(&Operation::Write { offset, data, fua }).map(drop)
    }

    /// Makes all writes durable that were answered before.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.ask(&Operation::Flush).map(drop)
    }

    /// Says that a range is not needed any more.
    pub fn trim(&mut self, offset: u64, length: u32) -> Result<(), ClientError> {
        self.ask(&Operation::Trim { offset, length }).map(drop)
    }

    /// Writes zeros.
    pub fn zero(&mut self, offset: u64, length: u32) -> Result<(), ClientError> {
        self.ask(&Operation::Zero { offset, length }).map(drop)
    }

    /// The allocation from `offset` on: at least one run, and possibly of less or more than
    /// `length` bytes.
    pub fn block_status(&mut self, offset: u64, length: u32) -> Result<Vec<Run>, ClientError> {
        let request = self.request(command::BLOCK_STATUS, 0, offset, length);
        self.writer.write_all(&request.encode())?;
        self.writer.flush()?;
        let expected = Expected::of(&request, self.export.context);
        match self.answer(request.cookie, expected)? {
            Answer::Runs(runs) => Ok(runs),
            Answer::Data(_) => Err(ClientError::Protocol("data instead of a status")),
        }
    }

    /// Says goodbye. A client that is dropped without it just closes the connection.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        let request = self.request(command::DISC, 0, 0, 0);
        self.writer.write_all(&request.encode())?;
        self.writer.flush()?;
        // The server closes when the requests before are ended.
        match self.reader.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(ClientError::Protocol("more data after the goodbye")),
        }
    }

    /// Sends all operations with at most `depth` in flight. Calls `outcome` for each when its
    /// answer is there, with its place in the order and, for a read, its data. Fails where the
    /// connection does; then it is unknown which of the operations without an outcome have
    /// happened.
    pub fn pipeline(
        &mut self,
        operations: impl IntoIterator<Item = Operation, IntoIter: Send>,
        depth: usize,
        mut outcome: impl FnMut(u64, Result<Vec<u8>, Failure>),
    ) -> Result<(), ClientError> {
        let first = self.next_cookie;
        let flight = Flight::new(depth.max(1));
        let operations = operations.into_iter();
        let (reader, writer) = (&mut self.reader, &mut self.writer);
        let structured = self.export.is_structured;
        let (sent, received) = thread::scope(|scope| {
            let send = || send_all(writer, operations, first, &flight);
            let sender = thread::Builder::new().spawn_scoped(scope, send)?;
            let received = receive_all(reader, structured, &flight, |cookie, result| {
                outcome(cookie - first, result);
            });
            flight.end();
            let died = Err(io::Error::other("the sending thread panicked"));
            Ok::<_, io::Error>((sender.join().unwrap_or(died), received))
        })?;
        self.next_cookie = flight.next(first);
        received?;
        Ok(sent?)
    }

    fn ask(&mut self, operation: &Operation) -> Result<Vec<u8>, ClientError> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let (request, data) = encode(operation, cookie);
        self.writer.write_all(&request.encode())?;
        self.writer.write_all(data)?;
        self.writer.flush()?;
        let expected = Expected::of(&request, None);
        match self.answer(cookie, expected)? {
            Answer::Data(data) => Ok(data),
            Answer::Runs(_) => Err(ClientError::Protocol("a status that was not asked for")),
        }
    }

    fn answer(&mut self, cookie: u64, expected: Expected) -> Result<Answer, ClientError> {
        let structured = self.export.is_structured;
        let expect = |of| (of == cookie).then_some(expected);
        let (_, answer) = read_answer(&mut self.reader, structured, &mut HashMap::new(), expect)?;
        answer.map_err(ClientError::Failed)
    }

    fn request(&mut self, kind: u16, flags: u16, offset: u64, length: u32) -> Request {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        Request {
            flags,
            kind,
            cookie,
            offset,
            length,
        }
    }
}

/// The two directions of a connection.
type Streams = (TcpStream, TcpStream);

fn open(addr: impl ToSocketAddrs, patience: Option<Duration>) -> io::Result<Streams> {
    let stream = match patience {
        None => TcpStream::connect(addr)?,
        Some(patience) => {
            let mut last = io::Error::other("the address names no host");
            let mut connected = None;
            for addr in addr.to_socket_addrs()? {
                match TcpStream::connect_timeout(&addr, patience) {
                    Ok(stream) => {
                        connected = Some(stream);
                        break;
                    }
                    Err(error) => last = error,
                }
            }
            connected.ok_or(last)?
        }
    };
    stream.set_nodelay(true)?;
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    Ok((stream.try_clone()?, stream))
}

fn encode(operation: &Operation, cookie: u64) -> (Request, &[u8]) {
    let (kind, flags, offset, length, data): (u16, u16, u64, u32, &[u8]) = match operation {
        Operation::Read { offset, length } => (command::READ, 0, *offset, *length, &[]),
        Operation::Write { offset, data, fua } => {
            let flags = if *fua { flag::FUA } else { 0 };
            // A length of more than 32 bits is refused by every server.
            let length = super::protocol::length_of(data);
            (command::WRITE, flags, *offset, length, data)
        }
        Operation::Flush => (command::FLUSH, 0, 0, 0, &[]),
        Operation::Trim { offset, length } => (command::TRIM, 0, *offset, *length, &[]),
        Operation::Zero { offset, length } => (command::WRITE_ZEROES, 0, *offset, *length, &[]),
    };
    let request = Request {
        flags,
        kind,
        cookie,
        offset,
        length,
    };
    (request, data)
}

/// What the two threads of a pipeline share.
struct Flight {
    depth: usize,
    state: Mutex<FlightState>,
    changed: Condvar,
}

#[derive(Default)]
struct FlightState {
    /// What is expected for each cookie in flight.
    expected: HashMap<u64, Expected>,
    sent: u64,
    is_all_sent: bool,
    is_over: bool,
}

impl Flight {
    fn new(depth: usize) -> Flight {
        Flight {
            depth,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Waits for room. False where nothing may be sent any more.
    fn depart(&self, request: &Request) -> bool {
        let mut state = self.state.lock();
        while !state.is_over && state.expected.len() >= self.depth {
            self.changed.wait(&mut state);
        }
        if !state.is_over {
            let expected = Expected::of(request, None);
            state.expected.insert(request.cookie, expected);
            state.sent += 1;
            self.changed.notify_all();
        }
        !state.is_over
    }

    fn all_sent(&self) {
        self.state.lock().is_all_sent = true;
        self.changed.notify_all();
    }

    /// Waits until an answer is to be read. False where there will be none any more.
    fn is_expecting(&self) -> bool {
        let mut state = self.state.lock();
        while state.expected.is_empty() && !state.is_all_sent {
            self.changed.wait(&mut state);
        }
        !state.expected.is_empty()
    }

    fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }

    fn next(&self, first: u64) -> u64 {
        first + self.state.lock().sent
    }
}

fn send_all(
    writer: &mut dyn Write,
    operations: impl Iterator<Item = Operation>,
    first: u64,
    flight: &Flight,
) -> io::Result<()> {
    let send = || {
        for (operation, cookie) in operations.zip(first..) {
            let (request, data) = encode(&operation, cookie);
            if !flight.depart(&request) {
                break;
            }
            writer.write_all(&request.encode())?;
            writer.write_all(data)?;
            writer.flush()?;
        }
        Ok(())
    };
    let sent = send();
    flight.all_sent();
    sent
}

fn receive_all(
    reader: &mut dyn Read,
    is_structured: bool,
    flight: &Flight,
    mut outcome: impl FnMut(u64, Result<Vec<u8>, Failure>),
) -> Result<(), ClientError> {
    let mut begun = HashMap::new();
    while flight.is_expecting() {
        let expect = |cookie| flight.state.lock().expected.get(&cookie).copied();
        let (cookie, answer) = read_answer(reader, is_structured, &mut begun, expect)?;
        flight.state.lock().expected.remove(&cookie);
        flight.changed.notify_all();
        match answer {
            Ok(Answer::Data(data)) => outcome(cookie, Ok(data)),
            Ok(Answer::Runs(_)) => return Err(ClientError::Protocol("an unexpected status")),
            Err(failure) => outcome(cookie, Err(failure)),
        }
    }
    Ok(())
}
