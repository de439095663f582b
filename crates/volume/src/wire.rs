//! What nodes say to each other, and clients to nodes: one frame each, encoded here and carried by `net`.

use std::sync::Arc;

use esker_coding::{Reader, put_bytes, put_varint};

use crate::command::Request;
use crate::consensus::Message;
use crate::ids::{Ballot, DiskId, GroupId, LayerId, NodeId, SessionId, Slot, VolumeId};
use crate::members::Members;
pub use crate::system::Source;

/// The version of these frames. Nodes of another version are refused.
pub const VERSION: u32 = 1;

/// An encoded frame: its first bytes, and bodies that are shared with the log.
#[derive(Debug, Clone, Default)]
pub struct Packet {
    /// The frame up to its bodies.
    pub head: Vec<u8>,
    /// The commands of entries, in order; their lengths are in the head.
    pub bodies: Vec<Arc<Vec<u8>>>,
}

impl Packet {
    /// Bytes of the frame.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.bodies.iter().map(|body| body.len()).sum::<usize>()
    }

    /// The frame in one piece.
    pub fn flat(&self) -> Vec<u8> {
        let mut all = self.head.clone();
        self.bodies
            .iter()
            .for_each(|body| all.extend_from_slice(body));
        all
    }
}

/// Who is at the other end of a connection between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The node.
    pub node: NodeId,
    /// Its disk.
    pub disk: DiskId,
    /// Its life: rises with each start.
    pub life: u64,
    /// The cluster that its disk belongs to; 0 where it belongs to none yet.
    pub cluster: u64,
    /// Where it listens.
    pub address: String,
}

/// The first members of a cluster that is being formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formation {
    /// The cluster's identity, not 0.
    pub cluster: u64,
    /// How many groups share the blocks, without the system group.
    pub groups: u16,
    /// The first members of every group.
    pub members: Arc<Members>,
}

/// What a group's leader is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Opens a session in the group.
    Open(SessionId),
    /// Ends a session in the group.
    Close(SessionId),
    /// Writes bytes at an offset of the volume.
    Write {
        /// The request.
        by: Request,
        /// The volume.
        volume: VolumeId,
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: Arc<Vec<u8>>,
    },
    /// Makes bytes read as zeros.
    Discard {
        /// The request.
        by: Request,
        /// The volume.
        volume: VolumeId,
        /// Where, in bytes.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// Reads bytes.
    Read {
        /// What is read.
        source: Source,
        /// Where, in bytes.
        offset: u64,
        /// How many bytes.
        length: u32,
        /// Asks for what is allocated, in place of the bytes.
        allocation: bool,
    },
    /// A command without a session, which may be repeated: of the system group's to-do list, for example.
    Command(Vec<u8>),
    /// Hands leadership to another member.
    Transfer(NodeId),
    /// Changes the group's members.
    Member(Change),
}

/// A change of a group's members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The node, at this address, with the disk that it has now, becomes a learner.
    Add(NodeId, String),
    /// A learner that has caught up becomes a voter.
    Promote(NodeId),
    /// The node is no member any more.
    Remove(NodeId),
}

/// What a leader answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It happened.
    Done,
    /// The bytes that were read.
    Data(Vec<u8>),
    /// Lengths in bytes, and whether there is data: what is allocated.
    Runs(Vec<(u64, bool)>),
    /// The answer of the system group, encoded by `system`.
    System(Vec<u8>),
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Another node leads the group, if one is known. Nothing happened.
    NotLeader(Option<NodeId>),
    /// A majority did not answer in time. A write may have happened or may still happen.
    NoQuorum,
    /// Too much is in flight. Nothing happened.
    Busy,
    /// The session has ended, or was forgotten.
    NoSession,
    /// The volume or snapshot does not exist.
    NoVolume,
    /// The range ends past the volume's size.
    OutOfRange,
    /// The disk is full.
    Full,
    /// The bytes on disk are damaged, and no other replica has them.
    Damaged,
    /// What else is wrong, in words.
    Failed(String),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::NotLeader(Some(node)) => write!(f, "not the leader; node {node} is"),
            Refusal::NotLeader(None) => write!(f, "not the leader, and no leader is known"),
            Refusal::NoQuorum => write!(f, "no majority of the nodes answered in time"),
            Refusal::Busy => write!(f, "too many requests are in flight"),
            Refusal::NoSession => write!(f, "the session has ended"),
            Refusal::NoVolume => write!(f, "no such volume or snapshot"),
            Refusal::OutOfRange => write!(f, "the range ends past the end of the volume"),
            Refusal::Full => write!(f, "the disk is full"),
            Refusal::Damaged => write!(f, "the data on disk are damaged and no replica has them"),
            Refusal::Failed(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Refusal {}

/// A frame.
#[derive(Debug, Clone)]
pub enum Frame {
    /// The first frame between nodes, from either side.
    Hello(Hello),
    /// The sender forms a cluster, or knows how it was formed.
    Form(Formation),
    /// A message of a group's protocol, with the commands of its entries.
    Consensus {
        /// The group.
        group: GroupId,
        /// The message.
        message: Message,
        /// The commands of its entries, in order.
        bodies: Vec<Arc<Vec<u8>>>,
    },
    /// A request to a group's leader.
    Ask {
        /// Chosen by the asking node, the same when it asks again.
        id: u64,
        /// The group.
        group: GroupId,
        /// What is asked.
        op: Op,
    },
    /// The answer.
    Answer {
        /// The number that was asked with.
        id: u64,
        /// The answer.
        result: Result<Reply, Refusal>,
    },
    /// A piece of a group's image.
    Image {
        /// The group.
        group: GroupId,
        /// Which image of the sender's.
        image: u64,
        /// Pieces are numbered from 0.
        piece: u64,
        /// Position of the image.
        at: (Slot, Ballot),
        /// No piece follows.
        last: bool,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// The piece with this number is wanted next.
    ImageNext {
        /// The group.
        group: GroupId,
        /// Which image.
        image: u64,
        /// The number of the piece.
        piece: u64,
    },
    /// A block is wanted, by its checksum, since the sender's copy is damaged.
    Fetch {
        /// Chosen by the sender.
        id: u64,
        /// The group.
        group: GroupId,
        /// The layer that has the block.
        layer: LayerId,
        /// The block.
        block: u64,
        /// Its checksum.
        checksum: u64,
    },
    /// The block, if the sender has it.
    Fetched {
        /// The number of the question.
        id: u64,
        /// The block.
        data: Option<Vec<u8>>,
    },
    /// A question of a client, and its text; see `node::admin`.
    Client {
        /// Chosen by the client.
        id: u64,
        /// The question.
        question: Vec<u8>,
    },
    /// The answer to a client.
    ClientAnswer {
        /// The number of the question.
        id: u64,
        /// The answer.
        answer: Vec<u8>,
    },
}

const HELLO: u8 = 1;
const FORM: u8 = 2;
const CONSENSUS: u8 = 3;
const ASK: u8 = 4;
const ANSWER: u8 = 5;
const IMAGE: u8 = 6;
const IMAGE_NEXT: u8 = 7;
const FETCH: u8 = 8;
const FETCHED: u8 = 9;
const CLIENT: u8 = 10;
const CLIENT_ANSWER: u8 = 11;

impl Frame {
    /// The encoded frame.
    pub fn encode(&self) -> Packet {
        let mut packet = Packet::default();
        let out = &mut packet.head;
        match self {
            Frame::Hello(hello) => {
                out.push(HELLO);
                put_varint(out, u64::from(VERSION));
                put_varint(out, u64::from(hello.node.0));
                put_varint(out, hello.disk.0);
                put_varint(out, hello.life);
                put_varint(out, hello.cluster);
                put_bytes(out, hello.address.as_bytes());
            }
            Frame::Form(formation) => {
                out.push(FORM);
                formation.encode(out);
            }
            Frame::Consensus {
                group,
                message,
                bodies,
            } => {
                out.push(CONSENSUS);
                put_varint(out, u64::from(group.0));
                message.encode(out);
                put_varint(out, bodies.len() as u64);
                bodies
                    .iter()
                    .for_each(|body| put_varint(out, body.len() as u64));
                packet.bodies = bodies.clone();
            }
            Frame::Ask { id, group, op } => {
                out.push(ASK);
                put_varint(out, *id);
                put_varint(out, u64::from(group.0));
                packet.bodies.extend(op.encode(out));
            }
            Frame::Answer { id, result } => {
                out.push(ANSWER);
                put_varint(out, *id);
                encode_result(result, out);
            }
            Frame::Image {
                group,
                image,
                piece,
                at,
                last,
                bytes,
            } => {
                out.push(IMAGE);
                put_varint(out, u64::from(group.0));
                put_varint(out, *image);
                put_varint(out, *piece);
                put_varint(out, at.0.0);
                put_varint(out, at.1.0);
                out.push(u8::from(*last));
                put_bytes(out, bytes);
            }
            Frame::ImageNext {
                group,
                image,
                piece,
            } => {
                out.push(IMAGE_NEXT);
                put_varint(out, u64::from(group.0));
                put_varint(out, *image);
                put_varint(out, *piece);
            }
            Frame::Fetch {
                id,
                group,
                layer,
                block,
                checksum,
            } => {
                out.push(FETCH);
                put_varint(out, *id);
                put_varint(out, u64::from(group.0));
                put_varint(out, u64::from(layer.0));
                put_varint(out, *block);
                put_varint(out, *checksum);
            }
            Frame::Fetched { id, data } => {
                out.push(FETCHED);
                put_varint(out, *id);
                out.push(u8::from(data.is_some()));
                put_bytes(out, data.as_deref().unwrap_or_default());
            }
            Frame::Client { id, question } => {
                out.push(CLIENT);
                put_varint(out, *id);
                put_bytes(out, question);
            }
            Frame::ClientAnswer { id, answer } => {
                out.push(CLIENT_ANSWER);
                put_varint(out, *id);
                put_bytes(out, answer);
            }
        }
        packet
    }

    /// Reads a frame; `None` where the bytes are none, or of another version.
    pub fn decode(bytes: &[u8]) -> Option<Frame> {
        let from = &mut Reader::new(bytes);
        let frame = match from.u8()? {
            HELLO => {
                if from.varint()? != u64::from(VERSION) {
                    return None;
                }
                Frame::Hello(Hello {
                    node: NodeId(small(from)?),
                    disk: DiskId(from.varint()?),
                    life: from.varint()?,
                    cluster: from.varint()?,
                    address: text(from)?,
                })
            }
            FORM => Frame::Form(Formation::decode(from)?),
            CONSENSUS => {
                let (group, message) = (group(from)?, Message::decode(from)?);
                // Each length takes a byte at least, so this many are in the frame.
                let count = usize::try_from(from.varint()?).ok()?;
                if count > from.rest().len() {
                    return None;
                }
                let mut lengths = Vec::with_capacity(count);
                for _ in 0..count {
                    lengths.push(usize::try_from(from.varint()?).ok()?);
                }
                let mut bodies = Vec::with_capacity(count);
                for length in lengths {
                    bodies.push(Arc::new(from.take(length)?.to_vec()));
                }
                Frame::Consensus {
                    group,
                    message,
                    bodies,
                }
            }
            ASK => Frame::Ask {
                id: from.varint()?,
                group: group(from)?,
                op: Op::decode(from)?,
            },
            ANSWER => Frame::Answer {
                id: from.varint()?,
                result: decode_result(from)?,
            },
            IMAGE => Frame::Image {
                group: group(from)?,
                image: from.varint()?,
                piece: from.varint()?,
                at: (Slot(from.varint()?), Ballot(from.varint()?)),
                last: from.u8()? == 1,
                bytes: from.bytes()?.to_vec(),
            },
            IMAGE_NEXT => Frame::ImageNext {
                group: group(from)?,
                image: from.varint()?,
                piece: from.varint()?,
            },
            FETCH => Frame::Fetch {
                id: from.varint()?,
                group: group(from)?,
                layer: LayerId(small(from)?),
                block: from.varint()?,
                checksum: from.varint()?,
            },
            FETCHED => Frame::Fetched {
                id: from.varint()?,
                data: {
                    let is_there = from.u8()? == 1;
                    let data = from.bytes()?;
                    is_there.then(|| data.to_vec())
                },
            },
            CLIENT => Frame::Client {
                id: from.varint()?,
                question: from.bytes()?.to_vec(),
            },
            CLIENT_ANSWER => Frame::ClientAnswer {
                id: from.varint()?,
                answer: from.bytes()?.to_vec(),
            },
            _ => return None,
        };
        from.is_empty().then_some(frame)
    }
}

impl Formation {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.cluster);
        put_varint(out, u64::from(self.groups));
        self.members.encode(out);
    }

    /// Reads what `encode` wrote.
    pub fn decode(from: &mut Reader<'_>) -> Option<Formation> {
        Some(Formation {
            cluster: from.varint()?,
            groups: u16::try_from(from.varint()?).ok()?,
            members: Arc::new(Members::decode(from)?),
        })
    }
}

impl Change {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, node, address) = match self {
            Change::Add(node, address) => (0, node, address.as_str()),
            Change::Promote(node) => (1, node, ""),
            Change::Remove(node) => (2, node, ""),
        };
        out.push(kind);
        put_varint(out, u64::from(node.0));
        put_bytes(out, address.as_bytes());
    }

    /// Reads what `encode` wrote.
    pub fn decode(from: &mut Reader<'_>) -> Option<Change> {
        let kind = from.u8()?;
        let (node, address) = (NodeId(small(from)?), text(from)?);
        match kind {
            0 => Some(Change::Add(node, address)),
            1 => Some(Change::Promote(node)),
            2 => Some(Change::Remove(node)),
            _ => None,
        }
    }
}

impl Op {
    /// Appends the encoding, but for a write's data, which are returned.
    fn encode(&self, out: &mut Vec<u8>) -> Option<Arc<Vec<u8>>> {
        match self {
            Op::Open(session) => {
                out.push(0);
                session.encode(out);
            }
            Op::Close(session) => {
                out.push(1);
                session.encode(out);
            }
            Op::Write {
                by,
                volume,
                offset,
                data,
            } => {
                out.push(2);
                by.encode(out);
                put_varint(out, u64::from(volume.0));
                put_varint(out, *offset);
                return Some(data.clone());
            }
            Op::Discard {
                by,
                volume,
                offset,
                length,
            } => {
                out.push(3);
                by.encode(out);
                put_varint(out, u64::from(volume.0));
                put_varint(out, *offset);
                put_varint(out, *length);
            }
            Op::Read {
                source,
                offset,
                length,
                allocation,
            } => {
                out.push(4);
                let (volume, layer) = match source {
                    Source::Volume(volume) => (volume, 0),
                    Source::Layer(volume, layer) => (volume, u64::from(layer.0) + 1),
                };
                put_varint(out, u64::from(volume.0));
                put_varint(out, layer);
                put_varint(out, *offset);
                put_varint(out, u64::from(*length));
                out.push(u8::from(*allocation));
            }
            Op::Command(command) => {
                out.push(5);
                put_bytes(out, command);
            }
            Op::Transfer(to) => {
                out.push(6);
                put_varint(out, u64::from(to.0));
            }
            Op::Member(change) => {
                out.push(7);
                change.encode(out);
            }
        }
        None
    }

    fn decode(from: &mut Reader<'_>) -> Option<Op> {
        Some(match from.u8()? {
            0 => Op::Open(SessionId::decode(from)?),
            1 => Op::Close(SessionId::decode(from)?),
            2 => {
                let by = Request::decode(from)?;
                let volume = VolumeId(small(from)?);
                let offset = from.varint()?;
                let data = from.take(from.rest().len())?.to_vec();
                Op::Write {
                    by,
                    volume,
                    offset,
                    data: Arc::new(data),
                }
            }
            3 => Op::Discard {
                by: Request::decode(from)?,
                volume: VolumeId(small(from)?),
                offset: from.varint()?,
                length: from.varint()?,
            },
            4 => {
                let volume = VolumeId(small(from)?);
                let source = match from.varint()? {
                    0 => Source::Volume(volume),
                    n => Source::Layer(volume, LayerId(u32::try_from(n - 1).ok()?)),
                };
                Op::Read {
                    source,
                    offset: from.varint()?,
                    length: small(from)?,
                    allocation: from.u8()? == 1,
                }
            }
            5 => Op::Command(from.bytes()?.to_vec()),
            6 => Op::Transfer(NodeId(small(from)?)),
            7 => Op::Member(Change::decode(from)?),
            _ => return None,
        })
    }
}

/// Appends an answer's encoding.
pub(crate) fn encode_result(result: &Result<Reply, Refusal>, out: &mut Vec<u8>) {
    match result {
        Ok(Reply::Done) => out.push(0),
        Ok(Reply::Data(data)) => {
            out.push(1);
            put_bytes(out, data);
        }
        Ok(Reply::Runs(runs)) => {
            out.push(2);
            put_varint(out, runs.len() as u64);
            for (length, is_data) in runs {
                put_varint(out, *length);
                out.push(u8::from(*is_data));
            }
        }
        Ok(Reply::System(bytes)) => {
            out.push(3);
            put_bytes(out, bytes);
        }
        Err(refusal) => encode_refusal(refusal, out),
    }
}

fn encode_refusal(refusal: &Refusal, out: &mut Vec<u8>) {
    match refusal {
        Refusal::NotLeader(node) => {
            out.push(16);
            put_varint(out, node.map_or(0, |node| u64::from(node.0)));
        }
        Refusal::NoQuorum => out.push(17),
        Refusal::Busy => out.push(18),
        Refusal::NoSession => out.push(19),
        Refusal::NoVolume => out.push(20),
        Refusal::OutOfRange => out.push(21),
        Refusal::Full => out.push(22),
        Refusal::Damaged => out.push(23),
        Refusal::Failed(what) => {
            out.push(24);
            put_bytes(out, what.as_bytes());
        }
    }
}

/// Reads what [`encode_result`] wrote.
pub(crate) fn decode_result(from: &mut Reader<'_>) -> Option<Result<Reply, Refusal>> {
    Some(match from.u8()? {
        0 => Ok(Reply::Done),
        1 => Ok(Reply::Data(from.bytes()?.to_vec())),
        2 => {
            let mut runs = Vec::new();
            for _ in 0..from.varint()? {
                runs.push((from.varint()?, from.u8()? == 1));
            }
            Ok(Reply::Runs(runs))
        }
        3 => Ok(Reply::System(from.bytes()?.to_vec())),
        16 => Err(Refusal::NotLeader(match from.varint()? {
            0 => None,
            node => Some(NodeId(u32::try_from(node).ok()?)),
        })),
        17 => Err(Refusal::NoQuorum),
        18 => Err(Refusal::Busy),
        19 => Err(Refusal::NoSession),
        20 => Err(Refusal::NoVolume),
        21 => Err(Refusal::OutOfRange),
        22 => Err(Refusal::Full),
        23 => Err(Refusal::Damaged),
        24 => Err(Refusal::Failed(text(from)?)),
        _ => return None,
    })
}

fn small(from: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(from.varint()?).ok()
}

fn group(from: &mut Reader<'_>) -> Option<GroupId> {
    Some(GroupId(u16::try_from(from.varint()?).ok()?))
}

fn text(from: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(from.bytes()?.to_vec()).ok()
}
