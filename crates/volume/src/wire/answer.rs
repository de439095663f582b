//! What a group's leader answers.

use esker_coding::{Reader, put_bytes, put_varint};

use super::read::text;
use crate::ids::{NodeId, Slot};

/// What a leader answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It happened.
    Done,
    /// The bytes that were read.
    Data(Vec<u8>),
    /// The bytes that a node had, which may be behind.
    Local {
        /// The bytes.
        data: Vec<u8>,
        /// How many milliseconds ago the node last knew that it had everything that was
        /// acknowledged; none where it has not known since its start.
        age: Option<u64>,
    },
    /// Lengths in bytes, and whether there is data: what is allocated.
    Runs(Vec<(u64, bool)>),
    /// The answer of the system group, encoded by `system`, and the slot from which on its state
    /// has it.
    System(Vec<u8>, Slot),
    /// The version of the group's members.
    Members(u64),
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
            Refusal::Busy => write!(f, "the node is busy: ask again"),
            Refusal::NoSession => write!(f, "the session has ended"),
            Refusal::NoVolume => write!(f, "no such volume or snapshot"),
            Refusal::OutOfRange => write!(f, "the range ends past the end of the volume"),
            Refusal::Damaged => write!(f, "the data on disk are damaged and no replica has them"),
            Refusal::Failed(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Appends an answer's encoding.
pub(crate) fn encode_result(result: &Result<Reply, Refusal>, out: &mut Vec<u8>) {
    match result {
        Ok(Reply::Done) => out.push(0),
        Ok(Reply::Data(data)) => {
            out.push(1);
            put_bytes(out, data);
        }
        Ok(Reply::Local { data, age }) => {
            out.push(4);
            put_varint(out, age.map_or(0, |age| age.saturating_add(1)));
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
        Ok(Reply::System(bytes, slot)) => {
            out.push(3);
            put_varint(out, slot.0);
            put_bytes(out, bytes);
        }
        Ok(Reply::Members(version)) => {
            out.push(5);
            put_varint(out, *version);
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
        3 => {
            let slot = Slot(from.varint()?);
            Ok(Reply::System(from.bytes()?.to_vec(), slot))
        }
        4 => Ok(Reply::Local {
            age: from.varint()?.checked_sub(1),
            data: from.bytes()?.to_vec(),
        }),
        5 => Ok(Reply::Members(from.varint()?)),
        16 => Err(Refusal::NotLeader(match from.varint()? {
            0 => None,
            node => Some(NodeId(u32::try_from(node).ok()?)),
        })),
        17 => Err(Refusal::NoQuorum),
        18 => Err(Refusal::Busy),
        19 => Err(Refusal::NoSession),
        20 => Err(Refusal::NoVolume),
        21 => Err(Refusal::OutOfRange),
        23 => Err(Refusal::Damaged),
        24 => Err(Refusal::Failed(text(from)?)),
        _ => return None,
    })
}
