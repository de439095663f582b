//! Nodes that stop and start, and what their operator does about disks that failed, were full or
//! are damaged.

use esker_sim::memory::PowerCut;
use esker_sim::world::count;
use esker_volume::ids::NodeId;

use super::world::World;

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
        // Nodes that stepped back are started again once there is room.
        for id in self.ids() {
            let is_damaged = self.is_rotten && id == victim;
            let node = self.node(id);
            let has_room = now >= node.full_until;
            if has_room && !is_damaged && node.has_failed() && self.random.u8(..20) == 0 {
                count("started again after a failure");
                self.crash(id, PowerCut::Kept, 0, 50);
            }
        }
    }
}
