//! How a cluster is formed, and how a group's members change.
//!
//! Each node makes an identity for its disk when it formats it. A cluster is formed once, when all
//! nodes of the command line are linked and none belongs to a cluster: the one with the least
//! number names the disks as members. A disk that belongs to no cluster is never taken for one that
//! did.

use std::sync::Arc;

use super::core::Core;
use super::leader::Origin;
use crate::command::Command;
use crate::extents::Kind;
use crate::ids::{Ballot, GroupId, NodeId, Slot};
use crate::members::{Member, Members, Role};
use crate::wire::{Change, Formation, Frame, Hello, Refusal};

/// How far a learner may be behind when it becomes a voter, in slots.
const CAUGHT_UP: u64 = 64;

impl Core {
    /// A node is linked.
    pub(super) fn meet(&mut self, node: NodeId) {
        match &self.formation {
            None => self.try_to_form(),
            Some(_) => self.tell_formation(node),
        }
    }

    /// Forms the cluster where it is this node's turn.
    pub(super) fn try_to_form(&mut self) {
        let wanted = &self.settings.peers;
        let is_first = wanted.keys().min() == Some(&self.me.node);
        if self.formation.is_some() || !is_first {
            return;
        }
        let mut members = Members::default();
        for (node, address) in wanted {
            let disk = if *node == self.me.node {
                self.me.disk
            } else {
                match self.peers.get(node) {
                    Some(Hello {
                        cluster: 0, disk, ..
                    }) => *disk,
                    _ => return,
                }
            };
            let (node, address, role) = (*node, address.clone(), Role::Voter);
            members.put(Member {
                node,
                disk,
                address,
                role,
            });
        }
        let formation = Formation {
            cluster: self.settings.cluster_identity.max(1),
            groups: self.settings.groups,
            members: Arc::new(members),
        };
        self.adopt(formation);
    }

    /// The cluster was formed elsewhere, with this disk.
    pub(super) fn form(&mut self, from: NodeId, formation: Formation) {
        if self.formation.is_some() && self.is_announced {
            // That node has not heard what this one belongs to: the hello was lost.
            let hello = Frame::Hello(self.me.clone()).encode();
            return self.actions.push(super::input::Action::Send(from, hello));
        }
        let mine = formation
            .members
            .get(self.me.node)
            .map(|member| member.disk);
        let fits = formation.cluster != 0 && (1..=1024).contains(&formation.groups);
        if self.formation.is_none() && mine == Some(self.me.disk) && fits {
            self.adopt(formation);
        }
    }

    fn adopt(&mut self, formation: Formation) {
        let mut payload = Vec::new();
        formation.encode(&mut payload);
        // Twice: until a segment begins, nothing else says it.
        for _ in 0..2 {
            self.append(Kind::Members, GroupId::SYSTEM, 0, Ballot(0), &[&payload]);
        }
        self.formed_at = self.extents.end();
        let ids = std::iter::once(GroupId::SYSTEM).chain((1..=formation.groups).map(GroupId));
        let positions = self.map.positions();
        let has_state = |(id, position): (&GroupId, &(Slot, Ballot))| {
            position.0 > Slot(0) || self.map.is_incomplete(*id)
        };
        // A disk that was used before has lost the record of the formation, and maybe more.
        let was_used = self.was_used || positions.iter().any(has_state);
        for id in ids {
            let position = positions.get(&id).copied().unwrap_or_default();
            let (me, settings, now) = (&self.me, &self.settings, self.now);
            let used = was_used.then(|| super::open::Former {
                position,
                is_incomplete: self.map.is_incomplete(id),
                members: self.map.members(id),
            });
            let group = super::open::joined(me, settings, id, &formation, now, used);
            self.groups.insert(id, group);
            if was_used {
                // Before anything is accepted the disk says that it does not know what was.
                self.append_head(id);
            }
        }
        self.router.set_groups(formation.groups);
        self.me.cluster = formation.cluster;
        self.formation = Some(formation);
        self.members_changed();
        self.close_former_lives();
    }

    /// Says what this node belongs to, once that is durable.
    pub(super) fn announce(&mut self) {
        if self.formation.is_none() || self.is_announced || self.extents.synced() < self.formed_at {
            return;
        }
        self.is_announced = true;
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        for node in nodes {
            let hello = Frame::Hello(self.me.clone()).encode();
            self.actions.push(super::input::Action::Send(node, hello));
            self.tell_formation(node);
        }
    }

    /// Tells a node of no cluster that its disk is a member.
    pub(super) fn tell_formation(&mut self, node: NodeId) {
        let (Some(formation), Some(hello)) = (&self.formation, self.peers.get(&node)) else {
            return;
        };
        if hello.cluster != 0 || !self.is_announced {
            return;
        }
        let now = self
            .groups
            .get(&GroupId::SYSTEM)
            .map(|group| group.consensus.members().clone());
        let members = [Some(formation.members.clone()), now].into_iter().flatten();
        let has = |members: &Arc<Members>| {
            members
                .get(node)
                .is_some_and(|member| member.disk == hello.disk)
        };
        if let Some(members) = members.filter(has).last() {
            let formation = Formation {
                members,
                ..formation.clone()
            };
            self.actions.push(super::input::Action::Send(
                node,
                Frame::Form(formation).encode(),
            ));
        }
    }

    /// A node that belongs to no cluster, as far as is known, says what only one of a cluster says:
    /// its hello was lost, or an earlier one came behind it. It says it again when it hears how the
    /// cluster was formed. Without that a replica that is behind, and does not know of a new
    /// member, would never hear it lead.
    pub(super) fn ask_for_hello(&mut self, from: NodeId) {
        let is_open = self
            .peers
            .get(&from)
            .is_some_and(|hello| hello.cluster == 0);
        let formation = self.formation.as_ref();
        if let Some(formation) = formation.filter(|_| is_open && self.is_announced) {
            let frame = Frame::Form(formation.clone()).encode();
            self.actions.push(super::input::Action::Send(from, frame));
        }
    }

    /// A node says again what it is.
    pub(super) fn heard_hello(&mut self, from: NodeId, hello: Hello) {
        if hello.node != from {
            return;
        }
        self.peers.insert(from, hello);
        self.meet(from);
        if self.is_member(from) {
            for group in self.groups.values_mut() {
                group.consensus.reachable(from);
            }
        }
    }

    /// The links that are wanted follow the members.
    pub(super) fn members_changed(&mut self) {
        let mut all = self.settings.peers.clone();
        // A member that goes stays linked until it is one of no group. What the system group says
        // of addresses is newest.
        for group in self.groups.values().rev() {
            for member in group.consensus.members().iter() {
                all.insert(member.node, member.address.clone());
            }
        }
        all.remove(&self.me.node);
        self.actions
            .push(super::input::Action::Peers(all.into_iter().collect()));
    }

    /// Changes the members of a group that this node leads, where they are those that the change is
    /// of. A change that arrives late, or once more, cannot undo a later one.
    pub(super) fn change_members(
        &mut self,
        id: GroupId,
        origin: Origin,
        change: Change,
        since: u64,
    ) -> Result<(), Refusal> {
        let Some(group) = self.groups.get(&id) else {
            return Err(Refusal::NotLeader(None));
        };
        if !group.consensus.has_chosen_members() {
            return Err(Refusal::Busy);
        }
        // Where the members are as they should be already, that is proposed, too: another node may
        // lead and have changed them.
        let before = group.consensus.members();
        let mut members = Members::clone(before);
        match change {
            Change::Add(node, address) => {
                // It may lead the group itself by now, where the command is repeated.
                let me = Some(&self.me).filter(|me| me.node == node);
                let hello = me.or_else(|| self.peers.get(&node)).ok_or_else(|| {
                    Refusal::Failed(format!("node {node} is not linked to the group's leader"))
                })?;
                if ![0, self.me.cluster].contains(&hello.cluster) {
                    let text = format!("the disk of node {node} belongs to another cluster");
                    return Err(Refusal::Failed(text));
                }
                let is_there = members
                    .get(node)
                    .is_some_and(|member| member.disk == hello.disk);
                if !is_there {
                    members.put(Member {
                        node,
                        disk: hello.disk,
                        address,
                        role: Role::Learner,
                    });
                }
            }
            Change::Promote(node) => {
                let Some(member) = members.get(node).cloned() else {
                    return Err(Refusal::Failed(format!("node {node} is no member")));
                };
                let through = group.consensus.matched(node).unwrap_or_default();
                // One that has never answered is behind, too, however short the log is.
                let is_behind =
                    through.0 == 0 || through.0 + CAUGHT_UP < group.consensus.last().0.0;
                if member.role == Role::Learner && is_behind {
                    return Err(Refusal::Busy);
                }
                members.put(Member {
                    role: Role::Voter,
                    ..member
                });
            }
            Change::Remove(node) => {
                let is_voter = before.is_voter(node);
                members.remove(node);
                // The change counts at once: without a majority it could not even be taken back.
                let (me, now) = (self.me.node, self.now);
                let answers = |node: NodeId| node == me || group.consensus.is_heard(now, node);
                let answering = members.voters().filter(|node| answers(*node)).count();
                if is_voter && answering <= members.voters().count() / 2 {
                    let text = "a majority of the members that would be left does not answer";
                    return Err(Refusal::Failed(text.to_string()));
                }
                if members.voters().count() == 0 {
                    return Err(Refusal::Failed(
                        "the last member cannot be removed".to_string(),
                    ));
                }
            }
        }
        if since == before.version() {
            // Also where they stay: a change that was given up before does not happen any more.
            members.count_change();
        } else if members != **before {
            return Err(Refusal::Failed(
                "the members have changed since the command was given".to_string(),
            ));
        }
        self.propose_command(id, Some(origin), &Command::Members(Arc::new(members)))
    }
}
