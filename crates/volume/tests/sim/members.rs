//! Changes of members, as an operator makes them: group by group, one node at a time, as a learner
//! first.

use std::collections::VecDeque;

use esker_sim::memory::PowerCut;
use esker_sim::world::count;
use esker_volume::ids::{GroupId, NodeId};
use esker_volume::wire::Change;

use super::clients::Answered;
use super::world::World;

/// The changes of a node that are left, and the call of the first one.
#[derive(Debug)]
pub(crate) struct Changing {
    node: NodeId,
    /// It is a member when all is done.
    stays: bool,
    all: VecDeque<(GroupId, Change)>,
    left: VecDeque<(GroupId, Change)>,
    /// All of it was done, and is asked for once more.
    is_repeated: bool,
    call: Option<usize>,
}

impl World {
    /// The victim's disk is lost.
    pub(crate) fn replace(&mut self) {
        let id = self.victim();
        // One replica may be lost at a time, once everything is on the others.
        let is_member = self.members.contains(&id) && self.members.len() > 2;
        if self.changing.is_none() && is_member {
            count("replace");
            self.wipe(id);
            self.is_rotten = false;
            self.add(id);
        }
    }

    /// A node that is no member becomes one.
    pub(crate) fn join(&mut self, is_wiped: bool) {
        let mut others = self.ids().into_iter();
        let Some(id) = others.rfind(|id| !self.members.contains(id)) else {
            return;
        };
        if self.changing.is_some() {
            return;
        }
        count("join");
        let is_new = !std::mem::replace(&mut self.node(id).is_used, true);
        if is_new {
            self.start(id);
        } else if is_wiped {
            self.wipe(id);
        }
        self.add(id);
    }

    /// A member is removed; its disk stays as it is.
    pub(crate) fn leave(&mut self, id: NodeId) {
        if self.changing.is_none() && self.members.len() > 3 && self.members.contains(&id) {
            count("leave");
            self.change_all(id, &[Change::Remove(id)]);
        }
    }

    pub(crate) fn wipe(&mut self, id: NodeId) {
        self.crash(id, PowerCut::Lost, 0, 50);
        self.node(id).wipe();
    }

    pub(crate) fn add(&mut self, id: NodeId) {
        let address = format!("node{id}");
        self.change_all(id, &[Change::Add(id, address), Change::Promote(id)]);
    }

    /// Makes each change in all groups before the next one.
    fn change_all(&mut self, node: NodeId, changes: &[Change]) {
        let groups: Vec<GroupId> = (0..=self.settings.groups).map(GroupId).collect();
        let of = |change: &Change| groups.iter().map(|g| (*g, change.clone())).collect();
        let all = changes.iter().flat_map(|change| -> Vec<_> { of(change) });
        let all: VecDeque<_> = all.collect();
        self.changing = Some(Changing {
            node,
            stays: !matches!(changes, [Change::Remove(_)]),
            left: all.clone(),
            all,
            is_repeated: false,
            call: None,
        });
    }

    pub(crate) fn poll_members(&mut self) {
        let Some(changing) = &mut self.changing else {
            return;
        };
        let id = changing.node;
        if let Some(call) = changing.call {
            if self.calls[call].is_pending() {
                return;
            }
            changing.call = None;
            if self.calls[call].answered == Some(Answered::Done) {
                changing.left.pop_front();
            }
            if changing.left.is_empty() && !changing.is_repeated {
                // The operator may repeat the command: that does nothing.
                changing.left = changing.all.clone();
                changing.is_repeated = true;
            }
        }
        let (stays, next) = (changing.stays, changing.left.front().cloned());
        let Some((group, change)) = next else {
            if stays {
                self.members.insert(id)
            } else {
                self.members.remove(&id)
            };
            self.changing = None;
            let victim = self.victim();
            let may_rot = victim != id && !self.is_healed && self.members.contains(&victim);
            if may_rot && self.random.bool() {
                self.rot_past();
            }
            return;
        };
        // A change is of the disk that the leader has heard of last.
        let others = self.members.clone().into_iter();
        let mut others = others.filter(|o| *o != id && self.nodes[o.0 as usize - 1].core.is_some());
        if stays && !others.all(|o| self.net.link(id, o).is_up) {
            return;
        }
        let node = self.random.u8(..8);
        let call = self.change(node, group, change);
        if let Some(changing) = &mut self.changing {
            changing.call = call;
        }
    }

    /// A member whose groups have other members than the operator wanted.
    pub(crate) fn check_members(&mut self) -> Option<String> {
        for id in self.members.clone() {
            let Some(status) = self.node(id).core.as_ref().map(|core| core.status()) else {
                return Some(format!("node {id} is down"));
            };
            for group in status.groups {
                let found = group.members.iter();
                let voters = found
                    .filter(|member| !member.1)
                    .map(|member| NodeId(member.0));
                if !voters.eq(self.members.iter().copied()) {
                    let members = &group.members;
                    return Some(format!("group {} has {members:?}", group.group));
                }
            }
        }
        None
    }
}
