//! Commands of the system group.

use esker_coding::{Reader, put_bytes, put_varint};

use crate::ids::{LayerId, NodeId, VolumeId};
use crate::members::{Member, Members};

/// A command of the system group. Clients send the named ones, and may send them again. The leader
/// of the system group sends those that say that something was done in all data groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemCommand {
    /// The number of data groups and the first members, once.
    Format {
        /// Data groups, 1 to 65,535: they are 1..=groups.
        groups: u16,
        /// The members.
        members: Members,
    },
    /// A new volume.
    Create {
        /// Its name: 1 to 255 bytes of `[A-Za-z0-9._-]`.
        name: String,
        /// Bytes: a multiple of the block size, at most 2^56.
        size: u64,
        /// Bytes of a block: a power of two, 512 to 65,536.
        block_size: u32,
    },
    /// The volume is created in all groups.
    Created(VolumeId),
    /// A larger size.
    Grow {
        /// The volume's name.
        name: String,
        /// The new size in bytes.
        size: u64,
    },
    /// Another name.
    Rename {
        /// The old name.
        from: String,
        /// The new one.
        to: String,
    },
    /// The volume and its snapshots go. Clones stay.
    Delete(String),
    /// The volume is dropped in all groups.
    Deleted(VolumeId),
    /// A snapshot of a volume, as of a moment between the sending of this and the completion.
    Snapshot {
        /// The volume's name.
        volume: String,
        /// The snapshot's name within the volume.
        snapshot: String,
    },
    /// All groups are cut.
    SnapshotCut {
        /// The volume.
        volume: VolumeId,
        /// The layer that was put in front.
        layer: LayerId,
    },
    /// All groups are released.
    SnapshotDone {
        /// The volume.
        volume: VolumeId,
        /// The layer that was put in front.
        layer: LayerId,
    },
    /// The snapshot goes. Clones of it stay.
    DeleteSnapshot {
        /// The volume's name.
        volume: String,
        /// The snapshot's name within the volume.
        snapshot: String,
    },
    /// The snapshot's layer is dropped in all groups.
    LayerDropped(LayerId),
    /// A new volume with the blocks of a snapshot.
    Clone {
        /// The name of the snapshot's volume.
        volume: String,
        /// The snapshot's name within the volume.
        snapshot: String,
        /// The new volume's name.
        name: String,
    },
    /// A node becomes a member of all groups, or changes its disk or address.
    AddMember(Member),
    /// A node is no member any more.
    RemoveMember(NodeId),
    /// All groups have the members that are wanted as of this change.
    MembersDone(u64),
}

const FORMAT: u8 = 0;
const CREATE: u8 = 1;
const CREATED: u8 = 2;
const GROW: u8 = 3;
const RENAME: u8 = 4;
const DELETE: u8 = 5;
const DELETED: u8 = 6;
const SNAPSHOT: u8 = 7;
const SNAPSHOT_CUT: u8 = 8;
const SNAPSHOT_DONE: u8 = 9;
const DELETE_SNAPSHOT: u8 = 10;
const LAYER_DROPPED: u8 = 11;
const CLONE: u8 = 12;
const ADD_MEMBER: u8 = 13;
const REMOVE_MEMBER: u8 = 14;
const MEMBERS_DONE: u8 = 15;

impl SystemCommand {
    /// The encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let to = &mut out;
        match self {
            SystemCommand::Format { groups, members } => {
                put(to, FORMAT, &[u64::from(*groups)], &[]);
                members.encode(to);
            }
            SystemCommand::Create {
                name,
                size,
                block_size,
            } => put(to, CREATE, &[*size, u64::from(*block_size)], &[name]),
            SystemCommand::Created(volume) => put(to, CREATED, &[u64::from(volume.0)], &[]),
            SystemCommand::Grow { name, size } => put(to, GROW, &[*size], &[name]),
            SystemCommand::Rename { from, to: name } => put(to, RENAME, &[], &[from, name]),
            SystemCommand::Delete(name) => put(to, DELETE, &[], &[name]),
            SystemCommand::Deleted(volume) => put(to, DELETED, &[u64::from(volume.0)], &[]),
            SystemCommand::Snapshot { volume, snapshot } => {
                put(to, SNAPSHOT, &[], &[volume, snapshot]);
            }
            SystemCommand::SnapshotCut { volume, layer } => {
                put(
                    to,
                    SNAPSHOT_CUT,
                    &[u64::from(volume.0), u64::from(layer.0)],
                    &[],
                );
            }
            SystemCommand::SnapshotDone { volume, layer } => {
                put(
                    to,
                    SNAPSHOT_DONE,
                    &[u64::from(volume.0), u64::from(layer.0)],
                    &[],
                );
            }
            SystemCommand::DeleteSnapshot { volume, snapshot } => {
                put(to, DELETE_SNAPSHOT, &[], &[volume, snapshot]);
            }
            SystemCommand::LayerDropped(layer) => {
                put(to, LAYER_DROPPED, &[u64::from(layer.0)], &[]);
            }
            SystemCommand::Clone {
                volume,
                snapshot,
                name,
            } => put(to, CLONE, &[], &[volume, snapshot, name]),
            SystemCommand::AddMember(member) => {
                put(to, ADD_MEMBER, &[], &[]);
                Members::new([member.clone()]).encode(to);
            }
            SystemCommand::RemoveMember(node) => put(to, REMOVE_MEMBER, &[u64::from(node.0)], &[]),
            SystemCommand::MembersDone(change) => put(to, MEMBERS_DONE, &[*change], &[]),
        }
        out
    }

    /// Reads a command; `None` where the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<SystemCommand> {
        let from = &mut Reader::new(bytes);
        let command = match from.u8()? {
            FORMAT => SystemCommand::Format {
                groups: u16::try_from(from.varint()?).ok()?,
                members: Members::decode(from)?,
            },
            CREATE => {
                let (size, block_size) = (from.varint()?, number(from)?);
                SystemCommand::Create {
                    name: text(from)?,
                    size,
                    block_size,
                }
            }
            CREATED => SystemCommand::Created(VolumeId(number(from)?)),
            GROW => {
                let size = from.varint()?;
                SystemCommand::Grow {
                    name: text(from)?,
                    size,
                }
            }
            RENAME => SystemCommand::Rename {
                from: text(from)?,
                to: text(from)?,
            },
            DELETE => SystemCommand::Delete(text(from)?),
            DELETED => SystemCommand::Deleted(VolumeId(number(from)?)),
            SNAPSHOT => SystemCommand::Snapshot {
                volume: text(from)?,
                snapshot: text(from)?,
            },
            SNAPSHOT_CUT => SystemCommand::SnapshotCut {
                volume: VolumeId(number(from)?),
                layer: LayerId(number(from)?),
            },
            SNAPSHOT_DONE => SystemCommand::SnapshotDone {
                volume: VolumeId(number(from)?),
                layer: LayerId(number(from)?),
            },
            DELETE_SNAPSHOT => SystemCommand::DeleteSnapshot {
                volume: text(from)?,
                snapshot: text(from)?,
            },
            LAYER_DROPPED => SystemCommand::LayerDropped(LayerId(number(from)?)),
            CLONE => SystemCommand::Clone {
                volume: text(from)?,
                snapshot: text(from)?,
                name: text(from)?,
            },
            ADD_MEMBER => {
                let members = Members::decode(from)?;
                let member = members.iter().next().cloned();
                SystemCommand::AddMember(member?)
            }
            REMOVE_MEMBER => SystemCommand::RemoveMember(NodeId(number(from)?)),
            MEMBERS_DONE => SystemCommand::MembersDone(from.varint()?),
            _ => return None,
        };
        from.is_empty().then_some(command)
    }
}

fn put(to: &mut Vec<u8>, tag: u8, numbers: &[u64], texts: &[&str]) {
    to.push(tag);
    numbers.iter().for_each(|number| put_varint(to, *number));
    texts.iter().for_each(|text| put_bytes(to, text.as_bytes()));
}

pub(super) fn number(from: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(from.varint()?).ok()
}

pub(super) fn text(from: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(from.bytes()?.to_vec()).ok()
}
