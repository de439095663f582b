//! A disk that was full: when there is room again, the node reads its segments back and serves as
//! after a restart. Nothing that was appended and not synced counts. The map stays: it has only
//! what is durable in the segments. What users asked stays too, and is asked again.

use std::path::Path;

use super::core::Core;
use super::images::Images;
use super::input::Action;
use super::open::read_back;
use super::running::ReadFor;
use super::space::Vacuum;
use crate::consensus::{Damage, Time};
use crate::error::{Error, Result};
use crate::extents::Kind;
use crate::ids::{Ballot, NodeId};
use crate::wire::{Frame, Refusal};

/// The room that must be there beside what reading back may write: with less the disk would be full
/// again at once.
const ROOM: u64 = 8 << 20;

/// Bytes that are written at a time to see whether there is room.
const PIECE: usize = 1 << 20;

impl Core {
    /// True where this replica has stepped back because its disk was full. [`Core::reopen`] is
    /// wanted every second or so.
    pub fn is_full(&self) -> bool {
        self.failed.as_ref().is_some_and(Error::is_disk_full)
    }

    /// Where the disk was full and there is room again, this replica takes part again. Returns what
    /// is to be done then; none where there is no room yet. Reads segments back: it takes as long
    /// as a start. Readers that were taken before read segments as they were.
    pub fn reopen(&mut self, now: Time) -> Option<Vec<Action>> {
        self.now = self.now.max(now);
        let mut running = self.running.values();
        let is_busy = running.any(|read| matches!(read.whom, ReadFor::Upkeep));
        if !self.is_full() || self.is_syncing || is_busy {
            return None;
        }
        if let Err(error) = self.try_room().and_then(|()| self.read_again()) {
            // Another failure than a lack of room is one for good.
            self.failed = Some(error);
            return None;
        }
        self.begin_again();
        self.start_batch();
        Some(std::mem::take(&mut self.actions))
    }

    /// Writes and removes as many bytes as are wanted.
    fn try_room(&self) -> Result<()> {
        let fs = &*self.home.fs;
        let path = self.home.segments().join("room.new");
        // What failed batches reserved is room, too.
        self.extents.unreserve();
        let last = self.extents.segments().pop();
        let wanted = ROOM + last.map_or(0, |segment| segment.bytes);
        let wrote = fill(fs, &path, wanted);
        let removed = if fs.exists(&path) {
            fs.remove(&path)
        } else {
            Ok(())
        };
        wrote?;
        removed.map_err(|error| Error::io(&path, "remove", error))
    }

    /// Replaces what was in memory of the segments and groups by what is on disk.
    fn read_again(&mut self) -> Result<()> {
        let me = (self.me.node, self.me.disk);
        // Where reading begins, and what is kept, goes by what is durable, as at a start.
        self.map.flush()?;
        let back = read_back(&self.home, &self.map, me, &self.settings, self.now)?;
        let mut groups = back.groups.values();
        if groups.any(|group| group.consensus.damage() == Some(Damage::Unknown)) {
            // What it lost is bounded by what leaders say on new links only.
            let cause = "records are damaged: the node is to be started again".to_string();
            return Err(Error::Poisoned { cause });
        }
        let written = self.extents.bytes_written();
        self.extents = back.extents;
        self.extents.count_written(written);
        self.reader = self.extents.reader();
        self.groups = back.groups;
        self.was_used = back.was_used;
        self.is_announced = back.formation.is_some();
        self.me.cluster = back
            .formation
            .as_ref()
            .map_or(0, |formation| formation.cluster);
        self.router.set_groups(
            back.formation
                .as_ref()
                .map_or(0, |formation| formation.groups),
        );
        self.formation = back.formation;
        self.formed_at = 0;
        Ok(())
    }

    /// Takes part again. The life is the one before: its sessions go on, and so do the links.
    fn begin_again(&mut self) {
        self.failed = None;
        self.after_sync.clear();
        self.proposed.clear();
        self.to_apply.clear();
        self.asked.clear();
        self.images = Images {
            next: self.images.next,
            ..Images::default()
        };
        let (moved, freed) = (self.vacuum.moved, self.vacuum.freed);
        self.vacuum = Vacuum {
            moved,
            freed,
            ..Vacuum::default()
        };
        for (ticket, read) in self.healing.take_reads() {
            self.read_ended(ticket, read, Err(Refusal::Busy));
        }
        // What this node was to do itself is asked again.
        self.router.disconnected(self.me.node);
        let node = super::heads::node_head(&self.me, self.formation.as_ref());
        self.append(Kind::Base, super::heads::NODE, 0, Ballot(0), &[&node]);
        self.errands.is_changed = true;
        self.members_changed();
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        let hello = Frame::Hello(self.me.clone()).encode();
        for node in nodes {
            // It may have lost what it belonged to, and the links stay.
            self.actions.push(Action::Send(node, hello.clone()));
            self.meet(node);
            if self.is_member(node) {
                for group in self.groups.values_mut() {
                    group.consensus.reachable(node);
                }
            }
        }
    }
}

/// Fills a file with zeros, durably.
fn fill(fs: &dyn esker_fs::Fs, path: &Path, bytes: u64) -> Result<()> {
    let file = fs.create(path).map_err(|e| Error::io(path, "create", e))?;
    let zeros = vec![0; PIECE];
    for _ in 0..bytes.div_ceil(PIECE as u64) {
        let appended = file.append(&zeros);
        appended.map_err(|e| Error::io(path, "append", e))?;
    }
    file.sync().map_err(|e| Error::io(path, "sync", e))
}
