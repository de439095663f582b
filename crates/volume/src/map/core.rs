//! What is in memory of all groups, and the one way to change it: a batch that is written, then
//! noted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use esker_fs::Fs;
use esker_lsm::{Batch, Durability, Snapshot};
use parking_lot::{Mutex, RwLock};

use super::image::ImageMeta;
use super::layers::Layers;
use super::positions::Positions;
use super::sessions::{Change, Session, Sessions};
use super::store::{self, Status, Store};
use super::usage::{Delta, Usage};
use crate::error::{Error, Result};
use crate::ids::{Ballot, GroupId, LayerId, SessionId, Slot, VolumeId};
use crate::members::Members;
use crate::system::System;

/// The state machine of all groups of a node: which block is where.
///
/// One thread applies commands. Others may read, vacuum, merge layers and copy images meanwhile.
pub struct Map {
    pub(super) store: Arc<Store>,
    pub(super) writer: Mutex<Writer>,
    view: RwLock<View>,
}

/// What writers know.
pub(super) struct Writer {
    pub(super) groups: BTreeMap<GroupId, GroupState>,
    pub(super) usage: Usage,
    pub(super) system: Arc<System>,
    /// Up to which block the layer was merged or dropped.
    pub(super) merged: Option<(GroupId, LayerId, u64)>,
    /// The images whose installation has begun, while entries of the former state are left.
    pub(super) clearing: BTreeMap<GroupId, Clearing>,
    /// The images that are being installed.
    pub(super) installing: BTreeMap<GroupId, ImageMeta>,
}

/// An image whose installation has begun, while entries of the former state are left.
pub(super) struct Clearing {
    pub(super) meta: ImageMeta,
    /// Where the next ones may be: what is before was removed.
    pub(super) next: (LayerId, u64),
}

/// What writers know of a group.
#[derive(Default)]
pub(super) struct GroupState {
    pub(super) status: Status,
    pub(super) members: Option<Arc<Members>>,
    pub(super) layers: Arc<Layers>,
    pub(super) sessions: Sessions,
    positions: Positions,
}

/// What readers see: as of the last batch, or the one before.
struct View {
    groups: BTreeMap<GroupId, GroupView>,
    system: Arc<System>,
}

#[derive(Clone)]
struct GroupView {
    status: Status,
    members: Option<Arc<Members>>,
    layers: Arc<Layers>,
}

/// A batch, and what it changes of what is in memory.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) batch: Batch,
    /// The change of live bytes. [`Map::commit`] adds it to the batch, and the other changes too.
    pub(super) delta: Delta,
    pub(super) status: Option<Status>,
    /// The members. Within, none where they are those at first.
    pub(super) members: Option<Option<Arc<Members>>>,
    pub(super) layers: Option<Layers>,
    pub(super) session: Option<(SessionId, Session)>,
    /// Which sessions are opened and closed.
    pub(super) sessions: Option<Change>,
    pub(super) system: Option<System>,
}

impl Plan {
    /// Notes that data become live (or garbage, with negative `bytes`).
    pub(super) fn count(&mut self, segment: u32, bytes: i64) {
        *self.delta.entry(segment).or_default() += bytes;
    }
}

impl Map {
    /// Opens the map in `dir`, and creates it where there is none. The engine's memory is at most
    /// `memory` bytes.
    ///
    /// # Errors
    /// What the engine's opening fails with, and [`Error::Corruption`].
    pub fn open(fs: Arc<dyn Fs>, dir: &Path, memory: usize) -> Result<Map> {
        Map::open_with(fs, dir, memory, true)
    }

    /// As [`Map::open`]. Without `background` the engine has no threads: it flushes and compacts in
    /// the calls that make it necessary, so that a run is deterministic.
    ///
    /// # Errors
    /// As [`Map::open`].
    pub fn open_with(fs: Arc<dyn Fs>, dir: &Path, memory: usize, background: bool) -> Result<Map> {
        let store = Store::open(fs, dir, memory, background)?;
        let loaded = store.load()?;
        let groups = loaded.groups.into_iter().map(|(id, stored)| {
            let state = GroupState {
                positions: Positions::new(stored.status.slot),
                status: stored.status,
                members: stored.members,
                layers: Arc::new(stored.layers),
                sessions: stored.sessions,
            };
            (id, state)
        });
        let writer = Writer {
            groups: groups.collect(),
            usage: Usage::new(loaded.usage),
            system: Arc::new(loaded.system),
            merged: None,
            clearing: BTreeMap::new(),
            installing: BTreeMap::new(),
        };
        let groups = writer.groups.iter();
        let view = View {
            groups: groups.map(|(id, state)| (*id, state.view())).collect(),
            system: writer.system.clone(),
        };
        Ok(Map {
            store: Arc::new(store),
            writer: Mutex::new(writer),
            view: RwLock::new(view),
        })
    }

    /// The last slot of a group that was applied; 0 for a group without any, and for an incomplete
    /// one.
    pub fn applied(&self, group: GroupId) -> Slot {
        self.status(group).slot
    }

    /// The ballot in which the last applied slot of a group was chosen.
    pub fn applied_ballot(&self, group: GroupId) -> Ballot {
        self.status(group).ballot
    }

    /// True where the state of the group is being replaced by an image, or where that was
    /// interrupted: it has to begin again ([`Map::begin_install`]).
    pub fn is_incomplete(&self, group: GroupId) -> bool {
        self.status(group).is_incomplete
    }

    /// True where the state of the group is that of an image, and nothing was applied since.
    pub fn is_image(&self, group: GroupId) -> bool {
        self.status(group).is_image
    }

    /// The members of a group, as of the last applied command.
    pub fn members(&self, group: GroupId) -> Option<Arc<Members>> {
        self.view.read().groups.get(&group)?.members.clone()
    }

    /// The state of the system group.
    pub fn system(&self) -> Arc<System> {
        self.view.read().system.clone()
    }

    /// True where the volume is between its cut and its release in this group.
    pub fn is_held(&self, group: GroupId, volume: VolumeId) -> bool {
        let view = self.view.read();
        let layers = view.groups.get(&group).map(|group| &group.layers);
        let volume = layers.and_then(|layers| layers.volumes.get(&volume));
        volume.is_some_and(|volume| !volume.held.is_empty())
    }

    /// For each group the last slot that is in tables: the log of the group is not needed up to
    /// there.
    pub fn durable(&self) -> Vec<(GroupId, Slot)> {
        let mut writer = self.writer.lock();
        let upto = self.store.engine.durable_seq();
        let groups = writer.groups.iter_mut();
        let durable = groups.map(|(id, state)| (*id, state.positions.durable(upto)));
        durable.collect()
    }

    /// Writes everything to tables, and syncs them.
    ///
    /// # Errors
    /// What the engine's flush fails with.
    pub fn flush(&self) -> Result<()> {
        Ok(self.store.engine.flush()?)
    }

    /// Flushes, and closes the engine.
    ///
    /// # Errors
    /// What that fails with.
    pub fn close(&self) -> Result<()> {
        Ok(self.store.engine.close()?)
    }

    /// Bytes of memory that wait for a flush.
    pub fn unflushed(&self) -> usize {
        self.store.engine.memtable_bytes()
    }

    pub(super) fn group_ids(&self) -> Vec<GroupId> {
        self.view.read().groups.keys().copied().collect()
    }

    pub(super) fn head_of(&self, group: GroupId, volume: VolumeId) -> Option<LayerId> {
        let view = self.view.read();
        Some(view.groups.get(&group)?.layers.volumes.get(&volume)?.head)
    }

    fn status(&self, group: GroupId) -> Status {
        let view = self.view.read();
        view.groups
            .get(&group)
            .map(|g| g.status)
            .unwrap_or_default()
    }

    /// The layers of a group, and a snapshot of the engine that fits them.
    ///
    /// # Errors
    /// [`Error::Incomplete`].
    pub(super) fn pin(&self, group: GroupId) -> Result<(Arc<Layers>, Snapshot)> {
        let layers = || {
            let view = self.view.read();
            match view.groups.get(&group) {
                Some(group) if !group.status.is_incomplete => Ok(group.layers.clone()),
                Some(_) => Err(Error::Incomplete { group }),
                None => Ok(Arc::new(Layers::default())),
            }
        };
        let mut before = layers()?;
        loop {
            // Writers publish behind each batch, so the snapshot is at most one batch newer than
            // the layers: those of the batch that cuts, merges or drops fit as well.
            let snapshot = self.store.engine.snapshot();
            let after = layers()?;
            if Arc::ptr_eq(&before, &after) || before == after {
                return Ok((after, snapshot));
            }
            before = after;
        }
    }

    /// Writes a plan for a group, and notes what it changes. Where the write fails nothing has
    /// changed.
    pub(super) fn commit(&self, writer: &mut Writer, group: GroupId, plan: Plan) -> Result<()> {
        let mut plan = plan;
        self.complete(writer, group, &mut plan)?;
        if plan.batch.is_empty() {
            return Ok(());
        }
        let seq = self.store.engine.write(&mut plan.batch, Durability::Os)?;
        writer.usage.apply(&plan.delta, seq);
        let state = writer.groups.entry(group).or_default();
        if let Some(status) = plan.status {
            state.status = status;
            state.positions.note(seq, status.slot);
        }
        if let Some(members) = plan.members {
            state.members = members;
        }
        if let Some(layers) = plan.layers {
            state.layers = Arc::new(layers);
        }
        if let Some((id, session)) = plan.session {
            state.sessions.open.insert(id, session);
        }
        if let Some(change) = plan.sessions {
            state.sessions.apply(change);
        }
        let mut view = self.view.write();
        view.groups.insert(group, state.view());
        if let Some(system) = plan.system {
            writer.system = Arc::new(system);
            view.system = writer.system.clone();
        }
        Ok(())
    }

    /// Adds to the batch what the plan changes beside the map's entries.
    fn complete(&self, writer: &Writer, group: GroupId, plan: &mut Plan) -> Result<()> {
        let (store, batch) = (&self.store, &mut plan.batch);
        for (segment, change) in &plan.delta {
            let key = segment.to_be_bytes();
            match writer.usage.after(*segment, *change) {
                0 => batch.delete(store.usage, &key)?,
                live => batch.put(store.usage, &key, &live.to_le_bytes())?,
            }
        }
        let mut bytes = Vec::new();
        match &plan.members {
            Some(Some(members)) => {
                members.encode(&mut bytes);
                batch.put(store.applied, &store::members_key(group), &bytes)?;
            }
            Some(None) => batch.delete(store.applied, &store::members_key(group))?,
            None => {}
        }
        if let Some(layers) = &plan.layers {
            bytes.clear();
            layers.encode(&mut bytes);
            batch.put(store.layers, &store::layers_key(group), &bytes)?;
        }
        if let Some((id, session)) = &plan.session {
            bytes.clear();
            session.encode(&mut bytes);
            batch.put(store.sessions, &store::session_key(group, *id), &bytes)?;
        }
        if let Some(change) = &plan.sessions {
            for id in &change.closed {
                batch.delete(store.sessions, &store::session_key(group, *id))?;
            }
            for (id, session) in &change.opened {
                bytes.clear();
                session.encode(&mut bytes);
                batch.put(store.sessions, &store::session_key(group, *id), &bytes)?;
            }
            bytes.clear();
            change.seen.encode(&mut bytes);
            batch.put(store.sessions, &store::seen_key(group), &bytes)?;
        }
        if let Some(system) = &plan.system {
            bytes.clear();
            system.encode(&mut bytes);
            batch.put(store.system, store::SYSTEM_KEY, &bytes)?;
        }
        if let Some(status) = &plan.status {
            batch.put(store.applied, &store::status_key(group), &status.encode())?;
        }
        Ok(())
    }
}

impl GroupState {
    fn view(&self) -> GroupView {
        GroupView {
            status: self.status,
            members: self.members.clone(),
            layers: self.layers.clone(),
        }
    }
}
