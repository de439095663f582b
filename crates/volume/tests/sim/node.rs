//! A node of a simulated cluster: its disk, its clock, and its core while it is up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use esker_fs::Fs;
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};
use esker_volume::extents::Batch;
use esker_volume::ids::{DiskId, NodeId};
use esker_volume::node::input::{ConnectionId, ReadWork};
use esker_volume::node::{Core, Settings as NodeSettings, open, reading};

use super::action::Settings;

/// The folder of every node.
pub(crate) const DIR: &str = "/node";

/// A node.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) memory: Memory,
    pub(crate) faulty: Faulty,
    pub(crate) core: Option<Core>,
    /// Rises with each start: what was under way before is void.
    pub(crate) epoch: u64,
    pub(crate) batch: Option<Batch>,
    pub(crate) reads: BTreeMap<u64, ReadWork>,
    /// The nodes that it wants links to.
    pub(crate) peers: BTreeSet<NodeId>,
    pub(crate) paused_until: u64,
    /// It starts again at this time.
    pub(crate) up_at: Option<u64>,
    /// The next sync takes so long.
    pub(crate) slow: u64,
    /// The next sync of zeros that are written ahead fails, and it hears of that so much later.
    pub(crate) ahead_fails: Option<u64>,
    /// How many failures of its disk it has not heard of yet.
    pub(crate) hears: u64,
    /// Its disk is full until then.
    pub(crate) full_until: u64,
    /// Its disk cannot be read until then.
    pub(crate) unreadable_until: u64,
    /// The error of its reads that fail. 0 where none has failed.
    pub(crate) read_error: i32,
    /// It was given a reason to step back.
    pub(crate) may_fail: bool,
    /// It was started once.
    pub(crate) is_used: bool,
    /// Users' connections: by number, the one in use.
    pub(crate) connections: BTreeMap<u8, ConnectionId>,
    pub(crate) open: BTreeSet<ConnectionId>,
    /// The clock: it showed the second at the first, and runs at this speed.
    clock: (u64, u64, u64),
    disks: u64,
}

impl Node {
    pub(crate) fn new(id: u32) -> Node {
        let mut node = Node {
            id: NodeId(id),
            memory: Memory::new(),
            faulty: Faulty::new(Arc::new(Memory::new())),
            core: None,
            epoch: 0,
            batch: None,
            reads: BTreeMap::new(),
            peers: BTreeSet::new(),
            paused_until: 0,
            up_at: None,
            slow: 0,
            ahead_fails: None,
            hears: 0,
            full_until: 0,
            unreadable_until: 0,
            read_error: 0,
            may_fail: false,
            is_used: false,
            connections: BTreeMap::new(),
            open: BTreeSet::new(),
            clock: (0, 1000 * u64::from(id), 1000),
            disks: 0,
        };
        node.wipe();
        node
    }

    /// An empty disk with another identity than any other.
    pub(crate) fn wipe(&mut self) {
        self.memory = Memory::new();
        self.may_fail = false;
        self.disks += 1;
        for _ in 0..self.disks * 100 + u64::from(self.id.0) * 10 {
            self.memory.unique();
        }
        self.faulty = Faulty::new(Arc::new(self.memory.clone()));
    }

    /// Which of its disks it has.
    pub(crate) fn disk(&self) -> u64 {
        self.disks
    }

    /// What that is called in its folder.
    pub(crate) fn disk_id(&self) -> DiskId {
        DiskId(self.disks * 100 + u64::from(self.id.0) * 10 + 1)
    }

    /// What its clock shows.
    pub(crate) fn clock(&self, now: u64) -> u64 {
        let (since, showed, speed) = self.clock;
        showed + (now - since) * speed / 1000
    }

    /// When its clock will have gone on by a number of milliseconds.
    pub(crate) fn later(&self, now: u64, millis: u64) -> u64 {
        now + (millis * 1000).div_ceil(self.clock.2)
    }

    pub(crate) fn set_speed(&mut self, now: u64, speed: u64) {
        self.clock = (now, self.clock(now), speed);
    }

    /// Opens its folder.
    pub(crate) fn start(&mut self, settings: &Settings, now: u64) -> Result<(), String> {
        self.is_used = true;
        self.faulty.clear();
        if now < self.full_until {
            // What it has written so far is not counted any more.
            self.may_fail = true;
            self.faulty.set_capacity((self.full_until * 37) % 5000);
        }
        if now < self.unreadable_until {
            self.may_fail = true;
            self.faulty.fail_reads_with(self.read_error);
            // Sometimes it starts, and fails later.
            self.faulty
                .fail_reads_from(self.unreadable_until * 37 % 100);
        }
        let first = (1..=settings.nodes).map(NodeId);
        let peers = first.chain([self.id]).map(|id| (id, format!("node{id}")));
        let mut all = NodeSettings {
            peers: peers.collect(),
            cluster_identity: 77,
            groups: settings.groups,
            seed: settings.seed ^ u64::from(self.id.0) << 20 ^ self.epoch << 40,
            segment_bytes: settings.segment_bytes,
            map_bytes: 1 << 20,
            background: false,
            log_bytes: 64 << 10,
            // Not all keep as much of the log for others.
            log_segments: match (settings.seed >> self.id.0) & 1 {
                0 => settings.log_segments * 4,
                _ => settings.log_segments,
            },
            flush_bytes: settings.flush_bytes,
            live_percent: settings.live_percent,
            first_life: self.clock(now),
            session_loss: settings.session_loss,
            ..NodeSettings::default()
        };
        all.consensus.lease = settings.lease;
        all.consensus.window_bytes = settings.window as usize;
        all.consensus.message_bytes = settings.message as usize;
        let fs: Arc<dyn Fs> = Arc::new(self.faulty.clone());
        let time = self.clock(now);
        let core = open(fs, Path::new(DIR), self.id, all, time);
        self.core = Some(core.map_err(|error| error.to_string())?);
        self.epoch += 1;
        self.up_at = None;
        Ok(())
    }

    /// It has stepped back.
    pub(crate) fn has_failed(&self) -> bool {
        let core = self.core.as_ref();
        core.is_some_and(|core| !core.status().failed.is_empty())
    }

    /// The power is cut, after the disk has done some more calls of what it was asked for.
    pub(crate) fn cut_power(&mut self, seed: u64, mode: PowerCut, calls: u64) {
        if let Some(core) = &self.core {
            let (map, reader) = core.readers();
            self.faulty.fail_from(calls + 1);
            self.faulty.short_writes(seed & 1 == 0);
            if let Some(batch) = self.batch.take() {
                drop(batch.run());
            }
            for work in std::mem::take(&mut self.reads).into_values() {
                drop(reading::run(&map, &reader, &work));
            }
        }
        let memory = self.memory.power_cut(seed, mode);
        // What it does while it is taken down comes to nothing.
        self.core = None;
        self.memory = memory;
        self.faulty = Faulty::new(Arc::new(self.memory.clone()));
        self.batch = None;
        self.reads.clear();
        self.epoch += 1;
        self.paused_until = 0;
        self.slow = 0;
        self.ahead_fails = None;
        self.hears = 0;
        self.connections.clear();
        self.open.clear();
    }
}
