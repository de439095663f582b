//! Incoming connections of the port where nodes listen: other nodes, who say hello first, and
//! clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::work::{Answerer, Enders, Event, Way};
use crate::admin::{Answer, Question};
use crate::budget::{Budget, Loan};
use crate::bytes::Bytes;
use crate::ids::{DiskId, NodeId};
use crate::map::Map;
use crate::net;
use crate::node::input::{ConnectionId, Input, Manner, Work};
use crate::wire::{Frame, Hello, Refusal, Source};

/// The longest answer to a client, in bytes.
const MOST_ANSWER: u64 = 32 << 20;

/// Who is at the other end.
enum Peer {
    /// Nothing was said yet. The name in its certificate.
    Unknown(Option<String>),
    Node(NodeId),
    /// A client, and the connection of its requests.
    Client(ConnectionId),
}

/// What the connections share.
pub(super) struct Service {
    pub(super) map: Arc<Map>,
    pub(super) way: Way,
    pub(super) replies: net::Replies,
    pub(super) next: Arc<AtomicU64>,
    /// How the core ends a client's connection whose session was forgotten.
    enders: Enders,
    /// Connections show certificates.
    is_tls: bool,
    /// Memory for requests of all users.
    budget: Arc<Budget>,
    peers: Mutex<HashMap<net::ConnectionId, Peer>>,
    /// The connections of each node, and its disk: it is disconnected when the last one ends.
    nodes: Mutex<HashMap<NodeId, Vec<(net::ConnectionId, DiskId)>>>,
}

/// How a request waits, as its client asked.
fn asked_for(manner: crate::admin::Manner) -> Manner {
    Manner {
        wait: manner.wait,
        direct: manner.direct,
    }
}

/// A request that waits, and may be forwarded.
fn patient(wait: u64) -> Manner {
    Manner {
        wait,
        direct: false,
    }
}

impl Service {
    pub(super) fn new(
        map: Arc<Map>,
        way: Way,
        replies: net::Replies,
        next: Arc<AtomicU64>,
        enders: Enders,
        is_tls: bool,
        budget: Arc<Budget>,
    ) -> Service {
        let (peers, nodes) = (Mutex::default(), Mutex::default());
        Service {
            map,
            way,
            replies,
            next,
            enders,
            is_tls,
            budget,
            peers,
            nodes,
        }
    }

    /// Takes an event of a connection.
    pub(super) fn event(&self, id: net::ConnectionId, event: net::Event) {
        match event {
            net::Event::Opened { peer, .. } => {
                self.peers.lock().insert(id, Peer::Unknown(peer));
            }
            net::Event::Frame(bytes) => self.frame(id, bytes, None),
            net::Event::Lent(bytes, loan) => self.frame(id, bytes, Some(loan)),
            net::Event::Closed => self.closed(id),
        }
    }

    fn closed(&self, id: net::ConnectionId) {
        let peer = self.peers.lock().remove(&id);
        match peer {
            Some(Peer::Node(node)) => {
                let mut nodes = self.nodes.lock();
                let left = nodes.entry(node).or_default();
                left.retain(|(other, _)| *other != id);
                if left.is_empty() {
                    nodes.remove(&node);
                    self.way.input(Input::Disconnected(node));
                }
            }
            Some(Peer::Client(connection)) => self.way.input(Input::Closed(connection)),
            Some(Peer::Unknown(_)) | None => {}
        }
    }

    fn frame(&self, id: net::ConnectionId, bytes: Vec<u8>, loan: Option<Loan>) {
        let node = match self.peers.lock().get(&id) {
            Some(Peer::Node(node)) => Some(*node),
            _ => None,
        };
        if let Some(node) = node {
            let event = Event::Input(Input::Frame(node, bytes));
            return if self.replies.is_last(id) {
                self.way.send_alone(event)
            } else {
                self.way.send(event)
            };
        }
        // A large write is not copied out of its frame before it is known what it is.
        match Frame::decode_shared(&bytes.into()) {
            Some(Frame::Hello(hello)) => self.hello(id, hello),
            Some(Frame::Client {
                id: number,
                question,
            }) => {
                self.client(id, number, question, loan);
            }
            // Neither a node nor a client of this version.
            _ => self.replies.abort(id),
        }
    }

    fn hello(&self, id: net::ConnectionId, hello: Hello) {
        // A certificate names the node that it is for; one of a client is for none.
        let wanted = net::node_name(hello.node.0);
        let is_it = !self.is_tls
            || match self.peers.lock().get(&id) {
                Some(Peer::Unknown(Some(name))) => *name == wanted,
                _ => false,
            };
        if !is_it {
            return self.replies.abort(id);
        }
        let said = hello.clone();
        if self.way.look(move |core| core.is_replaced(&said)) != Some(false) {
            return self.replies.abort(id);
        }
        if !self.replies.admit(id) {
            return;
        }
        self.peers.lock().insert(id, Peer::Node(hello.node));
        let disk = hello.disk;
        let former: Vec<_> = {
            let mut nodes = self.nodes.lock();
            let all = nodes.entry(hello.node).or_default();
            all.push((id, disk));
            all.iter().copied().filter(|(_, of)| *of != disk).collect()
        };
        // What another machine of this number says would be taken for what this one says.
        former.iter().for_each(|(id, _)| self.replies.abort(*id));
        self.way.input(Input::Connected(hello));
    }

    fn client(&self, id: net::ConnectionId, number: u64, question: Bytes, loan: Option<Loan>) {
        let connection = {
            let mut peers = self.peers.lock();
            match peers.get(&id) {
                Some(Peer::Client(connection)) => *connection,
                _ => {
                    let connection = ConnectionId(self.next.fetch_add(1, Ordering::Relaxed));
                    peers.insert(id, Peer::Client(connection));
                    drop(peers);
                    self.replies.admit_within(id, &self.budget);
                    let replies = self.replies.clone();
                    let end = Box::new(move || replies.abort(id));
                    self.enders.lock().insert(connection, end);
                    self.way.input(Input::Open(connection));
                    connection
                }
            }
        };
        let decoded = Question::decode(&question);
        drop(question);
        let Some(question) = decoded else {
            return self.replies.abort(id);
        };
        let to = To {
            id,
            number,
            loan,
            asked: self.replies.asked(id),
        };
        self.asked(to, connection, question);
    }

    fn asked(&self, to: To, connection: ConnectionId, question: Question) {
        let Some(to) = self.reserve(to, &question) else {
            return;
        };
        match question {
            Question::Status => self.look(to, |core| Answer::Status(Box::new(core.status()))),
            Question::Scrub => self.look(to, |core| {
                core.start_scrub();
                Answer::Reply(Ok(crate::wire::Reply::Done))
            }),
            Question::Volumes => {
                let mut bytes = Vec::new();
                self.map.system().encode(&mut bytes);
                if let Some(to) = to.enlarge(&self.replies, bytes.len()) {
                    to.answer(&self.replies, &Answer::Volumes(bytes));
                }
            }
            Question::Map {
                volume,
                first,
                count,
            } => {
                let found = self.source(&volume).and_then(|source| {
                    let groups = self.way.look(|core| core.group_count()).unwrap_or(1);
                    super::super::picture::places(&self.map, source, first, count, groups)
                });
                let said = match found {
                    Ok(places) => Answer::Map(places),
                    Err(refusal) => Answer::Reply(Err(refusal)),
                };
                to.answer(&self.replies, &said);
            }
            Question::System { command, wait } => {
                self.request(to, connection, Ok(Work::System(command)), patient(wait));
            }
            Question::Member {
                group,
                change,
                wait,
            } => {
                let work = Ok(Work::Member(group, change));
                self.request(to, connection, work, patient(wait));
            }
            Question::Read {
                volume,
                offset,
                length,
                local,
                manner,
            } => {
                let work = self.source(&volume).map(|source| {
                    if local {
                        Work::ReadLocal {
                            source,
                            offset,
                            length,
                        }
                    } else {
                        Work::Read {
                            source,
                            offset,
                            length,
                        }
                    }
                });
                self.request(to, connection, work, asked_for(manner));
            }
            Question::Write {
                volume,
                offset,
                data,
                manner,
            } => {
                let work = self.volume(&volume).map(|volume| Work::Write {
                    volume,
                    offset,
                    data,
                });
                self.request(to, connection, work, asked_for(manner));
            }
            Question::Discard {
                volume,
                offset,
                length,
                manner,
            } => {
                let work = self.volume(&volume).map(|volume| Work::Discard {
                    volume,
                    offset,
                    length,
                });
                self.request(to, connection, work, asked_for(manner));
            }
        }
    }

    /// Takes the memory for the answer; refuses one that is too large. `None` where the question
    /// has been answered, or waits for memory.
    fn reserve(&self, to: To, question: &Question) -> Option<To> {
        let asked = match question {
            Question::Read { length, .. } => u64::from(*length),
            Question::Map { count, .. } => u64::from(*count) * 32,
            _ => 0,
        };
        let most = MOST_ANSWER.min(self.budget.limit() as u64);
        if asked > most {
            let text = format!("an answer of {asked} bytes: at most {most} at a time");
            let said = Answer::Reply(Err(Refusal::Failed(text)));
            to.answer(&self.replies, &said);
            return None;
        }
        if asked == 0 {
            return Some(to);
        }
        // The question is short. While one waits for memory it holds none.
        to.enlarge(&self.replies, asked as usize)
    }

    /// Answers on the thread of the core.
    fn look(
        &self,
        to: To,
        answer: impl FnOnce(&mut crate::node::core::Core) -> Answer + Send + 'static,
    ) {
        let replies = self.replies.clone();
        let look = move |core: &mut crate::node::core::Core| to.answer(&replies, &answer(core));
        self.way.send(Event::Look(Box::new(look)));
    }

    /// Passes a request to the core, or answers why there is none.
    fn request(
        &self,
        to: To,
        connection: ConnectionId,
        work: Result<Work, Refusal>,
        manner: Manner,
    ) {
        let work = match work {
            Ok(work) => work,
            Err(refusal) => return to.answer(&self.replies, &Answer::Reply(Err(refusal))),
        };
        let (replies, map) = (self.replies.clone(), self.map.clone());
        let answerer: Answerer = Box::new(move |result| {
            let said = match result {
                Err(Refusal::NotLeader(leader)) => {
                    let address = leader.and_then(|leader| map.address(leader));
                    Answer::NotLeader(leader, address.unwrap_or_default())
                }
                result => Answer::Reply(result),
            };
            to.answer(&replies, &said);
        });
        let event = Event::Request(connection, work, manner, answerer);
        self.way.send(event);
    }

    fn source(&self, name: &str) -> Result<Source, Refusal> {
        let found = self.map.system().source(name);
        found.ok_or(Refusal::NoVolume)
    }

    fn volume(&self, name: &str) -> Result<crate::ids::VolumeId, Refusal> {
        match self.source(name)? {
            Source::Volume(volume) => Ok(volume),
            Source::Layer(..) => Err(Refusal::Failed("a snapshot is read-only".to_string())),
        }
    }
}

/// Where an answer goes, and what is lent for the question and it.
struct To {
    id: net::ConnectionId,
    number: u64,
    loan: Option<Loan>,
    /// Until it is dropped the client may be silent.
    asked: Option<net::Asked>,
}

impl To {
    /// Waits for memory for an answer of so many bytes, and gives that of the question back. `None`
    /// where the connection has ended.
    fn enlarge(self, replies: &net::Replies, bytes: usize) -> Option<To> {
        drop(self.loan);
        let loan = Some(replies.lend(self.id, bytes)?);
        Some(To { loan, ..self })
    }

    fn answer(self, replies: &net::Replies, answer: &Answer) {
        let frame = Frame::ClientAnswer {
            id: self.number,
            answer: answer.encode(),
        };
        let packet = frame.encode();
        let part = net::Part::lent(packet.head, self.loan);
        if replies.send(self.id, vec![part]).is_err() {
            replies.abort(self.id);
        }
        drop(self.asked);
    }
}
