//! What commands of the system group do. Each may be sent again: what is done already is done.

use super::command::SystemCommand;
use super::outcome::{SystemError, SystemErrorKind, SystemOutcome, VolumeInfo};
use super::state::{
    LARGEST_BLOCK, LARGEST_VOLUME, Pending, SMALLEST_BLOCK, Snapshot, State, System, Volume,
};
use crate::ids::{LayerId, NodeId, VolumeId};
use crate::members::{Member, Members};

/// The longest name in bytes.
const LONGEST_NAME: usize = 255;
/// The most volumes.
const MOST_VOLUMES: usize = 65_536;
/// The most snapshots of a volume.
const MOST_SNAPSHOTS: usize = 4096;
/// The most members.
const MOST_MEMBERS: usize = 7;

type Answer = Result<Option<VolumeInfo>, SystemError>;

fn error<T>(kind: SystemErrorKind, text: impl Into<String>) -> Result<T, SystemError> {
    Err(SystemError::new(kind, text))
}

impl System {
    /// Applies a command. Equal states and commands have equal outcomes.
    pub fn apply(&mut self, command: &SystemCommand) -> SystemOutcome {
        let answer = match command {
            SystemCommand::Format { groups, members } => self.format(*groups, members),
            SystemCommand::Create {
                name,
                size,
                block_size,
            } => self.create(name, *size, *block_size),
            SystemCommand::Created(volume) => self.created(*volume),
            SystemCommand::Grow { name, size } => self.grow(name, *size),
            SystemCommand::Rename { from, to } => self.rename(from, to),
            SystemCommand::Delete(name) => self.delete(name),
            SystemCommand::Deleted(volume) => self.deleted(*volume),
            SystemCommand::Snapshot { volume, snapshot } => self.snapshot(volume, snapshot),
            SystemCommand::SnapshotCut { volume, layer } => self.snapshot_cut(*volume, *layer),
            SystemCommand::SnapshotDone { volume, layer } => self.snapshot_done(*volume, *layer),
            SystemCommand::DeleteSnapshot { volume, snapshot } => {
                self.delete_snapshot(volume, snapshot)
            }
            SystemCommand::LayerDropped(layer) => {
                self.dropping.remove(layer);
                Ok(None)
            }
            SystemCommand::Clone {
                volume,
                snapshot,
                name,
            } => self.clone_of(volume, snapshot, name),
            SystemCommand::AddMember(member) => self.add_member(member),
            SystemCommand::RemoveMember(node) => self.remove_member(*node),
            SystemCommand::MembersDone(change) => {
                self.is_changing &= self.change != *change;
                Ok(None)
            }
        };
        match answer {
            Ok(info) => SystemOutcome::Ok(info),
            Err(error) => SystemOutcome::Error(error),
        }
    }

    fn format(&mut self, groups: u16, members: &Members) -> Answer {
        if groups == 0 || members.is_empty() {
            return error(SystemErrorKind::Invalid, "no groups, or no members");
        }
        if self.groups == 0 {
            self.groups = groups;
            self.members = members.clone();
        }
        Ok(None)
    }

    fn create(&mut self, name: &str, size: u64, block_size: u32) -> Answer {
        check_name(name)?;
        let is_size = (SMALLEST_BLOCK..=LARGEST_BLOCK).contains(&block_size);
        if !is_size || !block_size.is_power_of_two() {
            let text = format!(
                "block size {block_size} is not a power of two from {SMALLEST_BLOCK} to {LARGEST_BLOCK}"
            );
            return error(SystemErrorKind::Invalid, text);
        }
        check_size(size, block_size)?;
        if let Some(volume) = self.named(name) {
            let is_same = volume.size == size && volume.block_size == block_size;
            return if is_same && volume.origin.is_none() {
                Ok(Some(info(volume)))
            } else {
                error(SystemErrorKind::Exists, differs(volume))
            };
        }
        let (id, layer) = self.next_ids()?;
        self.put(Volume {
            id,
            name: name.to_string(),
            former_name: String::new(),
            size,
            block_size,
            state: State::Creating,
            first_layer: layer,
            head: layer,
            origin: None,
            placement: id,
            snapshots: Default::default(),
            pending: None,
        })
    }

    /// Numbers for a new volume and its layer.
    fn next_ids(&mut self) -> Result<(VolumeId, LayerId), SystemError> {
        if self.groups == 0 {
            return error(SystemErrorKind::Busy, "the store is not formatted yet");
        }
        if self.volumes.len() >= MOST_VOLUMES {
            return error(
                SystemErrorKind::Invalid,
                format!("there are {MOST_VOLUMES} volumes, the most"),
            );
        }
        let Some(volume) = self.last_volume.checked_add(1) else {
            return error(
                SystemErrorKind::Invalid,
                "the numbers of volumes are used up",
            );
        };
        let layer = self.next_layer()?;
        self.last_volume = volume;
        Ok((VolumeId(volume), layer))
    }

    fn next_layer(&mut self) -> Result<LayerId, SystemError> {
        let Some(layer) = self.last_layer.checked_add(1) else {
            return error(
                SystemErrorKind::Invalid,
                "the numbers of layers are used up",
            );
        };
        self.last_layer = layer;
        Ok(LayerId(layer))
    }

    fn put(&mut self, volume: Volume) -> Answer {
        let described = info(&volume);
        self.names.insert(volume.name.clone(), volume.id);
        self.volumes.insert(volume.id, volume);
        Ok(Some(described))
    }

    fn created(&mut self, id: VolumeId) -> Answer {
        let volume = self.volumes.get_mut(&id);
        let Some(volume) = volume.filter(|volume| volume.state == State::Creating) else {
            return Ok(None);
        };
        volume.state = State::Ready;
        Ok(Some(info(volume)))
    }

    fn of_name(&mut self, name: &str) -> Result<&mut Volume, SystemError> {
        let id = self.names.get(name);
        let volume = id.and_then(|id| self.volumes.get_mut(id));
        volume.ok_or_else(|| {
            SystemError::new(
                SystemErrorKind::NotFound,
                format!("there is no volume {name}"),
            )
        })
    }

    fn grow(&mut self, name: &str, size: u64) -> Answer {
        let volume = self.of_name(name)?;
        check_size(size, volume.block_size)?;
        if size < volume.size {
            let text = format!("volume {name} has {} bytes, and cannot shrink", volume.size);
            return error(SystemErrorKind::Invalid, text);
        }
        if size > volume.size && volume.pending.is_some() {
            // The snapshot has the volume's size now. Groups that are not cut yet would take what
            // is written behind that into it, and a clone that grows would show it.
            let text = format!("a snapshot of volume {name} is being made");
            return error(SystemErrorKind::Busy, text);
        }
        volume.size = size;
        Ok(Some(info(volume)))
    }

    fn rename(&mut self, from: &str, to: &str) -> Answer {
        check_name(to)?;
        let target = self
            .named(to)
            .map(|volume| (info(volume), volume.former_name == from));
        if !self.names.contains_key(from) {
            // This very renaming, again.
            if let Some((described, true)) = target {
                return Ok(Some(described));
            }
        }
        let volume = self.of_name(from)?;
        if from == to {
            return Ok(Some(info(volume)));
        }
        if target.is_some() {
            return error(
                SystemErrorKind::Exists,
                format!("there is a volume {to} already"),
            );
        }
        volume.former_name = std::mem::replace(&mut volume.name, to.to_string());
        let (id, described) = (volume.id, info(volume));
        self.names.remove(from);
        self.names.insert(to.to_string(), id);
        Ok(Some(described))
    }

    /// True where a clone of this layer may not exist in all groups yet.
    fn is_being_cloned(&self, layer: LayerId) -> bool {
        let mut volumes = self.volumes.values();
        volumes.any(|volume| volume.state == State::Creating && volume.origin == Some(layer))
    }

    fn delete(&mut self, name: &str) -> Answer {
        let volume = self.of_name(name)?.clone();
        let mut layers = volume.snapshots.values().map(|snapshot| snapshot.layer);
        if layers.any(|layer| self.is_being_cloned(layer)) {
            let text = format!("a clone of a snapshot of {name} is being created");
            return error(SystemErrorKind::Busy, text);
        }
        let volume = self.of_name(name)?;
        volume.state = State::Deleting;
        // The groups drop the snapshots with the volume.
        volume.snapshots.clear();
        volume.pending = None;
        let described = info(volume);
        self.names.remove(name);
        Ok(Some(described))
    }

    fn deleted(&mut self, id: VolumeId) -> Answer {
        let volume = self.volumes.get(&id);
        if volume.is_some_and(|volume| volume.state == State::Deleting) {
            self.volumes.remove(&id);
        }
        Ok(None)
    }

    fn snapshot(&mut self, name: &str, snapshot: &str) -> Answer {
        check_name(snapshot)?;
        let volume = self.of_name(name)?;
        let is_pending = |pending: &Pending| pending.name == snapshot;
        if volume.snapshots.contains_key(snapshot)
            || volume.pending.as_ref().is_some_and(is_pending)
        {
            return Ok(Some(info(volume)));
        }
        if volume.state != State::Ready || volume.pending.is_some() {
            let text = format!("volume {name} is being created or cut");
            return error(SystemErrorKind::Busy, text);
        }
        if volume.snapshots.len() >= MOST_SNAPSHOTS {
            let text = format!("volume {name} has {MOST_SNAPSHOTS} snapshots, the most");
            return error(SystemErrorKind::Invalid, text);
        }
        let layer = self.next_layer()?;
        let volume = self.of_name(name)?;
        volume.pending = Some(Pending {
            name: snapshot.to_string(),
            snapshot: Snapshot {
                layer: volume.head,
                size: volume.size,
            },
            layer,
            is_cut: false,
        });
        volume.head = layer;
        Ok(Some(info(volume)))
    }

    fn snapshot_cut(&mut self, id: VolumeId, layer: LayerId) -> Answer {
        let volume = self.volumes.get_mut(&id);
        let pending = volume.and_then(|volume| volume.pending.as_mut());
        if let Some(pending) = pending.filter(|pending| pending.layer == layer) {
            pending.is_cut = true;
        }
        Ok(None)
    }

    fn snapshot_done(&mut self, id: VolumeId, layer: LayerId) -> Answer {
        let Some(volume) = self.volumes.get_mut(&id) else {
            return Ok(None);
        };
        let is_this = |pending: &mut Pending| pending.layer == layer && pending.is_cut;
        let Some(pending) = volume.pending.take_if(is_this) else {
            return Ok(None);
        };
        volume.snapshots.insert(pending.name, pending.snapshot);
        Ok(Some(info(volume)))
    }

    fn delete_snapshot(&mut self, name: &str, snapshot: &str) -> Answer {
        let volume = self.of_name(name)?;
        if volume
            .pending
            .as_ref()
            .is_some_and(|pending| pending.name == snapshot)
        {
            let text = format!("snapshot {snapshot} of {name} is being made");
            return error(SystemErrorKind::Busy, text);
        }
        let Some(layer) = volume
            .snapshots
            .get(snapshot)
            .map(|snapshot| snapshot.layer)
        else {
            let text = format!("volume {name} has no snapshot {snapshot}");
            return error(SystemErrorKind::NotFound, text);
        };
        if self.is_being_cloned(layer) {
            let text = format!("a clone of snapshot {snapshot} of {name} is being created");
            return error(SystemErrorKind::Busy, text);
        }
        let volume = self.of_name(name)?;
        volume.snapshots.remove(snapshot);
        let described = info(volume);
        self.dropping.insert(layer);
        Ok(Some(described))
    }

    fn clone_of(&mut self, volume: &str, snapshot: &str, name: &str) -> Answer {
        check_name(name)?;
        let of = self.of_name(volume)?;
        let Some(found) = of.snapshots.get(snapshot).copied() else {
            let text = format!("volume {volume} has no snapshot {snapshot}");
            return error(SystemErrorKind::NotFound, text);
        };
        let (block_size, placement) = (of.block_size, of.placement);
        if let Some(other) = self.named(name) {
            return if other.origin == Some(found.layer) {
                Ok(Some(info(other)))
            } else {
                error(SystemErrorKind::Exists, differs(other))
            };
        }
        let (id, layer) = self.next_ids()?;
        self.put(Volume {
            id,
            name: name.to_string(),
            former_name: String::new(),
            size: found.size,
            block_size,
            state: State::Creating,
            first_layer: layer,
            head: layer,
            origin: Some(found.layer),
            placement,
            snapshots: Default::default(),
            pending: None,
        })
    }

    fn add_member(&mut self, member: &Member) -> Answer {
        if self.members.get(member.node) == Some(member) {
            return Ok(None);
        }
        self.begin_change()?;
        let is_new = self.members.get(member.node).is_none();
        if is_new && self.members.iter().count() >= MOST_MEMBERS {
            let text = format!("there are {MOST_MEMBERS} members, the most");
            return error(SystemErrorKind::Invalid, text);
        }
        self.members.put(member.clone());
        self.end_change();
        Ok(None)
    }

    fn remove_member(&mut self, node: NodeId) -> Answer {
        if self.members.get(node).is_none() {
            return error(
                SystemErrorKind::NotFound,
                format!("node {node} is no member"),
            );
        }
        self.begin_change()?;
        if self.members.iter().count() == 1 {
            return error(
                SystemErrorKind::Invalid,
                "the last member cannot be removed",
            );
        }
        self.members.remove(node);
        self.end_change();
        Ok(None)
    }

    fn begin_change(&self) -> Result<(), SystemError> {
        if self.is_changing {
            error(
                SystemErrorKind::Busy,
                "another change of members is under way",
            )
        } else {
            Ok(())
        }
    }

    fn end_change(&mut self) {
        self.change = self.change.saturating_add(1);
        self.is_changing = true;
    }
}

fn info(volume: &Volume) -> VolumeInfo {
    VolumeInfo {
        id: volume.id,
        name: volume.name.clone(),
        size: volume.size,
        block_size: volume.block_size,
        is_ready: volume.state == State::Ready && volume.pending.is_none(),
    }
}

fn differs(volume: &Volume) -> String {
    let Volume {
        name,
        size,
        block_size,
        ..
    } = volume;
    format!("there is a different volume {name}: {size} bytes in blocks of {block_size}")
}

fn check_name(name: &str) -> Result<(), SystemError> {
    let is_right = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let is_long = name.is_empty() || name.len() > LONGEST_NAME;
    if !is_long && name.bytes().all(is_right) {
        Ok(())
    } else {
        error(
            SystemErrorKind::Invalid,
            format!("a name has 1 to {LONGEST_NAME} bytes of A-Z, a-z, 0-9, '.', '_' and '-'"),
        )
    }
}

fn check_size(size: u64, block_size: u32) -> Result<(), SystemError> {
    if size > LARGEST_VOLUME || !size.is_multiple_of(u64::from(block_size.max(1))) {
        let text = format!(
            "{size} bytes are no multiple of the block size {block_size}, or more than 2^56"
        );
        return error(SystemErrorKind::Invalid, text);
    }
    Ok(())
}
