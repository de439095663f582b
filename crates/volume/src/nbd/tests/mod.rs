//! Tests of the server over sockets.

mod handshake;
mod hostile;
mod tools;
mod transfers;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::memory::{Memory, Shelf};
use super::protocol::{self, OptionReply, Request, option, rep};
use super::{Client, Limits, Server, Upgrade};

/// A server of two devices in memory: `disk` of 4 MiB, and `fixed` of 1 MiB that is read-only.
struct Setup {
    server: Server,
    address: SocketAddr,
    disk: Arc<Memory>,
    fixed: Arc<Memory>,
}

fn start(limits: Limits) -> Setup {
    start_with(limits, None)
}

fn start_with(limits: Limits, tls: Option<Arc<dyn Upgrade>>) -> Setup {
    let disk = Memory::new(4 << 20, false);
    let fixed = Memory::new(1 << 20, true);
    let mut shelf = Shelf::default();
    for (name, device) in [("disk", &disk), ("fixed", &fixed)] {
        shelf.devices.insert(name.to_owned(), Arc::clone(device));
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(listener, Arc::new(shelf), limits, tls).unwrap();
    let address = server.address().unwrap();
    Setup {
        server,
        address,
        disk,
        fixed,
    }
}

impl Setup {
    fn client(&self, name: &str) -> Client {
        Client::connect(self.address, name).unwrap()
    }

    fn raw(&self) -> Raw {
        let stream = TcpStream::connect(self.address).unwrap();
        let reader = Box::new(stream.try_clone().unwrap());
        let writer = Box::new(stream);
        Raw { reader, writer }
    }

    /// Waits until all connections have ended, and checks that they left nothing.
    fn wait_for_silence(&self) {
        wait(|| self.server.connections() == 0);
        assert_eq!(self.server.lent(), 0);
    }

    fn closed(&self) -> u32 {
        self.disk.closed.load(Ordering::SeqCst)
    }
}

/// Waits for what happens on other threads; a minute is for ever.
fn wait(until: impl Fn() -> bool) {
    let begun = Instant::now();
    while !until() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A client that sends what the test says.
struct Raw {
    reader: Box<dyn Read + Send>,
    writer: Box<dyn Write + Send>,
}

impl Raw {
    fn send(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).unwrap();
        self.writer.flush().unwrap();
    }

    /// Sends what the server may not want any more.
    fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.writer.write_all(bytes);
        let _ = self.writer.flush();
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Waits for the end of the connection, and returns what came before. A reset is an end as
    /// well.
    fn rest(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = self.reader.read_to_end(&mut bytes);
        bytes
    }

    fn greet(&mut self, flags: u32) {
        assert_eq!(self.take(18), b"NBDMAGICIHAVEOPT\0\x03");
        self.send(&flags.to_be_bytes());
    }

    /// The kinds and data of all replies to an option.
    fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send(&protocol::option(option, data));
        let mut replies = Vec::new();
        loop {
            let head = OptionReply::decode(&self.take(OptionReply::BYTES)).unwrap();
            assert_eq!(head.option, option);
            let data = self.take(head.length as usize);
            replies.push((head.kind, data));
            if head.kind == rep::ACK || head.kind & rep::ERR != 0 {
                return replies;
            }
        }
    }

    /// The kind of the last reply to an option.
    fn outcome(&mut self, option: u32, data: &[u8]) -> u32 {
        self.option(option, data).last().unwrap().0
    }

    /// Enters the transmission.
    fn go(&mut self, name: &str) {
        assert_eq!(self.outcome(option::GO, &wanted(name, &[])), rep::ACK);
    }

    /// A connection in the transmission, with simple replies.
    fn open(setup: &Setup, name: &str) -> Raw {
        let mut raw = setup.raw();
        raw.greet(3);
        raw.go(name);
        raw
    }

    fn request(&mut self, kind: u16, cookie: u64, offset: u64, length: u32, data: &[u8]) {
        let request = Request {
            flags: 0,
            kind,
            cookie,
            offset,
            length,
        };
        self.send(&[&request.encode(), data].concat());
    }

    /// The error number and the cookie of a simple reply.
    fn simple(&mut self) -> (u32, u64) {
        let bytes = self.take(16);
        assert_eq!(bytes[..4], [0x67, 0x44, 0x66, 0x98]);
        let errno = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
        (errno, u64::from_be_bytes(bytes[8..].try_into().unwrap()))
    }
}

/// The data of `NBD_OPT_GO`.
fn wanted(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&u16::try_from(kinds.len()).unwrap().to_be_bytes());
    kinds
        .iter()
        .for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
    data
}

/// The data of the options about contexts.
fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&u32::try_from(queries.len()).unwrap().to_be_bytes());
    for query in queries {
        data.extend_from_slice(&u32::try_from(query.len()).unwrap().to_be_bytes());
        data.extend_from_slice(query.as_bytes());
    }
    data
}
