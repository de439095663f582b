//! What a group's leader is asked for.

use std::sync::Arc;

use esker_coding::{Reader, put_bytes, put_varint};

use super::answer::{Refusal, Reply};
use super::read::{small, text};
use crate::bytes::Bytes;
use crate::command::Request;
use crate::ids::{LayerId, NodeId, SessionId, VolumeId};
use crate::system::Source;

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
    /// A command without a session, which may be repeated: of the system group's to-do list, for
    /// example.
    Command(Vec<u8>),
    /// A user's command for the system group.
    Order {
        /// The request.
        by: Request,
        /// The command, encoded by `system`.
        command: Vec<u8>,
    },
    /// Hands leadership to another member.
    Transfer(NodeId),
    /// Changes the group's members.
    Member {
        /// How.
        change: Change,
        /// The version of the members that it is a change of. Without one the leader only says
        /// which version there is: [`Reply::Members`](super::Reply::Members).
        since: Option<u64>,
    },
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
    /// A change of members, of the version that the leader will say.
    pub(crate) fn change(change: Change) -> Op {
        let since = None;
        Op::Member { change, since }
    }

    /// True where the answer is the version of the members. The first one is kept: however often
    /// the change is asked for, it happens once, and not after a later one.
    pub(crate) fn learns_from(&mut self, result: &Result<Reply, Refusal>) -> bool {
        let (Op::Member { since, .. }, Ok(Reply::Members(version))) = (self, result) else {
            return false;
        };
        since.get_or_insert(*version);
        true
    }

    /// Appends the encoding, but for a write's data, which are returned.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Option<Bytes> {
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
                return Some(data.clone().into());
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
            Op::Member { change, since } => {
                out.push(7);
                change.encode(out);
                put_varint(out, since.map_or(0, |since| since.saturating_add(1)));
            }
            Op::Order { by, command } => {
                out.push(8);
                by.encode(out);
                put_bytes(out, command);
            }
        }
        None
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Option<Op> {
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
            7 => Op::Member {
                change: Change::decode(from)?,
                since: from.varint()?.checked_sub(1),
            },
            8 => Op::Order {
                by: Request::decode(from)?,
                command: from.bytes()?.to_vec(),
            },
            _ => return None,
        })
    }
}
