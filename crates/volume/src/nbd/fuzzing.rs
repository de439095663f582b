//! Everything that reads bytes of a peer, under any bytes: for the fuzzer, and for tests. Whatever
//! they are, the functions here return.

use std::io;
use std::sync::Arc;

use super::arriving::Arriving;
use super::client::{Client, Operation};
use super::connection::{Connection, Phase};
use super::device::{Device, Done, Exports, Refused, Run};
use super::handshake::{Chosen, Handshake, Next, Tls, greet, haggle};
use super::limits::Limits;
use super::transmission::read_requests;
use crate::budget::Budget;

const SIZE: u64 = 1 << 20;

/// A device that stores nothing.
struct Zeros;

impl Device for Zeros {
    fn size(&self) -> u64 {
        SIZE
    }
    fn block_size(&self) -> u32 {
        4096
    }
    fn read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, length: u32, done: Done<Vec<u8>>) {
        assert!(length > 0 && offset + u64::from(length) <= SIZE);
        done(Ok(vec![0; length as usize]));
    }
    fn write(&self, offset: u64, data: Vec<u8>, done: Done<()>) {
        assert!(!data.is_empty() && offset + data.len() as u64 <= SIZE);
        done(Ok(()));
    }
    fn discard(&self, offset: u64, length: u64, _zeros: bool, done: Done<()>) {
        assert!(length > 0 && offset + length <= SIZE);
        done(Ok(()));
    }
    fn flush(&self, done: Done<()>) {
        done(Ok(()));
    }
    fn extents(&self, offset: u64, length: u64, done: Done<Vec<Run>>) {
        assert!(length > 0 && offset + length <= SIZE);
        let is_hole = true;
        done(Ok(vec![Run { length, is_hole }]));
    }
    fn closed(&self) {}
}

/// Two exports of nothing: `a`, and the default one.
struct Two;

impl Exports for Two {
    fn list(&self) -> Vec<String> {
        vec!["a".to_owned()]
    }
    fn open(&self, name: &str, _client: Option<&str>) -> Result<Arc<dyn Device>, Refused> {
        match name {
            "" | "a" => Ok(Arc::new(Zeros)),
            _ => Err(Refused::Unknown),
        }
    }
}

/// The server's handshake, where a client sends these bytes. The first byte says how the server is
/// set up.
pub fn fuzz_handshake(bytes: &[u8]) {
    let Some((setting, mut reader)) = bytes.split_first() else {
        return;
    };
    let all = [Tls::Absent, Tls::Offered, Tls::Required, Tls::Done];
    let tls = all[usize::from(*setting) % all.len()];
    let mut handshake = Handshake::new(&Two, 1 << 20, tls);
    let Ok(true) = greet(&mut handshake, &mut reader, &mut io::sink()) else {
        return;
    };
    while let Ok(next) = haggle(&mut handshake, &mut reader, &mut io::sink()) {
        match next {
            Next::Encrypt => handshake.encrypted(Some("client".to_owned())),
            Next::Requests => {
                assert!(handshake.chosen().is_some());
                return;
            }
            _ => return,
        }
    }
}

/// The server's transmission, where a client sends these bytes. The first byte says what was
/// negotiated.
pub fn fuzz_requests(bytes: &[u8]) {
    let Some((setting, reader)) = bytes.split_first() else {
        return;
    };
    let limits = Limits {
        request_bytes: 64 << 10,
        ..Limits::default()
    }
    .possible();
    let budget = Budget::new(limits.in_flight_bytes);
    let connection = Connection::new(usize::MAX, usize::MAX, budget);
    let chosen = Chosen {
        device: Arc::new(Zeros),
        is_structured: setting & 1 != 0,
        has_allocation: setting & 2 != 0,
    };
    // Replies are encoded and dropped: they would otherwise wait for a writer, and requests for
    // them.
    std::thread::scope(|scope| {
        scope.spawn(|| while connection.next().is_some() {});
        let mut reader = Arriving::new(Box::new(reader), None);
        let _ = read_requests(&mut reader, &connection, &chosen, &limits);
        connection.enter(Phase::Draining);
    });
}

/// The client, where a server sends these bytes.
pub fn fuzz_client(bytes: &[u8]) {
    let reader = io::Cursor::new(bytes.to_vec());
    let Ok(mut client) = Client::over(reader, io::sink(), "a") else {
        return;
    };
    let _ = client.read(4096, 100);
    let _ = client.block_status(0, 1 << 20);
    let reads = (0..4).map(|n| Operation::Read {
        offset: n * 10,
        length: 10,
    });
    let _ = client.pipeline(reads, 2, |_, _| {});
    let _ = client.disconnect();
}
