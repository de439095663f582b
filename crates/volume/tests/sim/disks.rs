//! Nodes that stop and start, and what their operator does about disks that failed, were full or
//! are damaged.

use esker_sim::memory::PowerCut;
use esker_sim::world::count;
use esker_volume::extents::{Ahead, Batch};
use esker_volume::ids::NodeId;
use esker_volume::node::input::Input;

use super::world::{Event, World};

/// Errors of the system: bytes that cannot be read, and too many open files.
const EIO: i32 = 5;
const EMFILE: i32 = 24;

impl World {
    /// A node is stopped, and started again: nothing is lost.
    pub(crate) fn restart(&mut self, id: NodeId, down: u64) {
        let Some(core) = &self.node(id).core else {
            return;
        };
        count("restart");
        core.close();
        self.crash(id, PowerCut::Kept, 0, down);
    }

    /// Writes a batch, and what may be written behind it.
    pub(crate) fn run_batch(&mut self, id: NodeId, batch: Batch) {
        let ahead = batch.ahead();
        match batch.run() {
            Ok(end) => self.input(id, Input::BatchDone(Ok(end))),
            Err(error) => {
                let late = self.random.u64(..=self.settings.sync);
                self.disk_failed(id, late, Input::BatchDone(Err(error)));
            }
        }
        self.plot_written(id);
        // A node that is killed in between did not come to it.
        if self.settings.seed & 1 == 0 {
            self.write_ahead(id, ahead);
        }
    }

    fn write_ahead(&mut self, id: NodeId, ahead: Ahead) {
        let node = self.node(id);
        let fails = node.ahead_fails.take_if(|_| ahead.is_due());
        if fails.is_some() {
            node.may_fail = true;
            node.faulty.fail_sync_once();
        }
        if let Err(error) = ahead.run() {
            count("zeros ahead failed");
            let late = fails.unwrap_or_default();
            self.disk_failed(id, late, Input::AheadFailed(error));
        }
    }

    /// The disk's thread says what failed: the core may have taken other events by then.
    fn disk_failed(&mut self, id: NodeId, late: u64, input: Input) {
        let node = self.node(id);
        node.hears += 1;
        let epoch = node.epoch;
        self.after(late, Event::DiskFailed(id, epoch, input));
    }

    /// A node whose disk was full sees whether there is room, as the driver of threads lets it.
    pub(crate) fn reopen(&mut self, id: NodeId) {
        let now = self.now;
        let node = self.node(id);
        let time = node.clock(now);
        let is_up = now >= node.paused_until;
        let core = node.core.as_mut().filter(|core| is_up && core.is_full());
        if let Some(actions) = core.and_then(|core| core.reopen(time)) {
            count("full disk has room again");
            let logs = self.logs(id);
            self.say(|| format!("node {id} opens its segments again, its logs {logs}"));
            self.check_logs(id, &logs);
            self.check_ends(id);
            self.carry_out(id, actions);
        }
    }

    /// The disk of a node cannot be read for some milliseconds, from so many more reads on.
    pub(crate) fn unreadable(&mut self, id: NodeId, reads: u64, millis: u64) {
        count("reads fail");
        let until = self.now + millis;
        let is_damage = id == self.victim();
        let node = self.node(id);
        node.may_fail = true;
        node.read_error = if is_damage { EIO } else { EMFILE };
        node.faulty.fail_reads_with(node.read_error);
        if millis == 0 {
            return node.faulty.fail_reads_at(reads + 1);
        }
        node.unreadable_until = until;
        node.faulty.fail_reads_from(reads + 1);
    }

    pub(crate) fn poll_disks(&mut self) {
        let (now, victim) = (self.now, self.victim());
        if self.is_rotten {
            let node = &self.nodes[victim.0 as usize - 1];
            let does_not_start = node.core.is_none() && node.up_at.is_none();
            let is_seen = does_not_start || node.has_failed();
            if is_seen {
                count("damaged map is seen");
            }
            match self.members.contains(&victim) {
                true if is_seen || self.is_healed => self.replace(),
                true => {}
                false => {
                    self.wipe(victim);
                    self.is_rotten = false;
                }
            }
        }
        // Nodes that stepped back are started again once there is room, or see themselves that there
        // is some.
        for id in self.ids() {
            let is_damaged = self.is_rotten && id == victim;
            let node = self.node(id);
            let has_room = now >= node.full_until;
            if has_room && node.full_until > 0 {
                node.full_until = 0;
                node.faulty.set_capacity(u64::MAX);
            }
            if now >= node.unreadable_until {
                node.unreadable_until = 0;
                node.faulty.fail_reads_from(u64::MAX);
            }
            if self.random.u8(..5) == 0 {
                self.reopen(id);
            }
            let node = self.node(id);
            if has_room && !is_damaged && node.has_failed() && self.random.u8(..20) == 0 {
                count("started again after a failure");
                self.crash(id, PowerCut::Kept, 0, 50);
            }
        }
    }
}
