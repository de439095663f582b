//! Many connections together stay within a node's memory for requests.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esker_fs::Fs;
use esker_sim::memory::Memory;
use esker_volume::admin::{Answer, Manner, Question};
use esker_volume::client::Client;
use esker_volume::ids::NodeId;
use esker_volume::nbd::{self, Operation};
use esker_volume::net::{Security, connect};
use esker_volume::node::{Node, NodeOptions, Settings};
use esker_volume::system::{SystemCommand, SystemOutcome};
use esker_volume::wire::{Frame, Reply};

/// The longest wait for anything. No result depends on how fast it comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const SIZE: u64 = 16 << 20;
const PIECE: u32 = 256 << 10;

/// A cluster of one node in this process.
pub(crate) fn node(memory: usize) -> Node {
    node_with(memory, Security::Plain)
}

pub(crate) fn node_with(memory: usize, security: Security) -> Node {
    start(memory, security, Arc::new(Memory::new()))
}

/// As [`node`], on this disk.
pub(crate) fn node_on(fs: Arc<dyn Fs>) -> Node {
    start(256 << 20, Security::Plain, fs)
}

fn start(memory: usize, security: Security, fs: Arc<dyn Fs>) -> Node {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let listen = free.local_addr().unwrap().to_string();
    drop(free);
    let settings = Settings {
        peers: [(NodeId(1), listen.clone())].into(),
        groups: 2,
        ..Settings::default().within(memory)
    };
    let options = NodeOptions {
        dir: "/node".into(),
        fs,
        node: NodeId(1),
        listen,
        nbd: Some("127.0.0.1:0".to_string()),
        security,
        wait: PATIENCE.as_millis() as u64,
        settings,
    };
    Node::start(options).unwrap()
}

/// A client of it, and a volume.
pub(crate) fn create(address: &str, size: u64) -> Client {
    let mut client = Client::connect(address, Security::Plain, PATIENCE).unwrap();
    let (name, block_size) = ("disk".to_string(), 4096);
    let command = SystemCommand::Create {
        name,
        size,
        block_size,
    };
    let end = Instant::now() + PATIENCE;
    // The cluster is being formed.
    while !matches!(client.system(&command), Ok(SystemOutcome::Ok(_))) {
        assert!(Instant::now() < end, "the volume is not created");
        std::thread::sleep(Duration::from_millis(10));
    }
    // A write is refused until the volume is there in its group.
    for offset in (0..size).step_by(4 << 20) {
        while let Err(error) = client.write("disk", offset, vec![0; 4 << 20]) {
            assert!(Instant::now() < end, "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    client
}

/// Asks for pieces without reading an answer, and reads them when it may.
fn reader(address: &str, pieces: u64, may: &AtomicBool) {
    let mut near = connect(address, &Security::Plain, PATIENCE).unwrap();
    for id in 0..pieces {
        let question = Question::Read {
            volume: "disk".to_string(),
            offset: id * u64::from(PIECE) % SIZE,
            length: PIECE,
            local: false,
            manner: Manner {
                wait: PATIENCE.as_millis() as u64,
                direct: false,
            },
        };
        let question = question.encode();
        let question = question.into();
        let frame = Frame::Client { id, question }.encode();
        near.send.send(&[&frame.head]).unwrap();
    }
    while !may.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..pieces {
        let mut bytes = Vec::new();
        assert!(near.receive.receive(&mut bytes).unwrap());
        let Some(Frame::ClientAnswer { answer, .. }) = Frame::decode(&bytes) else {
            panic!("no answer");
        };
        match Answer::decode(&answer) {
            Some(Answer::Reply(Ok(Reply::Data(data)))) => assert_eq!(data.len(), PIECE as usize),
            other => panic!("{other:?}"),
        }
    }
}

/// Writes and reads the volume with many requests in flight.
fn user(address: std::net::SocketAddr, byte: u8) {
    let mut client = nbd::Client::connect_within(address, "disk", Some(PATIENCE)).unwrap();
    let operation = |number: u64| {
        let offset = number / 2 * u64::from(PIECE) % SIZE;
        match number % 2 {
            0 => Operation::Write {
                offset,
                data: vec![byte; PIECE as usize],
                fua: false,
            },
            _ => Operation::Read {
                offset,
                length: PIECE,
            },
        }
    };
    let operations = (0..128).map(operation);
    let outcome = |_, result: Result<Vec<u8>, _>| drop(result.unwrap());
    client.pipeline(operations, 64, outcome).unwrap();
}

#[test]
fn many_connections_stay_within_the_memory_for_requests() {
    let node = node(32 << 20);
    let (address, nbd) = (node.address().to_string(), node.nbd_address().unwrap());
    let mut client = create(&address, SIZE);
    let limit = node.requests().limit();
    assert_eq!(limit, 6 << 20);
    let may = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // 16 connections whose answers nothing reads ask for 64 MiB.
        for _ in 0..16 {
            scope.spawn(|| reader(&address, 16, &may));
        }
        // They wait for memory, or for sockets that are full.
        let end = Instant::now() + PATIENCE;
        while node.requests().most() < limit * 3 / 4 {
            assert!(Instant::now() < end, "{} bytes", node.requests().most());
            std::thread::sleep(Duration::from_millis(1));
        }
        may.store(true, Ordering::SeqCst);
        // 16 more have 64 requests of 256 KiB in flight each: 256 MiB.
        for byte in 0..16 {
            scope.spawn(move || user(nbd, byte));
        }
    });
    assert!(node.requests().most() <= limit);
    // All of it may be one request's, and no more.
    assert_eq!(client.read("disk", 0, limit as u32).unwrap().len(), limit);
    assert!(client.read("disk", 0, SIZE as u32).is_err());
    assert!(node.requests().most() <= limit);
    let end = Instant::now() + PATIENCE;
    while node.requests().lent() > 0 {
        assert!(Instant::now() < end, "{} bytes", node.requests().lent());
        std::thread::sleep(Duration::from_millis(1));
    }
    node.stop();
}
