//! What clients ask a node, beside NBD, and what it answers.

use std::sync::Arc;

use esker_coding::{Reader, put_bytes, put_varint};

use crate::ids::{GroupId, NodeId, Slot};
use crate::wire::{Change, Refusal, Reply, decode_result, encode_result};

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// How the node is.
    Status,
    /// A command of the system group, encoded.
    System {
        /// The command.
        command: Vec<u8>,
        /// How long it may wait for a leader, in milliseconds.
        wait: u64,
    },
    /// The system group's state, as this node has it, encoded.
    Volumes,
    /// A change of a group's members.
    Member {
        /// The group.
        group: GroupId,
        /// The change.
        change: Change,
        /// How long it may wait, in milliseconds.
        wait: u64,
    },
    /// Reads bytes of a volume or of one of its snapshots.
    Read {
        /// `NAME` or `NAME@SNAPSHOT`.
        volume: String,
        /// Where, in bytes.
        offset: u64,
        /// How many.
        length: u32,
        /// What this node has, which may be behind.
        local: bool,
        /// How.
        manner: Manner,
    },
    /// Writes bytes.
    Write {
        /// The volume's name.
        volume: String,
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: Arc<Vec<u8>>,
        /// How.
        manner: Manner,
    },
    /// Makes bytes read as zeros.
    Discard {
        /// The volume's name.
        volume: String,
        /// Where, in bytes.
        offset: u64,
        /// How many.
        length: u64,
        /// How.
        manner: Manner,
    },
    /// Where this node has a range of blocks.
    Map {
        /// `NAME` or `NAME@SNAPSHOT`.
        volume: String,
        /// The first block.
        first: u64,
        /// How many blocks.
        count: u32,
    },
    /// Checks every block of this node, and heals what is damaged.
    Scrub,
}

/// How a request is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// How long it may wait for a leader, in milliseconds.
    pub wait: u64,
    /// Refused where the node does not lead the group, in place of being forwarded.
    pub direct: bool,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Of a request that groups carried out, or refused.
    Reply(Result<Reply, Refusal>),
    /// Another node leads the group; its address, where it is known.
    NotLeader(Option<NodeId>, String),
    /// How the node is.
    Status(Box<Status>),
    /// The system group's state, encoded.
    Volumes(Vec<u8>),
    /// By block, where it is: layer, segment, offset.
    Map(Vec<(u64, u32, u32, u32)>),
}

/// How a node is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The node.
    pub node: u32,
    /// Its disk.
    pub disk: u64,
    /// Its cluster; 0 where its disk belongs to none.
    pub cluster: u64,
    /// Its life: how often it was started.
    pub life: u64,
    /// Why it has stepped back; empty where it has not.
    pub failed: String,
    /// The nodes that it is linked with.
    pub linked: Vec<u32>,
    /// Its groups.
    pub groups: Vec<GroupStatus>,
    /// Segments on disk.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The bytes of blocks that some volume or snapshot refers to.
    pub live: u64,
    /// Bytes that were passed to write calls of segments since the start.
    pub written: u64,
    /// Bytes that users wrote to this replica since the start.
    pub user: u64,
    /// Bytes of tables that the map wrote since the start.
    pub map_written: u64,
    /// Bytes that vacuum moved since the start.
    pub moved: u64,
    /// Segments that vacuum freed since the start.
    pub freed: u64,
    /// Blocks that the last or present scrub has checked.
    pub scrubbed: u64,
    /// A scrub is running.
    pub scrubbing: bool,
    /// Damaged blocks that were healed since the start.
    pub healed: u64,
    /// Damaged blocks that no replica had.
    pub lost: u64,
    /// Requests of users that wait for an answer.
    pub outstanding: u64,
}

/// How a group is, as a node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupStatus {
    /// The group.
    pub group: u16,
    /// Its leader, 0 where none is known.
    pub leader: u32,
    /// Its ballot.
    pub ballot: u64,
    /// The last chosen slot that this node knows.
    pub chosen: Slot,
    /// The last slot that is state here.
    pub applied: Slot,
    /// The last slot of the log here.
    pub last: Slot,
    /// The log begins behind this slot.
    pub base: Slot,
    /// It does not vote until its log is healed.
    pub damaged: bool,
    /// How many milliseconds ago the state here was last known to have everything that was
    /// acknowledged; none where it has not been since the start.
    pub age: Option<u64>,
    /// Members: node, whether it is a learner, address, and at the leader the slot up to which it
    /// has the log.
    pub members: Vec<(u32, bool, String, u64)>,
}

impl Question {
    /// The encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let out = &mut bytes;
        match self {
            Question::Status => out.push(0),
            Question::System { command, wait } => {
                out.push(1);
                put_varint(out, *wait);
                put_bytes(out, command);
            }
            Question::Volumes => out.push(2),
            Question::Member {
                group,
                change,
                wait,
            } => {
                out.push(3);
                put_varint(out, u64::from(group.0));
                change.encode(out);
                put_varint(out, *wait);
            }
            Question::Read {
                volume,
                offset,
                length,
                local,
                manner,
            } => {
                out.push(4);
                put_bytes(out, volume.as_bytes());
                put_varint(out, *offset);
                put_varint(out, u64::from(*length));
                out.push(u8::from(*local));
                manner.encode(out);
            }
            Question::Write {
                volume,
                offset,
                data,
                manner,
            } => {
                out.push(5);
                put_bytes(out, volume.as_bytes());
                put_varint(out, *offset);
                manner.encode(out);
                put_bytes(out, data);
            }
            Question::Discard {
                volume,
                offset,
                length,
                manner,
            } => {
                out.push(6);
                put_bytes(out, volume.as_bytes());
                put_varint(out, *offset);
                put_varint(out, *length);
                manner.encode(out);
            }
            Question::Map {
                volume,
                first,
                count,
            } => {
                out.push(7);
                put_bytes(out, volume.as_bytes());
                put_varint(out, *first);
                put_varint(out, u64::from(*count));
            }
            Question::Scrub => out.push(8),
        }
        bytes
    }

    /// Reads what `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Option<Question> {
        let from = &mut Reader::new(bytes);
        Some(match from.u8()? {
            0 => Question::Status,
            1 => Question::System {
                wait: from.varint()?,
                command: from.bytes()?.to_vec(),
            },
            2 => Question::Volumes,
            3 => Question::Member {
                group: GroupId(u16::try_from(from.varint()?).ok()?),
                change: Change::decode(from)?,
                wait: from.varint()?,
            },
            4 => Question::Read {
                volume: text(from)?,
                offset: from.varint()?,
                length: u32::try_from(from.varint()?).ok()?,
                local: from.u8()? == 1,
                manner: Manner::decode(from)?,
            },
            5 => Question::Write {
                volume: text(from)?,
                offset: from.varint()?,
                manner: Manner::decode(from)?,
                data: Arc::new(from.bytes()?.to_vec()),
            },
            6 => Question::Discard {
                volume: text(from)?,
                offset: from.varint()?,
                length: from.varint()?,
                manner: Manner::decode(from)?,
            },
            7 => Question::Map {
                volume: text(from)?,
                first: from.varint()?,
                count: u32::try_from(from.varint()?).ok()?,
            },
            8 => Question::Scrub,
            _ => return None,
        })
    }
}

impl Manner {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.wait);
        out.push(u8::from(self.direct));
    }

    fn decode(from: &mut Reader<'_>) -> Option<Manner> {
        Some(Manner {
            wait: from.varint()?,
            direct: from.u8()? == 1,
        })
    }
}

impl Answer {
    /// The encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Answer::Reply(result) => {
                out.push(0);
                encode_result(result, &mut out);
            }
            Answer::NotLeader(node, address) => {
                out.push(1);
                put_varint(&mut out, node.map_or(0, |node| u64::from(node.0)));
                put_bytes(&mut out, address.as_bytes());
            }
            Answer::Status(status) => {
                out.push(2);
                status.encode(&mut out);
            }
            Answer::Volumes(bytes) => {
                out.push(3);
                put_bytes(&mut out, bytes);
            }
            Answer::Map(places) => {
                out.push(4);
                put_varint(&mut out, places.len() as u64);
                for (block, layer, segment, offset) in places {
                    put_varint(&mut out, *block);
                    for number in [layer, segment, offset] {
                        put_varint(&mut out, u64::from(*number));
                    }
                }
            }
        }
        out
    }

    /// Reads what `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let from = &mut Reader::new(bytes);
        Some(match from.u8()? {
            0 => Answer::Reply(decode_result(from)?),
            1 => {
                let node = u32::try_from(from.varint()?).ok()?;
                Answer::NotLeader((node != 0).then_some(NodeId(node)), text(from)?)
            }
            2 => Answer::Status(Box::new(Status::decode(from)?)),
            3 => Answer::Volumes(from.bytes()?.to_vec()),
            4 => {
                let mut places = Vec::new();
                for _ in 0..from.varint()? {
                    let block = from.varint()?;
                    places.push((block, small(from)?, small(from)?, small(from)?));
                }
                Answer::Map(places)
            }
            _ => return None,
        })
    }
}

impl Status {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.node));
        put_varint(out, self.disk);
        put_varint(out, self.cluster);
        put_varint(out, self.life);
        put_bytes(out, self.failed.as_bytes());
        put_varint(out, self.linked.len() as u64);
        self.linked
            .iter()
            .for_each(|node| put_varint(out, u64::from(*node)));
        for number in [
            self.segments,
            self.bytes,
            self.live,
            self.written,
            self.user,
            self.map_written,
            self.moved,
            self.freed,
            self.scrubbed,
            u64::from(self.scrubbing),
            self.healed,
            self.lost,
            self.outstanding,
        ] {
            put_varint(out, number);
        }
        put_varint(out, self.groups.len() as u64);
        for group in &self.groups {
            put_varint(out, u64::from(group.group));
            put_varint(out, u64::from(group.leader));
            put_varint(out, group.ballot);
            for slot in [group.chosen, group.applied, group.last, group.base] {
                put_varint(out, slot.0);
            }
            out.push(u8::from(group.damaged));
            put_varint(out, group.age.map_or(0, |age| age.saturating_add(1)));
            put_varint(out, group.members.len() as u64);
            for (node, is_learner, address, matched) in &group.members {
                put_varint(out, u64::from(*node));
                out.push(u8::from(*is_learner));
                put_bytes(out, address.as_bytes());
                put_varint(out, *matched);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Option<Status> {
        let mut status = Status {
            node: small(from)?,
            disk: from.varint()?,
            cluster: from.varint()?,
            life: from.varint()?,
            failed: text(from)?,
            ..Status::default()
        };
        for _ in 0..from.varint()? {
            status.linked.push(small(from)?);
        }
        status.segments = from.varint()?;
        status.bytes = from.varint()?;
        status.live = from.varint()?;
        status.written = from.varint()?;
        status.user = from.varint()?;
        status.map_written = from.varint()?;
        status.moved = from.varint()?;
        status.freed = from.varint()?;
        status.scrubbed = from.varint()?;
        status.scrubbing = from.varint()? == 1;
        status.healed = from.varint()?;
        status.lost = from.varint()?;
        status.outstanding = from.varint()?;
        for _ in 0..from.varint()? {
            let mut group = GroupStatus {
                group: u16::try_from(from.varint()?).ok()?,
                leader: small(from)?,
                ballot: from.varint()?,
                chosen: Slot(from.varint()?),
                applied: Slot(from.varint()?),
                last: Slot(from.varint()?),
                base: Slot(from.varint()?),
                damaged: from.u8()? == 1,
                age: from.varint()?.checked_sub(1),
                members: Vec::new(),
            };
            for _ in 0..from.varint()? {
                let (node, is_learner) = (small(from)?, from.u8()? == 1);
                group
                    .members
                    .push((node, is_learner, text(from)?, from.varint()?));
            }
            status.groups.push(group);
        }
        Some(status)
    }
}

fn small(from: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(from.varint()?).ok()
}

fn text(from: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(from.bytes()?.to_vec()).ok()
}
