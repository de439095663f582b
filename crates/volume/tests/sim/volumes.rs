//! Volumes come, grow, get other names and go. An order is given again until it is answered, and
//! once more then: that must not matter.

use esker_sim::world::count;
use esker_volume::ids::{GroupId, VolumeId};
use esker_volume::system::{
    RANGE, Source, SystemCommand, SystemErrorKind, SystemOutcome, VolumeInfo,
};

use super::clients::{Answered, Volume};
use super::world::World;

/// The most volumes of a run that are not deleted.
const MOST: usize = 5;

/// What the operator wants of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Create(String),
    Grow(u64),
    Rename(String),
    Delete,
}

/// What is being done about a volume.
#[derive(Debug)]
pub(crate) struct Order {
    wanted: Wanted,
    /// None where the order is to create it.
    volume: Option<usize>,
    call: Option<usize>,
    /// How often it was asked for.
    asked: u32,
    /// The answer of the first time.
    done: Option<VolumeInfo>,
}

impl World {
    /// The sizes of volumes: without the last range that steps use, and with it.
    pub(crate) fn sizes(&self) -> [u64; 2] {
        let without = u64::from(self.settings.groups) * RANGE;
        [without, without + RANGE + (1 << 20)]
    }

    fn is_named(&self, name: &str) -> bool {
        let is = |order: &Order| match &order.wanted {
            Wanted::Create(other) | Wanted::Rename(other) => other == name,
            Wanted::Grow(_) | Wanted::Delete => false,
        };
        let mut volumes = self.volumes.iter().filter(|volume| !volume.is_deleted);
        volumes.any(|volume| volume.name == name) || self.orders.iter().any(is)
    }

    pub(crate) fn is_ordered(&self, volume: usize) -> bool {
        self.orders.iter().any(|order| order.volume == Some(volume))
    }

    /// A volume that an order may be about: nothing else is under way with it.
    fn is_idle(&self, volume: usize) -> bool {
        let is_busy = self.is_ordered(volume) || self.is_being_copied(volume);
        !self.volumes[volume].is_deleted && !is_busy
    }

    fn order(&mut self, volume: Option<usize>, wanted: Wanted) {
        self.orders.push(Order {
            wanted,
            volume,
            call: None,
            asked: 0,
            done: None,
        });
    }

    /// One of the few names of volumes.
    fn free_name(&self, number: u8) -> Option<String> {
        let name = format!("x{}", number % 3);
        (!self.is_named(&name)).then_some(name)
    }

    pub(crate) fn order_create(&mut self, number: u8) {
        let live = self.volumes.iter().filter(|volume| !volume.is_deleted);
        let creating = self.orders.iter().filter(|order| order.volume.is_none());
        if live.count() + creating.count() >= MOST {
            return;
        }
        if let Some(name) = self.free_name(number) {
            self.order(None, Wanted::Create(name));
        }
    }

    pub(crate) fn order_grow(&mut self, number: u8) {
        let volume = usize::from(number) % self.volumes.len();
        let [_, size] = self.sizes();
        // Also while a snapshot of it is being made: that has one size or the other.
        let may_grow = !self.volumes[volume].is_deleted && !self.is_ordered(volume);
        if may_grow && self.volumes[volume].size < size {
            self.volumes[volume].most = size;
            self.order(Some(volume), Wanted::Grow(size));
        }
    }

    pub(crate) fn order_rename(&mut self, number: u8) {
        let volume = usize::from(number) % self.volumes.len();
        if let Some(name) = self.free_name(number / 8).filter(|_| self.is_idle(volume)) {
            self.order(Some(volume), Wanted::Rename(name));
        }
    }

    pub(crate) fn order_delete(&mut self, number: u8) {
        let volume = usize::from(number) % self.volumes.len();
        // One stays.
        if volume > 0 && self.is_idle(volume) {
            self.forget_snapshots_of(volume);
            self.order(Some(volume), Wanted::Delete);
        }
    }

    pub(crate) fn poll_orders(&mut self) {
        for at in (0..self.orders.len()).rev() {
            let call = self.orders[at].call;
            if call.is_some_and(|call| self.calls[call].is_pending()) {
                continue;
            }
            self.orders[at].call = None;
            let answer = call.and_then(|call| self.calls[call].answered.clone());
            if let Some(Answered::System(outcome)) = answer
                && self.is_carried_out(at, outcome)
            {
                self.orders.remove(at);
                continue;
            }
            let command = self.command_of(at);
            let node = self.random.u8(..8);
            let call = self.command(node, &command);
            self.orders[at].call = call;
            self.orders[at].asked += u32::from(call.is_some());
        }
    }

    fn command_of(&self, at: usize) -> SystemCommand {
        let order = &self.orders[at];
        let name = || self.volumes[order.volume.unwrap()].name.clone();
        match &order.wanted {
            Wanted::Create(new) => SystemCommand::Create {
                name: new.clone(),
                size: self.sizes()[0],
                block_size: self.settings.block_size,
            },
            Wanted::Grow(size) => SystemCommand::Grow {
                name: name(),
                size: *size,
            },
            Wanted::Rename(to) => SystemCommand::Rename {
                from: name(),
                to: to.clone(),
            },
            Wanted::Delete => SystemCommand::Delete(name()),
        }
    }

    /// Takes an answer. True where the order is carried out, and was asked for once more.
    fn is_carried_out(&mut self, at: usize, outcome: SystemOutcome) -> bool {
        let order = &self.orders[at];
        let info = match outcome {
            SystemOutcome::Ok(Some(info)) => info,
            SystemOutcome::Error(error) if error.kind == SystemErrorKind::Busy => return false,
            // It is done, and an answer was lost.
            SystemOutcome::Ok(None) if order.wanted == Wanted::Delete => return self.deleted(at),
            SystemOutcome::Error(error)
                if order.wanted == Wanted::Delete
                    && order.asked > 1
                    && error.kind == SystemErrorKind::NotFound =>
            {
                return self.deleted(at);
            }
            other => panic!("{order:?} is answered {other:?}"),
        };
        if let Some(volume) = order.volume {
            assert_eq!(info.id, self.volumes[volume].id, "{order:?} is of another");
        }
        let is_done = info.is_ready || matches!(order.wanted, Wanted::Delete | Wanted::Grow(_));
        match order.done.clone() {
            // A volume that is not ready yet is asked for again, too.
            None if is_done => {
                self.orders[at].done = Some(info);
                false
            }
            None => false,
            Some(done) => {
                assert_ne!(order.wanted, Wanted::Delete, "{order:?} is done twice");
                // A snapshot may have begun to be made in between.
                let is_ready = info.is_ready;
                assert_eq!(info, VolumeInfo { is_ready, ..done }, "{order:?}");
                self.carried_out(at, info);
                true
            }
        }
    }

    fn deleted(&mut self, at: usize) -> bool {
        let volume = self.orders[at].volume.unwrap();
        count("delete");
        self.volumes[volume].is_deleted = true;
        true
    }

    fn carried_out(&mut self, at: usize, info: VolumeInfo) {
        match (self.orders[at].wanted.clone(), self.orders[at].volume) {
            (Wanted::Create(name), _) => {
                count("create");
                assert_eq!((&info.name, info.size), (&name, self.sizes()[0]));
                self.volumes.push(Volume::new(name, info.id, info.size));
            }
            (Wanted::Grow(size), Some(volume)) => {
                count("grow");
                self.volumes[volume].size = size;
            }
            (Wanted::Rename(to), Some(volume)) => {
                count("rename");
                self.volumes[volume].name = to;
            }
            (_, _) => unreachable!("deletions end otherwise"),
        }
    }

    /// What is left to do.
    pub(crate) fn open_order(&self) -> Option<String> {
        let order = self.orders.first()?;
        let call = order.call.map(|call| &self.calls[call]);
        Some(format!("{order:?} is not carried out: {call:?}"))
    }

    /// At rest, members know the volumes that the operator knows, and their groups have no other.
    pub(crate) fn check_volumes(&mut self) {
        let live = self.volumes.iter().filter(|volume| !volume.is_deleted);
        let of = |volume: &Volume| (volume.name.clone(), volume.id, volume.size);
        let mut wanted: Vec<(String, VolumeId, u64)> = live.map(of).collect();
        wanted.sort();
        let groups: Vec<GroupId> = (1..=self.settings.groups).map(GroupId).collect();
        let numbers: Vec<(VolumeId, bool)> = self
            .volumes
            .iter()
            .map(|volume| (volume.id, !volume.is_deleted))
            .collect();
        for id in self.members.clone() {
            let core = self.node(id).core.as_ref().unwrap();
            let (map, _) = core.readers();
            let system = map.system();
            let found = system.volumes();
            let found: Vec<(String, VolumeId, u64)> = found
                .map(|volume| (volume.name.clone(), volume.id, volume.size))
                .collect();
            assert_eq!(found, wanted, "volumes at node {id}");
            for (volume, is_live) in &numbers {
                for group in &groups {
                    let size = map
                        .source_block_size(*group, Source::Volume(*volume))
                        .unwrap();
                    assert_eq!(
                        size.is_some(),
                        *is_live,
                        "volume {volume} in group {group} at node {id}"
                    );
                }
            }
        }
    }

    /// Live bytes are those that the map refers to.
    pub(crate) fn check_usage(&mut self) {
        for id in self.members.clone() {
            let core = self.node(id).core.as_ref().unwrap();
            let (map, _) = core.readers();
            let mut counted = std::collections::BTreeMap::new();
            let mut blocks = map.live_blocks(None);
            while let Some(found) = blocks.next_block().unwrap() {
                let size = map
                    .layer_block_size(found.group, found.layer)
                    .unwrap()
                    .unwrap_or(0);
                *counted.entry(found.extent.place.segment).or_insert(0) += u64::from(size);
            }
            assert_eq!(map.usage(), counted, "live bytes of segments at node {id}");
            self.check_blocks(id);
        }
    }
}
