//! What the entries of a group's log do. An entry's record holds the encoded command; the data of a
//! write are its last bytes, so that the log and the volume share them.

use std::sync::Arc;

use esker_coding::{Reader, put_bytes, put_varint};

use crate::ids::{LayerId, NodeId, SessionId, VolumeId};
use crate::members::Members;

/// The checksum of a block's data, or of a record's payload: XXH3, 64 bits.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// A command of a data group, or (`System`) of the system group, without a write's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Nothing: the first entry of a new leader.
    Nothing,
    /// New members of the group.
    Members(Arc<Members>),
    /// Whole blocks are written.
    Write {
        /// Who writes.
        by: Request,
        /// Where.
        blocks: Blocks,
        /// The checksum of each block's data.
        checksums: Vec<u64>,
    },
    /// Blocks read as zeros from now on: trim, and write-zeroes.
    Discard {
        /// Who discards.
        by: Request,
        /// What.
        blocks: Blocks,
    },
    /// Commands of this session count from now on.
    OpenSession(SessionId),
    /// Commands of this session do nothing from now on.
    CloseSession(SessionId),
    /// Commands of the node's sessions of earlier lives do nothing from now on.
    CloseLives {
        /// The node.
        node: NodeId,
        /// The first life whose sessions stay.
        before: u64,
    },
    /// The volume can be written to: empty, or with the blocks that a snapshot has.
    CreateVolume {
        /// The volume.
        volume: VolumeId,
        /// Bytes of a block.
        block_size: u32,
        /// The layer that its blocks are written to.
        layer: LayerId,
        /// The frozen layer that is below, of the snapshot that is cloned.
        origin: Option<LayerId>,
    },
    /// Freezes the newest layer of the volume and puts `layer` before it. Until it is released,
    /// writes of the volume behind this entry are not acknowledged.
    Cut {
        /// The volume.
        volume: VolumeId,
        /// The new layer for what is written behind the cut.
        layer: LayerId,
    },
    /// All groups are cut: writes may be acknowledged again.
    Release {
        /// The volume.
        volume: VolumeId,
        /// The layer that was given with the cut.
        layer: LayerId,
    },
    /// The volume is no more; its layers go where no other stands on them.
    DropVolume(VolumeId),
    /// A snapshot's frozen layer is not asked for by name any more.
    DropLayer(LayerId),
    /// A command of the system group, encoded by `system`: of its leader, who may repeat it.
    System(Vec<u8>),
    /// A user's command of the system group, which happens once.
    Order {
        /// Who gives it.
        by: Request,
        /// The command, encoded by `system`.
        command: Vec<u8>,
    },
}

/// Which request a command belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// The session.
    pub session: SessionId,
    /// The number within the session: no two requests have the same, a request that is sent again
    /// keeps its own.
    pub number: u64,
    /// All numbers of the session below this one are answered, and will not be sent again.
    pub answered: u64,
}

/// A range of a volume's blocks, all of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// The volume.
    pub volume: VolumeId,
    /// The first block.
    pub first: u64,
    /// How many, at least 1.
    pub count: u32,
}

/// The most blocks that a command names.
pub const MOST_BLOCKS: u32 = 1 << 20;

const NOTHING: u8 = 0;
const MEMBERS: u8 = 1;
const WRITE: u8 = 2;
const DISCARD: u8 = 3;
const OPEN_SESSION: u8 = 4;
const CLOSE_SESSION: u8 = 5;
const CLOSE_LIVES: u8 = 6;
const CREATE_VOLUME: u8 = 7;
const CUT: u8 = 8;
const RELEASE: u8 = 9;
const DROP_VOLUME: u8 = 10;
const DROP_LAYER: u8 = 11;
const SYSTEM: u8 = 12;
const ORDER: u8 = 13;

impl Command {
    /// Appends the encoding. The data of a write follow it, and nothing else does.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Command::Nothing => out.push(NOTHING),
            Command::Members(members) => {
                out.push(MEMBERS);
                members.encode(out);
            }
            Command::Write {
                by,
                blocks,
                checksums,
            } => {
                out.push(WRITE);
                by.encode(out);
                blocks.encode(out);
                checksums
                    .iter()
                    .for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
            }
            Command::Discard { by, blocks } => {
                out.push(DISCARD);
                by.encode(out);
                blocks.encode(out);
            }
            Command::OpenSession(session) => {
                out.push(OPEN_SESSION);
                session.encode(out);
            }
            Command::CloseSession(session) => {
                out.push(CLOSE_SESSION);
                session.encode(out);
            }
            Command::CloseLives { node, before } => {
                out.push(CLOSE_LIVES);
                put_varint(out, u64::from(node.0));
                put_varint(out, *before);
            }
            Command::CreateVolume {
                volume,
                block_size,
                layer,
                origin,
            } => {
                out.push(CREATE_VOLUME);
                put_varint(out, u64::from(volume.0));
                put_varint(out, u64::from(*block_size));
                put_varint(out, u64::from(layer.0));
                put_varint(out, origin.map_or(0, |layer| u64::from(layer.0) + 1));
            }
            Command::Cut { volume, layer } => {
                out.push(CUT);
                put_varint(out, u64::from(volume.0));
                put_varint(out, u64::from(layer.0));
            }
            Command::Release { volume, layer } => {
                out.push(RELEASE);
                put_varint(out, u64::from(volume.0));
                put_varint(out, u64::from(layer.0));
            }
            Command::DropVolume(volume) => {
                out.push(DROP_VOLUME);
                put_varint(out, u64::from(volume.0));
            }
            Command::DropLayer(layer) => {
                out.push(DROP_LAYER);
                put_varint(out, u64::from(layer.0));
            }
            Command::System(command) => {
                out.push(SYSTEM);
                put_bytes(out, command);
            }
            Command::Order { by, command } => {
                out.push(ORDER);
                by.encode(out);
                put_bytes(out, command);
            }
        }
    }

    /// Reads a command, and returns the bytes behind it: a write's data. `None` where the bytes are
    /// no command.
    pub fn decode(bytes: &[u8]) -> Option<(Command, &[u8])> {
        let from = &mut Reader::new(bytes);
        let command = match from.u8()? {
            NOTHING => Command::Nothing,
            MEMBERS => Command::Members(Arc::new(Members::decode(from)?)),
            WRITE => {
                let (by, blocks) = (Request::decode(from)?, Blocks::decode(from)?);
                // Not reserved ahead: the count is not to be trusted.
                let mut checksums = Vec::new();
                for _ in 0..blocks.count {
                    checksums.push(from.u64()?);
                }
                Command::Write {
                    by,
                    blocks,
                    checksums,
                }
            }
            DISCARD => Command::Discard {
                by: Request::decode(from)?,
                blocks: Blocks::decode(from)?,
            },
            OPEN_SESSION => Command::OpenSession(SessionId::decode(from)?),
            CLOSE_SESSION => Command::CloseSession(SessionId::decode(from)?),
            CLOSE_LIVES => Command::CloseLives {
                node: NodeId(number(from)?),
                before: from.varint()?,
            },
            CREATE_VOLUME => Command::CreateVolume {
                volume: VolumeId(number(from)?),
                block_size: number(from)?,
                layer: LayerId(number(from)?),
                origin: match from.varint()? {
                    0 => None,
                    n => Some(LayerId(u32::try_from(n - 1).ok()?)),
                },
            },
            CUT => Command::Cut {
                volume: VolumeId(number(from)?),
                layer: LayerId(number(from)?),
            },
            RELEASE => Command::Release {
                volume: VolumeId(number(from)?),
                layer: LayerId(number(from)?),
            },
            DROP_VOLUME => Command::DropVolume(VolumeId(number(from)?)),
            DROP_LAYER => Command::DropLayer(LayerId(number(from)?)),
            SYSTEM => Command::System(from.bytes()?.to_vec()),
            ORDER => Command::Order {
                by: Request::decode(from)?,
                command: from.bytes()?.to_vec(),
            },
            _ => return None,
        };
        Some((command, from.rest()))
    }
}

fn number(from: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(from.varint()?).ok()
}

impl SessionId {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.node.0));
        put_varint(out, self.life);
        put_varint(out, self.connection);
    }

    /// Reads what `encode` wrote.
    pub fn decode(from: &mut Reader<'_>) -> Option<SessionId> {
        Some(SessionId {
            node: NodeId(number(from)?),
            life: from.varint()?,
            connection: from.varint()?,
        })
    }
}

impl Request {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.session.encode(out);
        put_varint(out, self.number);
        put_varint(out, self.answered);
    }

    /// Reads what `encode` wrote.
    pub fn decode(from: &mut Reader<'_>) -> Option<Request> {
        Some(Request {
            session: SessionId::decode(from)?,
            number: from.varint()?,
            answered: from.varint()?,
        })
    }
}

impl Blocks {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.volume.0));
        put_varint(out, self.first);
        put_varint(out, u64::from(self.count));
    }

    /// Reads what `encode` wrote; `None` for no blocks, too many, and blocks past the largest
    /// number.
    pub fn decode(from: &mut Reader<'_>) -> Option<Blocks> {
        let blocks = Blocks {
            volume: VolumeId(number(from)?),
            first: from.varint()?,
            count: number(from)?,
        };
        let is_right = (1..=MOST_BLOCKS).contains(&blocks.count)
            && blocks.first.checked_add(u64::from(blocks.count)).is_some();
        is_right.then_some(blocks)
    }

    /// The numbers of the blocks.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first..self.first + u64::from(self.count)
    }
}
