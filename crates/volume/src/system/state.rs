//! The state of the system group, and its encoding.

use std::collections::{BTreeMap, BTreeSet};

use esker_coding::{Reader, put_bytes, put_varint};

use super::command::{number, text};
use super::ranges::{RANGE, group_at};
use crate::ids::{GroupId, LayerId, VolumeId};
use crate::members::Members;

/// Bytes of the smallest block.
pub const SMALLEST_BLOCK: u32 = 512;
/// Bytes of the largest block.
pub const LARGEST_BLOCK: u32 = 65_536;
/// Bytes of a block where a volume's creator has not chosen.
pub const DEFAULT_BLOCK_SIZE: u32 = 4096;
/// Bytes of the largest volume.
pub const LARGEST_VOLUME: u64 = 1 << 56;

/// The version of the encoding.
const VERSION: u8 = 1;

/// The state of the system group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct System {
    /// 0 before the store is formatted.
    pub(super) groups: u16,
    pub(super) members: Members,
    /// The number of the last change of members.
    pub(super) change: u64,
    /// True while groups may have other members than those that are wanted.
    pub(super) is_changing: bool,
    pub(super) volumes: BTreeMap<VolumeId, Volume>,
    /// The volumes that are not being deleted, by name.
    pub(super) names: BTreeMap<String, VolumeId>,
    /// Layers of deleted snapshots that groups may still have.
    pub(super) dropping: BTreeSet<LayerId>,
    pub(super) last_volume: u32,
    pub(super) last_layer: u32,
}

/// What a volume waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It has to be created in each group.
    Creating,
    /// Nothing.
    Ready,
    /// It has to be dropped in each group. It has no name any more.
    Deleting,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The volume.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// The name before the last renaming, so that the renaming can be repeated; empty without one.
    pub former_name: String,
    /// Bytes.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// What it waits for.
    pub state: State,
    /// The layer that it was created with.
    pub first_layer: LayerId,
    /// The layer that its blocks are written to.
    pub head: LayerId,
    /// The snapshot's layer that it is a clone of.
    pub origin: Option<LayerId>,
    /// The volume that decides which group a block is in. A clone shares blocks with its origin, so
    /// it has its origin's.
    pub placement: VolumeId,
    /// Its snapshots by name.
    pub snapshots: BTreeMap<String, Snapshot>,
    /// The snapshot that is being made.
    pub pending: Option<Pending>,
}

/// A snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The frozen layer, which has this number in each group.
    pub layer: LayerId,
    /// Bytes of the volume at that time.
    pub size: u64,
}

/// A snapshot that is being made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its name.
    pub name: String,
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The layer that is put in front.
    pub layer: LayerId,
    /// False while groups have to be cut, true while they have to be released.
    pub is_cut: bool,
}

impl Volume {
    /// The number of blocks.
    pub fn blocks(&self) -> u64 {
        self.size / u64::from(self.block_size.max(1))
    }
}

impl System {
    /// The number of data groups, which are 1 to this; 0 before the store is formatted.
    pub fn groups(&self) -> u16 {
        self.groups
    }

    /// The data groups.
    pub fn data_groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (1..=self.groups).map(GroupId)
    }

    /// The members that each group should have.
    pub fn wanted(&self) -> &Members {
        &self.members
    }

    /// The number of the change of members that groups have to make, if there is one.
    pub fn change(&self) -> Option<u64> {
        self.is_changing.then_some(self.change)
    }

    /// A volume by number, also one that is being deleted.
    pub fn volume(&self, id: VolumeId) -> Option<&Volume> {
        self.volumes.get(&id)
    }

    /// A volume by name.
    pub fn named(&self, name: &str) -> Option<&Volume> {
        self.volumes.get(self.names.get(name)?)
    }

    /// The volumes by name, without those that are being deleted.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.names.values().filter_map(|id| self.volumes.get(id))
    }

    /// The group of a block. Blocks of a range of 4 MiB are in one group, and successive ranges in
    /// successive groups. The system group before the store is formatted.
    pub fn group_of(&self, volume: &Volume, block: u64) -> GroupId {
        group_at(
            volume.placement,
            block * u64::from(volume.block_size),
            self.groups,
        )
    }

    /// How many blocks of a volume are next to each other in one group.
    pub fn range_blocks(&self, volume: &Volume) -> u64 {
        (RANGE / u64::from(volume.block_size.max(1))).max(1)
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_varint(out, u64::from(self.groups));
        self.members.encode(out);
        put_varint(out, self.change);
        out.push(u8::from(self.is_changing));
        put_varint(out, u64::from(self.last_volume));
        put_varint(out, u64::from(self.last_layer));
        put_varint(out, self.dropping.len() as u64);
        for layer in &self.dropping {
            put_varint(out, u64::from(layer.0));
        }
        put_varint(out, self.volumes.len() as u64);
        self.volumes.values().for_each(|volume| volume.encode(out));
    }

    /// Reads what `encode` wrote; `None` where the bytes are no state of the system group.
    pub fn decode(from: &mut Reader<'_>) -> Option<System> {
        if from.u8()? != VERSION {
            return None;
        }
        let mut system = System {
            groups: u16::try_from(from.varint()?).ok()?,
            members: Members::decode(from)?,
            change: from.varint()?,
            is_changing: from.u8()? != 0,
            last_volume: number(from)?,
            last_layer: number(from)?,
            ..System::default()
        };
        for _ in 0..from.varint()? {
            system.dropping.insert(LayerId(number(from)?));
        }
        for _ in 0..from.varint()? {
            let volume = Volume::decode(from)?;
            if volume.state != State::Deleting {
                system.names.insert(volume.name.clone(), volume.id);
            }
            system.volumes.insert(volume.id, volume);
        }
        Some(system)
    }
}

impl Volume {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.id.0));
        put_bytes(out, self.name.as_bytes());
        put_bytes(out, self.former_name.as_bytes());
        put_varint(out, self.size);
        put_varint(out, u64::from(self.block_size));
        out.push(match self.state {
            State::Creating => 0,
            State::Ready => 1,
            State::Deleting => 2,
        });
        put_varint(out, u64::from(self.first_layer.0));
        put_varint(out, u64::from(self.head.0));
        put_varint(out, self.origin.map_or(0, |layer| u64::from(layer.0) + 1));
        put_varint(out, u64::from(self.placement.0));
        put_varint(out, self.snapshots.len() as u64);
        for (name, snapshot) in &self.snapshots {
            put_bytes(out, name.as_bytes());
            snapshot.encode(out);
        }
        out.push(u8::from(self.pending.is_some()));
        if let Some(pending) = &self.pending {
            put_bytes(out, pending.name.as_bytes());
            pending.snapshot.encode(out);
            put_varint(out, u64::from(pending.layer.0));
            out.push(u8::from(pending.is_cut));
        }
    }

    fn decode(from: &mut Reader<'_>) -> Option<Volume> {
        let mut volume = Volume {
            id: VolumeId(number(from)?),
            name: text(from)?,
            former_name: text(from)?,
            size: from.varint()?,
            block_size: number(from)?,
            state: match from.u8()? {
                0 => State::Creating,
                1 => State::Ready,
                2 => State::Deleting,
                _ => return None,
            },
            first_layer: LayerId(number(from)?),
            head: LayerId(number(from)?),
            origin: match from.varint()? {
                0 => None,
                n => Some(LayerId(u32::try_from(n - 1).ok()?)),
            },
            placement: VolumeId(number(from)?),
            snapshots: BTreeMap::new(),
            pending: None,
        };
        for _ in 0..from.varint()? {
            let name = text(from)?;
            volume.snapshots.insert(name, Snapshot::decode(from)?);
        }
        if from.u8()? != 0 {
            volume.pending = Some(Pending {
                name: text(from)?,
                snapshot: Snapshot::decode(from)?,
                layer: LayerId(number(from)?),
                is_cut: from.u8()? != 0,
            });
        }
        Some(volume)
    }
}

impl Snapshot {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.layer.0));
        put_varint(out, self.size);
    }

    fn decode(from: &mut Reader<'_>) -> Option<Snapshot> {
        Some(Snapshot {
            layer: LayerId(number(from)?),
            size: from.varint()?,
        })
    }
}
