//! A node whose disk was lost becomes a member again, as an operator would do it: group by group,
//! as a learner first.

use std::collections::VecDeque;

use esker_sim::memory::PowerCut;
use esker_sim::world::count;
use esker_volume::ids::GroupId;
use esker_volume::wire::Change;

use super::world::World;

/// The changes that are left, and the call of the first one.
#[derive(Debug)]
pub(crate) struct Replacing {
    left: VecDeque<(GroupId, Change)>,
    call: Option<usize>,
}

impl World {
    /// The victim's disk is lost.
    pub(crate) fn replace(&mut self) {
        let id = self.victim();
        // One replica may be lost at a time, once everything is on the others.
        if self.replacing.is_some() || self.node(id).core.is_none() {
            return;
        }
        count("replace");
        self.crash(id, PowerCut::Lost, 0, 50);
        self.node(id).wipe();
        let groups: Vec<GroupId> = (0..=self.settings.groups).map(GroupId).collect();
        let add = groups
            .iter()
            .map(|group| (*group, Change::Add(id, format!("node{id}"))));
        let promote = groups.iter().map(|group| (*group, Change::Promote(id)));
        let left = add.chain(promote).collect();
        self.replacing = Some(Replacing { left, call: None });
    }

    pub(crate) fn poll_members(&mut self) {
        let id = self.victim();
        let others = self.ids().into_iter().filter(|other| *other != id);
        // A change is of the disk that the leader has heard of last.
        if !others
            .into_iter()
            .all(|other| self.net.link(id, other).is_up)
        {
            return;
        }
        let Some(replacing) = &mut self.replacing else {
            return;
        };
        if let Some(call) = replacing.call {
            if self.calls[call].is_pending() {
                return;
            }
            replacing.call = None;
            if self.calls[call].is_done() {
                replacing.left.pop_front();
            }
        }
        let Some((group, change)) = replacing.left.front().cloned() else {
            self.replacing = None;
            return;
        };
        let node = self.random.u8(..8);
        let call = self.change(node, group, change);
        if let Some(replacing) = &mut self.replacing {
            replacing.call = call;
        }
    }
}
