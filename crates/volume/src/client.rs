//! The client of a cluster (the paper's Hydra client): asks a node, and follows it to the leader
//! where that is another one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::admin::{Answer, Manner, Question, Status};
use crate::error::Error;
use crate::ids::GroupId;
use crate::net::{Connection, Security, connect};
use crate::system::{System, SystemCommand, SystemOutcome};
use crate::wire::{Change, Frame, Refusal, Reply};

/// Why a request of a client failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The node at this address cannot be reached, or the connection broke. A write may have
    /// happened.
    Unreachable(String, std::io::Error),
    /// The node leads nothing of what was asked, and knows no leader: there may be no majority.
    NoLeader,
    /// The cluster refused, or could not carry it out.
    Refused(Refusal),
    /// A command about volumes failed, with the reason.
    Volume(String),
    /// The node answered something that is no answer to the question.
    Answer,
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientError::Unreachable(address, error) => write!(f, "{address}: {error}"),
            ClientError::NoLeader => write!(f, "no node leads the group: is a majority up?"),
            ClientError::Refused(refusal) => write!(f, "{refusal}"),
            ClientError::Volume(text) => write!(f, "{text}"),
            ClientError::Answer => write!(f, "the node's answer cannot be read"),
        }
    }
}

impl std::error::Error for ClientError {}

/// What a node had of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalRead {
    /// The bytes.
    pub data: Vec<u8>,
    /// The bytes have every write that was acknowledged more than so long before the answer, and
    /// perhaps later ones. To that comes the time that the leader's last message to the node took.
    /// `None` where the node has not been level with a leader since its start.
    pub age: Option<Duration>,
}

/// A client. It has a connection to each node that it was sent to.
pub struct Client {
    first: String,
    security: Security,
    wait: Duration,
    /// How long a node may be silent while it owes an answer.
    patience: Duration,
    connections: HashMap<String, Connection>,
    /// Nodes that have answered on their connection.
    known: HashSet<String>,
    next: u64,
}

/// The longest frame: 32 MiB of data, and what is around it.
const MOST_FRAME: usize = 40 << 20;

/// The longest question that a connection begins with, in bytes.
const FIRST: usize = 2 << 10;

/// How much longer than a request may wait a node may take to answer it. One that takes longer
/// hangs.
const ANSWER: Duration = Duration::from_secs(15);

/// The bytes that are discarded by one request, which is answered when all of it is done.
const DISCARD: u64 = 1 << 30;

/// How often a request follows from node to node.
const HOPS: usize = 6;

impl Client {
    /// A client that asks the node at `address` (`HOST:PORT`, where it listens for nodes) first.
    /// `wait` is how long a request may wait for a leader; with zero, what cannot be done at once
    /// fails at once. A node that has not answered 15 s later hangs, and is given up as one that
    /// cannot be reached.
    ///
    /// # Errors
    /// Where the node cannot be reached.
    pub fn connect(
        address: &str,
        security: Security,
        wait: Duration,
    ) -> Result<Client, ClientError> {
        let first = address.to_string();
        let mut client = Client {
            first,
            security,
            wait,
            patience: wait.saturating_add(ANSWER),
            connections: HashMap::new(),
            known: HashSet::new(),
            next: 0,
        };
        client.connection(address)?;
        Ok(client)
    }

    fn connection(&mut self, address: &str) -> Result<&mut Connection, ClientError> {
        if !self.connections.contains_key(address) {
            let connection = connect(address, &self.security, Duration::from_secs(5));
            let mut connection =
                connection.map_err(|error| ClientError::Unreachable(address.to_string(), error))?;
            connection.send.set_most(MOST_FRAME);
            connection.receive.set_most(MOST_FRAME);
            let limited = connection.receive.set_idle_timeout(Some(self.patience));
            limited.map_err(|error| ClientError::Unreachable(address.to_string(), error))?;
            self.connections.insert(address.to_string(), connection);
        }
        self.connections.get_mut(address).ok_or(ClientError::Answer)
    }

    /// Leaves a connection that has ended: a node closes those that were silent for long, and all
    /// of them when it stops. What is sent on it would fail, and might have happened for all that
    /// the caller knew.
    fn leave_ended(&mut self, address: &str) {
        let connection = self.connections.get_mut(address);
        if connection.is_some_and(|connection| connection.receive.has_ended()) {
            self.leave(address);
        }
    }

    fn leave(&mut self, address: &str) {
        self.known.remove(address);
        self.connections.remove(address);
    }

    /// Asks one node, and waits for its answer.
    ///
    /// # Errors
    /// `Unreachable`, `Answer`.
    pub fn ask(&mut self, address: &str, question: &Question) -> Result<Answer, ClientError> {
        self.next += 1;
        let id = self.next;
        let question = question.encode();
        self.leave_ended(address);
        if question.len() > FIRST && !self.known.contains(address) {
            // A node takes long frames of whom it knows.
            self.ask(address, &Question::Volumes)?;
        }
        let broken = |error| ClientError::Unreachable(address.to_string(), error);
        let ended = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let connection = self.connection(address)?;
        let question = question.into();
        let frame = Frame::Client { id, question }.encode();
        let mut bytes = Vec::new();
        let answered = connection
            .send
            .send(&[&frame.head])
            .and_then(|()| connection.receive.receive(&mut bytes))
            .and_then(|is_frame| is_frame.then_some(()).ok_or_else(ended));
        self.known.insert(address.to_string());
        if let Err(error) = answered {
            self.leave(address);
            return Err(broken(error));
        }
        match Frame::decode(&bytes) {
            Some(Frame::ClientAnswer {
                id: answered,
                answer,
            }) if answered == id => Answer::decode(&answer).ok_or(ClientError::Answer),
            _ => Err(ClientError::Answer),
        }
    }

    /// Asks the first node, and goes where it is sent.
    fn follow(&mut self, question: &Question) -> Result<Reply, ClientError> {
        let mut address = self.first.clone();
        for _ in 0..HOPS {
            match self.ask(&address, question)? {
                Answer::Reply(Ok(reply)) => return Ok(reply),
                Answer::Reply(Err(refusal)) => return Err(ClientError::Refused(refusal)),
                Answer::NotLeader(_, to) if to.is_empty() => return Err(ClientError::NoLeader),
                Answer::NotLeader(_, to) => address = to,
                _ => return Err(ClientError::Answer),
            }
        }
        Err(ClientError::NoLeader)
    }

    fn manner(&self) -> Manner {
        Manner {
            wait: self.wait.as_millis() as u64,
            direct: self.wait.is_zero(),
        }
    }

    /// Reads bytes of a volume (`NAME`) or of a snapshot (`NAME@SNAPSHOT`), linearizably.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn read(&mut self, volume: &str, offset: u64, length: u32) -> Result<Vec<u8>, ClientError> {
        match self.read_as(volume, offset, length, false)? {
            Reply::Data(data) => Ok(data),
            _ => Err(ClientError::Answer),
        }
    }

    /// Reads what the first node has, which may be behind the cluster, and says how far in time.
    /// The range must lie within 4 MiB.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn read_local(
        &mut self,
        volume: &str,
        offset: u64,
        length: u32,
    ) -> Result<LocalRead, ClientError> {
        match self.read_as(volume, offset, length, true)? {
            Reply::Local { data, age } => Ok(LocalRead {
                data,
                age: age.map(Duration::from_millis),
            }),
            _ => Err(ClientError::Answer),
        }
    }

    fn read_as(
        &mut self,
        volume: &str,
        offset: u64,
        length: u32,
        local: bool,
    ) -> Result<Reply, ClientError> {
        let (volume, manner) = (volume.to_string(), self.manner());
        self.follow(&Question::Read {
            volume,
            offset,
            length,
            local,
            manner,
        })
    }

    /// Writes bytes. They are on the disks of a majority when this returns.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn write(&mut self, volume: &str, offset: u64, data: Vec<u8>) -> Result<(), ClientError> {
        let (volume, manner) = (volume.to_string(), self.manner());
        let data = Arc::new(data);
        self.follow(&Question::Write {
            volume,
            offset,
            data,
            manner,
        })
        .map(drop)
    }

    /// Makes bytes read as zeros, and frees whole blocks. A long range is discarded in pieces, from
    /// its beginning on.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn discard(&mut self, volume: &str, offset: u64, length: u64) -> Result<(), ClientError> {
        let end = offset.saturating_add(length);
        let mut begin = offset;
        loop {
            let length = (end - begin).min(DISCARD);
            self.follow(&Question::Discard {
                volume: volume.to_string(),
                offset: begin,
                length,
                manner: self.manner(),
            })?;
            begin += length;
            if begin >= end {
                return Ok(());
            }
        }
    }

    /// Carries out a command about volumes: create, grow, rename, delete, snapshot, clone. It may
    /// be repeated.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn system(&mut self, command: &SystemCommand) -> Result<SystemOutcome, ClientError> {
        let wait = self.wait.as_millis() as u64;
        match self.follow(&Question::System {
            command: command.encode(),
            wait,
        })? {
            Reply::System(bytes, _) => SystemOutcome::decode(&bytes).ok_or(ClientError::Answer),
            _ => Err(ClientError::Answer),
        }
    }

    /// The volumes, as the first node knows them.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn volumes(&mut self) -> Result<System, ClientError> {
        let address = self.first.clone();
        match self.ask(&address, &Question::Volumes)? {
            Answer::Volumes(bytes) => {
                let system = System::decode(&mut esker_coding::Reader::new(&bytes));
                system.ok_or(ClientError::Answer)
            }
            _ => Err(ClientError::Answer),
        }
    }

    /// How the first node is.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn status(&mut self) -> Result<Status, ClientError> {
        let address = self.first.clone();
        match self.ask(&address, &Question::Status)? {
            Answer::Status(status) => Ok(*status),
            _ => Err(ClientError::Answer),
        }
    }

    /// By block, where the first node has it: layer, segment, offset.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn map(
        &mut self,
        volume: &str,
        first: u64,
        count: u32,
    ) -> Result<Vec<(u64, u32, u32, u32)>, ClientError> {
        let address = self.first.clone();
        let volume = volume.to_string();
        match self.ask(
            &address,
            &Question::Map {
                volume,
                first,
                count,
            },
        )? {
            Answer::Map(places) => Ok(places),
            Answer::Reply(Err(refusal)) => Err(ClientError::Refused(refusal)),
            _ => Err(ClientError::Answer),
        }
    }

    /// Begins to check every block of the first node, and to heal what is damaged.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn scrub(&mut self) -> Result<(), ClientError> {
        let address = self.first.clone();
        match self.ask(&address, &Question::Scrub)? {
            Answer::Reply(Ok(_)) => Ok(()),
            Answer::Reply(Err(refusal)) => Err(ClientError::Refused(refusal)),
            _ => Err(ClientError::Answer),
        }
    }

    /// Changes the members of a group. It may be repeated.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn member(&mut self, group: GroupId, change: Change) -> Result<(), ClientError> {
        let wait = self.wait.as_millis() as u64;
        self.follow(&Question::Member {
            group,
            change,
            wait,
        })
        .map(drop)
    }
}

impl From<Error> for ClientError {
    fn from(error: Error) -> ClientError {
        ClientError::Volume(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::net::{Acceptor, Event, Limits};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_node_that_hangs_is_given_up() {
        let acceptor = Acceptor::bind("127.0.0.1:0", Security::Plain, Limits::default()).unwrap();
        acceptor.start(|_, _| {}).unwrap();
        let address = acceptor.address().to_string();
        let mut client = Client::connect(&address, Security::Plain, Duration::ZERO).unwrap();
        assert_eq!(client.patience, ANSWER);
        client.leave(&address);
        client.patience = Duration::from_millis(50);
        let failed = client.scrub();
        let is_late = |error: &std::io::Error| error.kind() == std::io::ErrorKind::TimedOut;
        assert!(
            matches!(&failed, Err(ClientError::Unreachable(_, error)) if is_late(error)),
            "{failed:?}"
        );
        acceptor.stop();
    }

    #[test]
    fn a_connection_that_the_node_closed_is_made_anew() {
        let acceptor = Acceptor::bind("127.0.0.1:0", Security::Plain, Limits::default()).unwrap();
        let replies = acceptor.replies();
        let is_first = AtomicBool::new(true);
        let answer = move |of, event| {
            let Event::Frame(bytes) = event else { return };
            let Some(Frame::Client { id, .. }) = Frame::decode(&bytes) else {
                panic!("no question")
            };
            assert!(replies.admit(of));
            let answer = Answer::Reply(Ok(Reply::Done)).encode();
            let packet = Frame::ClientAnswer { id, answer }.encode();
            replies.send(of, vec![packet.head.into()]).unwrap();
            if is_first.swap(false, Ordering::SeqCst) {
                replies.close(of);
            }
        };
        acceptor.start(answer).unwrap();
        let address = acceptor.address().to_string();
        let mut client = Client::connect(&address, Security::Plain, LONG).unwrap();
        client.scrub().unwrap();
        let end = Instant::now() + LONG;
        let mut has_ended = || {
            let connection = client.connections.get_mut(&address).unwrap();
            connection.receive.has_ended()
        };
        while !has_ended() {
            assert!(Instant::now() < end, "the connection is not closed");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Longer than what a node takes from a connection that it does not know.
        client.write("disk", 0, vec![0; 10_000]).unwrap();
        acceptor.stop();
    }
}
