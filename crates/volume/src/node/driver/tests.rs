//! A node as a process runs it, and connections that it ends.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use esker_sim::memory::Memory;

use super::start::{Node, NodeOptions};
use super::work::{Event, Way};
use crate::client::{Client, ClientError};
use crate::command::Command;
use crate::ids::{DiskId, GroupId, NodeId};
use crate::nbd;
use crate::net::{Connection, Limits, Security, connect};
use crate::node::input::{ConnectionId, Input, Manner, Work};
use crate::node::settings::Settings;
use crate::system::{SystemCommand, SystemOutcome};
use crate::wire::{Change, Frame, Hello, Refusal, Reply};

/// The longest wait for anything. No result depends on how fast it comes.
const PATIENCE: Duration = Duration::from_secs(60);
const NODE: NodeId = NodeId(1);
const GROUPS: u16 = 2;
/// The connection by which a test asks the core itself.
const OWN: ConnectionId = ConnectionId(1 << 40);

fn options() -> NodeOptions {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = free.local_addr().unwrap().to_string();
    drop(free);
    let settings = Settings {
        peers: BTreeMap::from([(NODE, listen.clone())]),
        groups: GROUPS,
        ..Settings::default()
    };
    NodeOptions {
        dir: "/node".into(),
        fs: Arc::new(Memory::new()),
        node: NODE,
        listen,
        nbd: Some("127.0.0.1:0".to_string()),
        security: Security::Plain,
        wait: PATIENCE.as_millis() as u64,
        settings,
    }
}

/// Repeats until it succeeds: the cluster is being formed, or a group does not know the volume yet.
fn until<T, E: std::fmt::Display>(mut act: impl FnMut() -> Result<T, E>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match act() {
            Ok(value) => return value,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A client of a node with a volume to which each group takes writes.
fn client(node: &Node) -> Client {
    let mut client =
        Client::connect(&node.address().to_string(), Security::Plain, PATIENCE).unwrap();
    let command = SystemCommand::Create {
        name: "disk".to_string(),
        size: 64 << 20,
        block_size: 4096,
    };
    until(|| match client.system(&command) {
        Ok(SystemOutcome::Ok(_)) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    for offset in (0..64 << 20).step_by(4 << 20) {
        until(|| client.write("disk", offset, vec![1; 4096]));
    }
    client
}

/// Makes the core carry a request out.
fn request(way: &Way, work: Work) -> Reply {
    let (answer, answered) = channel();
    let manner = Manner {
        wait: PATIENCE.as_millis() as u64,
        direct: false,
    };
    let answer = Box::new(move |result| drop(answer.send(result)));
    way.send(Event::Request(OWN, work, manner, answer));
    answered.recv_timeout(PATIENCE).unwrap().unwrap()
}

/// Makes all groups forget the sessions of the node's connections. Returns how many those were.
fn forget(way: &Way) -> usize {
    way.input(Input::Open(OWN));
    let life = way.look(|core| core.hello().life).unwrap();
    let (map, _) = way.look(|core| core.readers()).unwrap();
    let mut count = 0;
    for group in (0..=GROUPS).map(GroupId) {
        for session in map.sessions_of(group, NODE, life) {
            let mut command = Vec::new();
            Command::CloseSession(session).encode(&mut command);
            request(way, Work::Command(group, command));
            count += 1;
        }
    }
    count
}

#[test]
fn a_connection_whose_session_was_forgotten_is_closed_and_the_next_one_works() {
    let node = Node::start(options()).unwrap();
    let mut client = client(&node);
    let address = node.nbd_address().unwrap();
    let connect = || nbd::Client::connect_within(address, "disk", Some(PATIENCE)).unwrap();
    let (mut first, mut idle) = (connect(), connect());
    first.write(0, &[2; 4096]).unwrap();
    assert!(forget(&node.way) > 1);
    // No reply says that the request failed: it is for the client to ask again.
    let ended = first.write(0, &[3; 4096]);
    assert!(
        matches!(ended, Err(nbd::ClientError::Connection(_))),
        "{ended:?}"
    );
    let ended = client.write("disk", 4096, vec![3; 4096]);
    assert!(
        matches!(ended, Err(ClientError::Unreachable(..))),
        "{ended:?}"
    );
    // New connections have new sessions; so has one that had not written.
    client.write("disk", 4096, vec![4; 4096]).unwrap();
    let mut second = connect();
    second.write(0, &[4; 4096]).unwrap();
    idle.write(8192, &[4; 4096]).unwrap();
    assert_eq!(client.read("disk", 0, 12288).unwrap(), [4; 12288]);
    node.stop();
}

#[test]
fn a_client_waits_longer_for_an_answer_than_a_connection_may_be_silent() {
    let mut options = options();
    // Without them no cluster is formed, so a command waits as long as it may.
    let absent = [2, 3].map(|node| (NodeId(node), "127.0.0.1:1".to_string()));
    options.settings.peers.extend(absent);
    let limits = Limits {
        idle: Duration::from_millis(20),
        ..Limits::default()
    };
    let node = Node::start_within(options, limits).unwrap();
    let wait = Duration::from_millis(500);
    let mut client = Client::connect(&node.address().to_string(), Security::Plain, wait).unwrap();
    let command = SystemCommand::Delete("disk".to_string());
    let refused = client.system(&command);
    assert!(
        matches!(refused, Err(ClientError::Refused(Refusal::NoQuorum))),
        "{refused:?}"
    );
    node.stop();
}

#[test]
fn a_core_that_panics_takes_nothing_any_more_and_the_node_stops() {
    let node = Node::start(options()).unwrap();
    let client = client(&node);
    assert!(!node.has_failed());
    node.way.send(Event::Look(Box::new(|_| panic!("a test"))));
    // The thread that has the core at the moment takes the event.
    let begin = Instant::now();
    while !node.has_failed() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
    assert!(node.way.look(|_| ()).is_none());
    drop(client);
    node.stop();
}

#[test]
fn a_panic_of_another_thread_of_the_node_is_noticed() {
    let node = Node::start(options()).unwrap();
    assert_eq!(node.way.guard(|| 7), Some(7));
    assert_eq!(node.way.guard(|| -> u8 { panic!("a test") }), None);
    assert!(node.has_failed());
    node.stop();
}

/// Links to a node as another one does; true where that admits it.
fn link(node: &Node, hello: &Hello) -> (Connection, bool) {
    let mut link = connect(&node.address().to_string(), &Security::Plain, PATIENCE).unwrap();
    let frame = Frame::Hello(hello.clone()).encode().flat();
    link.send.send(&[&frame]).unwrap();
    let (of, disk) = (hello.node, hello.disk);
    let is_known = || {
        let known = node.way.look(move |core| core.peer_disk(of));
        known.flatten() == Some(disk)
    };
    let end = Instant::now() + PATIENCE;
    while !is_known() && !link.receive.has_ended() {
        assert!(Instant::now() < end, "the hello is not taken");
        std::thread::sleep(Duration::from_millis(1));
    }
    let is_admitted = !link.receive.has_ended();
    (link, is_admitted)
}

#[test]
fn a_machine_that_was_replaced_is_not_heard_while_the_one_that_replaced_it_is_linked() {
    let node = Node::start(options()).unwrap();
    let client = client(&node);
    let hello = |disk| Hello {
        node: NodeId(2),
        disk: DiskId(disk),
        life: 1,
        cluster: 0,
        address: "127.0.0.1:1".to_string(),
    };
    // At first none of them is a member: the newest is heard, and the other one's link ends.
    let (mut first, is_admitted) = link(&node, &hello(7));
    assert!(is_admitted);
    let (second, is_admitted) = link(&node, &hello(8));
    assert!(is_admitted);
    let end = Instant::now() + PATIENCE;
    while !first.receive.has_ended() {
        assert!(Instant::now() < end, "the former machine's link stays");
        std::thread::sleep(Duration::from_millis(1));
    }
    node.way.input(Input::Open(OWN));
    let added = Change::Add(NodeId(2), "127.0.0.1:1".to_string());
    request(&node.way, Work::Member(GroupId(1), added));
    assert!(!link(&node, &hello(7)).1, "the former machine is heard");
    assert_eq!(
        node.way.look(|core| core.peer_disk(NodeId(2))).flatten(),
        Some(DiskId(8))
    );
    drop(second);
    until(
        || match node.way.look(|core| core.peer_disk(NodeId(2))).flatten() {
            None => Ok(()),
            Some(_) => Err("the link has not ended"),
        },
    );
    let (_former, is_admitted) = link(&node, &hello(7));
    assert!(is_admitted, "it is the only one");
    drop(client);
    node.stop();
}
