//! Clients that break the protocol, stall or disappear: only their own connection ends.

use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::fuzzing::{fuzz_client, fuzz_handshake, fuzz_requests};
use super::super::protocol::{Request, command, option};
use super::super::{Client, ClientError, Limits};
use super::{Raw, contexts, start, wait, wanted};

#[test]
fn garbage_ends_its_connection_only() {
    let setup = start(Limits::default());
    let mut client = setup.client("disk");
    let mut raw = setup.raw();
    raw.try_send(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(raw.rest(), b"NBDMAGICIHAVEOPT\0\x03");
    let mut raw = setup.raw();
    raw.greet(3);
    raw.try_send(b"IHAVENOTOPT-----");
    assert_eq!(raw.rest(), b"");
    let mut raw = setup.raw();
    raw.greet(3);
    raw.try_send(b"IHAVEOPT\0\0\0\x03\x7f\xff\xff\xff");
    assert_eq!(raw.rest(), b"");
    let mut raw = Raw::open(&setup, "disk");
    raw.try_send(&[0; 28]);
    assert_eq!(raw.rest(), b"");
    client.write(0, b"still there").unwrap();
    assert_eq!(client.read(0, 11).unwrap(), b"still there");
    drop(client);
    setup.wait_for_silence();
    assert_eq!(setup.closed(), 2);
}

#[test]
fn a_client_that_disappears_leaves_nothing() {
    let setup = start(Limits::default());
    let write = Request {
        flags: 0,
        kind: command::WRITE,
        cookie: 1,
        offset: 0,
        length: 1 << 20,
    };
    // In the middle of a request's head, and of its data.
    for sent in [
        &write.encode()[..10],
        &[&write.encode()[..], &[7; 5000]].concat(),
    ] {
        let mut raw = Raw::open(&setup, "disk");
        raw.send(sent);
        drop(raw);
        setup.wait_for_silence();
    }
    assert!(setup.disk.contents().iter().all(|byte| *byte == 0));
    // In the middle of the work on a request: the device learns of it at once.
    setup.disk.is_slow.store(true, Ordering::SeqCst);
    let mut raw = Raw::open(&setup, "disk");
    raw.request(command::WRITE, 1, 0, 4, b"data");
    wait(|| setup.disk.held() == 1);
    drop(raw);
    wait(|| setup.closed() == 3);
    wait(|| setup.server.connections() == 0);
    assert_eq!(setup.server.lent(), 4, "the device still has the data");
    setup.disk.release();
    setup.wait_for_silence();
    // In the middle of a reply.
    let mut raw = Raw::open(&setup, "disk");
    raw.request(command::READ, 1, 0, 4 << 20, &[]);
    raw.take(1000);
    drop(raw);
    setup.wait_for_silence();
}

/// Limits that a test reaches soon.
fn impatient() -> Limits {
    Limits {
        handshake: Duration::from_millis(50),
        stall: Duration::from_millis(50),
        ..Limits::default()
    }
}

#[test]
fn a_client_that_stalls_is_cut_off() {
    let setup = start(impatient());
    assert_eq!(setup.raw().rest(), b"NBDMAGICIHAVEOPT\0\x03");
    setup.wait_for_silence();
}

#[test]
fn a_client_that_stalls_in_the_data_of_a_write_is_cut_off() {
    let setup = start(Limits {
        handshake: Duration::from_secs(60),
        ..impatient()
    });
    let mut raw = Raw::open(&setup, "disk");
    raw.request(command::WRITE, 1, 0, 4096, b"not all of it");
    assert_eq!(raw.rest(), b"");
    setup.wait_for_silence();
    // Nor does one that takes no replies keep their memory.
    let mut raw = Raw::open(&setup, "disk");
    for cookie in 0..200 {
        // The server has closed the connection before it has read all of them.
        let request = Request {
            flags: 0,
            kind: command::READ,
            cookie,
            offset: 0,
            length: 128 << 10,
        };
        raw.try_send(&request.encode());
    }
    setup.wait_for_silence();
    assert_eq!(setup.closed(), 2);
}

#[test]
fn a_client_that_is_silent_is_kept_unless_there_is_a_limit() {
    let setup = start(Limits {
        handshake: Duration::from_secs(60),
        idle: Some(Duration::from_millis(50)),
        ..Limits::default()
    });
    // Not while it waits for an answer. On a machine that is busy, it may be cut off before it has
    // asked.
    setup.disk.is_slow.store(true, Ordering::SeqCst);
    let mut raw = loop {
        let before = setup.closed();
        let mut raw = Raw::open(&setup, "disk");
        let request = Request {
            flags: 0,
            kind: command::WRITE,
            cookie: 1,
            offset: 0,
            length: 1,
        };
        raw.try_send(&[&request.encode()[..], b"x"].concat());
        wait(|| setup.disk.held() == 1 || setup.closed() > before);
        if setup.disk.held() == 1 {
            break raw;
        }
    };
    let before = setup.closed();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(setup.closed(), before);
    setup.disk.release();
    assert_eq!(raw.simple(), (0, 1));
    assert_eq!(raw.rest(), b"");
    setup.wait_for_silence();
}

#[test]
fn a_device_that_panics_ends_its_connection_only() {
    let setup = start(Limits::default());
    let mut other = setup.client("fixed");
    let mut client = setup.client("disk");
    setup.disk.errno.store(u32::MAX, Ordering::SeqCst);
    let error = client.write(0, b"x").unwrap_err();
    // The failure of the request may come first.
    assert!(!matches!(error, ClientError::Refused(_)), "{error}");
    wait(|| setup.closed() == 1);
    client.read(0, 1).unwrap_err();
    assert_eq!(other.read(0, 1).unwrap(), [0]);
    drop(other);
    setup.wait_for_silence();
    setup.server.stop();
}

/// A reader that keeps a copy of what was read.
struct Copying(TcpStream, Arc<Mutex<Vec<u8>>>);

impl Read for Copying {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.0.read(into)?;
        self.1.lock().unwrap().extend_from_slice(&into[..length]);
        Ok(length)
    }
}

/// What a server sends to the client of `fuzz_client`.
fn answers() -> Vec<u8> {
    let setup = start(Limits::default());
    let stream = TcpStream::connect(setup.address).unwrap();
    let copy = Arc::new(Mutex::new(Vec::new()));
    let reader = Copying(stream.try_clone().unwrap(), Arc::clone(&copy));
    let mut client = Client::over(reader, stream, "disk").unwrap();
    client.read(4096, 100).unwrap();
    client.block_status(0, 1 << 20).unwrap();
    client.disconnect().unwrap();
    std::mem::take(&mut copy.lock().unwrap())
}

/// What a client sends in a handshake with every option.
fn options() -> Vec<u8> {
    let mut all = vec![0, 0, 0, 0, 3];
    let mut put = |number, data: &[u8]| {
        all.extend_from_slice(&super::protocol::option(number, data));
    };
    put(option::LIST, &[]);
    put(option::STRUCTURED_REPLY, &[]);
    put(option::LIST_META_CONTEXT, &contexts("a", &["base:"]));
    put(
        option::SET_META_CONTEXT,
        &contexts("a", &["base:allocation"]),
    );
    put(option::INFO, &wanted("a", &[0, 1, 2, 3]));
    put(option::GO, &wanted("a", &[3]));
    all
}

/// What a client sends in a transmission with every command.
fn requests(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut all = vec![rng.u8(..)];
    for _ in 0..20 {
        let request = Request {
            flags: rng.u16(..) & rng.u16(..) & 0xf,
            kind: rng.u16(..9),
            cookie: rng.u64(..),
            offset: rng.u64(..(1 << 20) + 5000),
            length: rng.u32(..5000),
        };
        all.extend_from_slice(&request.encode());
        if request.kind == command::WRITE {
            all.resize(all.len() + request.length as usize, 0);
        }
    }
    all
}

#[test]
fn decoders_take_any_bytes() {
    let answers = answers();
    for seed in esker_sim::seeds(300) {
        println!("ESKER_SEED={seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let (options, requests) = (options(), requests(&mut rng));
        let length = rng.usize(..200);
        let random: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(length).collect();
        type Fuzz = fn(&[u8]);
        let all: [(Fuzz, &[u8]); 3] = [
            (fuzz_handshake, &options),
            (fuzz_requests, &requests),
            (fuzz_client, &answers),
        ];
        for (fuzz, valid) in all {
            fuzz(&random);
            fuzz(valid);
            let mut changed = valid.to_vec();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..changed.len());
                match rng.u8(..4) {
                    0 => changed[at] = rng.u8(..),
                    1 => changed[at] ^= 1 << rng.u8(..8),
                    2 => changed.truncate(at.max(1)),
                    _ => changed.insert(at, rng.u8(..)),
                }
            }
            fuzz(&changed);
        }
    }
}
