//! What a node does on its own, at every tick: the system group's to-do list, sessions of nodes
//! that are gone, how leaders are spread.

use std::collections::{BTreeMap, BTreeSet};

use super::core::Core;
use super::errands::{DECLINED, END_AGAIN, HANGS, SPREAD, Step, TELL};
use super::group::Group;
use crate::command::Command;
use crate::extents::Kind;
use crate::ids::{Ballot, GroupId, NodeId};
use crate::system::SystemCommand;
use crate::wire::{Op, Refusal, Reply};

impl Core {
    /// Makes the number of this node's life durable, and ends the sessions of earlier lives.
    pub(super) fn begin_life(&mut self) {
        let node = super::heads::node_head(&self.me, self.formation.as_ref());
        self.append(Kind::Base, super::heads::NODE, 0, Ballot(0), &[&node]);
        self.errands.is_changed = true;
        if self.formation.is_some() {
            self.close_former_lives();
        }
        self.members_changed();
    }

    pub(super) fn close_former_lives(&mut self) {
        let (node, before, now) = (self.me.node, self.me.life, self.now);
        let mut command = Vec::new();
        Command::CloseLives { node, before }.encode(&mut command);
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            self.router
                .errand(0, group, Op::Command(command.clone()), now);
        }
    }

    pub(super) fn run_errands(&mut self) {
        let now = self.now;
        self.announce();
        if now >= self.last_ticks.announced + TELL {
            self.last_ticks.announced = now;
            // A cluster of one node has no link that would begin it.
            self.try_to_form();
            let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
            nodes.into_iter().for_each(|node| self.meet(node));
        }
        if self.failed.is_some() || self.formation.is_none() {
            return;
        }
        self.run_list();
        self.hand_on();
        if now >= self.last_ticks.ended + TELL {
            self.last_ticks.ended = now;
            self.end_lost_sessions();
        }
        if now >= self.last_ticks.spread + SPREAD {
            self.last_ticks.spread = now;
            self.spread();
        }
        self.tick_healing();
    }

    /// The leader of the system group carries its list out: commands to other groups, and when an
    /// item's are done, its completion.
    fn run_list(&mut self) {
        let leads = self
            .groups
            .get(&GroupId::SYSTEM)
            .is_some_and(|group| group.leads);
        if !leads {
            self.errands.done.clear();
            self.errands.is_changed = true;
            return;
        }
        if !std::mem::take(&mut self.errands.is_changed) {
            return;
        }
        let system = self.map.system();
        let mut wanted = BTreeSet::new();
        let formation = self.formation.as_ref().filter(|_| system.groups() == 0);
        if let Some(formation) = formation {
            let (groups, members) = (formation.groups, (*formation.members).clone());
            wanted.insert(Step::of_system(&SystemCommand::Format { groups, members }));
        }
        let todo = system.todo();
        for item in todo {
            let mut steps = Vec::new();
            for (group, command) in item.commands {
                let mut bytes = Vec::new();
                command.encode(&mut bytes);
                steps.push(Step {
                    group,
                    command: bytes,
                });
            }
            let all_done = steps.iter().all(|step| self.errands.done.contains(step));
            if all_done {
                wanted.insert(Step::of_system(&item.then));
            }
            wanted.extend(steps);
        }
        self.errands.done.retain(|step| wanted.contains(step));
        let running: BTreeSet<Step> = self.errands.running.values().cloned().collect();
        for step in wanted {
            if running.contains(&step) || self.errands.done.contains(&step) {
                continue;
            }
            self.errands.next += 1;
            let key = self.errands.next;
            let op = Op::Command(step.command.clone());
            self.router.errand(key, step.group, op, self.now);
            self.errands.running.insert(key, step);
        }
    }

    /// An errand was answered.
    pub(super) fn errand_done(&mut self, key: u64, result: Result<Reply, Refusal>) {
        let Some(step) = self.errands.running.remove(&key) else {
            return;
        };
        // A step that was refused is begun again.
        self.errands.is_changed = true;
        if result.is_ok() {
            self.errands.done.insert(step);
        }
    }

    /// Ends the sessions of nodes that are gone for long, in the groups that this node leads.
    fn end_lost_sessions(&mut self) {
        for (node, hello) in &self.peers {
            self.errands.lives.insert(*node, hello.life);
        }
        let (patience, now) = (self.settings.session_loss, self.now);
        let gone: Vec<(NodeId, u64)> = self
            .lost
            .iter()
            .filter(|(_, since)| **since + patience < now)
            .filter_map(|(node, _)| Some((*node, *self.errands.lives.get(node)?)))
            .collect();
        self.errands.ended.retain(|_, at| *at + END_AGAIN > now);
        let led: Vec<GroupId> = self.led().collect();
        for (node, life) in gone {
            for id in &led {
                // One by one: the node may only be cut off, and goes on with new sessions when it
                // is linked again.
                for session in self.map.sessions_of(*id, node, life) {
                    if self.errands.ended.contains_key(&(*id, session)) {
                        continue;
                    }
                    let command = Command::CloseSession(session);
                    if self.propose_command(*id, None, &command).is_ok() {
                        self.errands.ended.insert((*id, session), now);
                    }
                }
            }
        }
    }

    fn led(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.groups
            .values()
            .filter(|group| group.leads)
            .map(|group| group.id)
    }

    /// Hands over the groups that this node leads and can answer nothing of: their state is
    /// incomplete here until an image is installed, or the disk hangs.
    fn hand_on(&mut self) {
        let hangs = self.is_syncing && self.now >= self.syncing_since + HANGS;
        let groups = self.groups.values();
        let led =
            groups.filter(|group| (group.is_incomplete || hangs) && group.consensus.is_leader());
        let mut heirs = Vec::new();
        for group in led {
            let last = group.consensus.last().0;
            let has_all = |node: &&NodeId| {
                self.is_member(**node) && group.consensus.heir(self.now, **node) == Some(last)
            };
            let all: Vec<NodeId> = self.peers.keys().filter(has_all).copied().collect();
            // One whose state is incomplete, too, does not take over: then it is another's turn.
            let turn = self.now / self.settings.consensus.election.max(1);
            let at = turn as usize % all.len().max(1);
            heirs.extend(all.get(at).map(|node| (group.id, *node)));
        }
        for (id, to) in heirs {
            self.step(id, &mut Default::default(), |core, now, out| {
                core.transfer(now, to, out)
            });
        }
    }

    /// Hands one group over where this node leads at least two more than a linked voter that can
    /// lead it.
    fn spread(&mut self) {
        self.note_declined();
        let mut counts: BTreeMap<NodeId, usize> = BTreeMap::new();
        for group in self.groups.values() {
            match group.consensus.leader() {
                Some(leader) => *counts.entry(leader).or_default() += 1,
                // Without all leaders the counts say little.
                None => return,
            }
        }
        let count = |node: NodeId| counts.get(&node).copied().unwrap_or(0);
        let mine = count(self.me.node);
        let mut least: Option<(usize, NodeId, GroupId)> = None;
        for group in self.groups.values().filter(|group| group.leads) {
            if group.leader.depth() >= 64 {
                continue;
            }
            let heirs = self.peers.keys().filter(|node| self.is_heir(group, **node));
            let heirs = heirs.map(|node| (count(*node), *node, group.id));
            least = heirs.chain(least).min();
        }
        let Some((_, to, id)) = least.filter(|(count, ..)| count + 2 <= mine) else {
            return;
        };
        self.errands.handed = Some((id, to));
        self.step(id, &mut Default::default(), |core, now, out| {
            core.transfer(now, to, out)
        });
    }

    /// True for a linked voter that is close behind, and can lead as far as is known.
    fn is_heir(&self, group: &Group, node: NodeId) -> bool {
        let last = group.consensus.last().0;
        let has = group.consensus.heir(self.now, node);
        let is_close = has.is_some_and(|slot| slot.0 + 64 >= last.0);
        // While its image is under way its log may be whole.
        let has_state = !self.images.outgoing.contains_key(&(node, group.id));
        let has_declined = self.errands.declined.contains_key(&node);
        self.is_member(node) && is_close && has_state && !has_declined
    }

    /// A node that did not take over the last time is not asked soon: writes wait while it is.
    fn note_declined(&mut self) {
        let now = self.now;
        self.errands.declined.retain(|_, at| *at + DECLINED > now);
        let Some((id, to)) = self.errands.handed.take() else {
            return;
        };
        let leads = |group: &Group| group.consensus.is_leader();
        if self.groups.get(&id).is_some_and(leads) {
            self.errands.declined.insert(to, now);
        }
    }
}
