//! Frames between nodes, and their encoding.

use std::sync::Arc;

use esker_coding::{Reader, put_bytes, put_varint};

use super::answer::{Refusal, Reply, decode_result, encode_result};
use super::op::Op;
use super::read::{group, small, text};
use crate::body::Body;
use crate::bytes::Bytes;
use crate::consensus::Message;
use crate::ids::{Ballot, DiskId, GroupId, LayerId, NodeId, Slot};
use crate::members::Members;

/// The version of these frames. Nodes of another version are refused.
pub const VERSION: u32 = 5;

/// An encoded frame: its first bytes, and bodies that are shared with the log.
#[derive(Debug, Clone, Default)]
pub struct Packet {
    /// The frame up to its bodies.
    pub head: Vec<u8>,
    /// The commands of entries, in order; their lengths are in the head.
    pub bodies: Vec<Bytes>,
    /// The head has checksums of the bodies, which [`Frame::decode`] compares.
    pub is_checked: bool,
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
        bodies: Vec<Body>,
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
        bytes: Bytes,
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
        question: Bytes,
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

fn put_hello(hello: &Hello, out: &mut Vec<u8>) {
    put_varint(out, u64::from(VERSION));
    put_varint(out, u64::from(hello.node.0));
    put_varint(out, hello.disk.0);
    put_varint(out, hello.life);
    put_varint(out, hello.cluster);
    put_bytes(out, hello.address.as_bytes());
}

/// The lengths and checksums of bodies, which follow the head.
fn put_lengths(bodies: &[Body], out: &mut Vec<u8>) {
    put_varint(out, bodies.len() as u64);
    for body in bodies {
        put_varint(out, body.len() as u64);
        out.extend_from_slice(&body.checksum().to_le_bytes());
    }
}

impl Frame {
    /// The encoded frame.
    pub fn encode(&self) -> Packet {
        let mut packet = Packet::default();
        let out = &mut packet.head;
        match self {
            Frame::Hello(hello) => {
                out.push(HELLO);
                put_hello(hello, out);
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
                put_lengths(bodies, out);
                let pieces = bodies.iter().flat_map(Body::pieces);
                packet.bodies = pieces.filter(|piece| !piece.is_empty()).cloned().collect();
                packet.is_checked = true;
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
                put_varint(out, bytes.len() as u64);
                packet.bodies.push(bytes.clone());
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
        Frame::decode_shared(&bytes.to_vec().into())
    }

    /// As [`Frame::decode`]; commands, questions and pieces of images stay where they are.
    pub fn decode_shared(bytes: &Bytes) -> Option<Frame> {
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
                // Each length and checksum take nine bytes at least, so this many are in the frame.
                let count = usize::try_from(from.varint()?).ok()?;
                if count > from.rest().len() / 9 {
                    return None;
                }
                let mut all = Vec::with_capacity(count);
                for _ in 0..count {
                    all.push((usize::try_from(from.varint()?).ok()?, from.u64()?));
                }
                let mut bodies = Vec::with_capacity(count);
                for (length, checksum) in all {
                    bodies.push(Body::checked(shared(bytes, from, length)?, checksum)?);
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
                bytes: {
                    let length = usize::try_from(from.varint()?).ok()?;
                    shared(bytes, from, length)?
                },
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
                question: {
                    let length = usize::try_from(from.varint()?).ok()?;
                    shared(bytes, from, length)?
                },
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

/// The next bytes that `from` reads, which reads `all`.
fn shared(all: &Bytes, from: &mut Reader<'_>, length: usize) -> Option<Bytes> {
    let start = all.len().checked_sub(from.rest().len())?;
    from.take(length)?;
    all.part(start..start + length)
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
