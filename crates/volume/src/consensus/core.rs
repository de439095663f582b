//! The state of a replica in one group, and which message goes where.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::message::{Message, Meta};
use super::metas::Metas;
use super::progress::Leading;
use super::types::{Candidacy, Damage, Output, Role, Settings, Start, Time};
use crate::ids::{Ballot, DiskId, NodeId, Slot};
use crate::members::Members;

/// The state of the role.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum State {
    Follower,
    /// Asks for promises of the next ballot, as a trial.
    Trial(BTreeSet<NodeId>),
    /// Asks for promises of its ballot.
    Candidate(BTreeSet<NodeId>),
    Leader(Box<Leading>),
}

/// A replica's part in one group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Core {
    pub(super) settings: Settings,
    pub(super) node: NodeId,
    disk: DiskId,
    pub(super) ballot: Ballot,
    pub(super) vote: Option<NodeId>,
    pub(super) log: Metas,
    pub(super) chosen: Slot,
    /// Up to where the log is durable here.
    pub(super) durable: Slot,
    pub(super) state: State,
    pub(super) leader: Option<NodeId>,
    /// When the leader was heard last; at first the start, since a leader may have been heard just
    /// before.
    pub(super) heard: Time,
    /// When it becomes a candidate.
    pub(super) deadline: Time,
    pub(super) damage: Option<Damage>,
    /// Where the damage is not known: the slot behind all that the leader of this ballot had when
    /// it was heard first.
    pub(super) mended_at: Option<(Ballot, Slot)>,
    /// The disk failed.
    pub(super) is_out: bool,
    seed: u64,
}

impl Core {
    /// A replica that starts.
    pub fn new(settings: Settings, start: Start) -> Core {
        let mut log = Metas::new(start.base, start.members);
        for meta in start.log {
            if !log.push(meta) {
                debug_assert!(false, "the log has no gap");
                break;
            }
        }
        let mut core = Core {
            settings,
            node: start.node,
            disk: start.disk,
            ballot: start.ballot,
            vote: start.vote,
            chosen: start.chosen.max(start.base.0),
            durable: log.last().0,
            log,
            state: State::Follower,
            leader: None,
            heard: start.now,
            deadline: 0,
            damage: start.damage,
            mended_at: None,
            is_out: false,
            seed: start.seed,
        };
        core.put_off(start.now);
        core
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.is_out {
            return;
        }
        match &self.state {
            State::Leader(_) => self.tick_leader(now, out),
            _ if now >= self.deadline => self.try_to_lead(now, out),
            _ => {}
        }
    }

    /// A message has come.
    pub fn receive(&mut self, now: Time, from: NodeId, message: Message, out: &mut Vec<Output>) {
        if from == self.node || !message.is_plausible() {
            return;
        }
        if self.is_out {
            return self.overhear(now, from, &message, out);
        }
        match message {
            Message::Prepare {
                ballot,
                last,
                trial,
                forced,
            } => {
                let asked = Candidacy {
                    ballot,
                    last,
                    trial,
                    forced,
                };
                self.prepare(now, from, asked, out);
            }
            Message::Promise {
                ballot,
                trial,
                granted,
            } => {
                self.promise(now, from, ballot, trial, granted, out);
            }
            Message::Accept {
                ballot,
                previous,
                entries,
                chosen,
                last,
                round,
            } => {
                if self.follow(now, from, ballot, out) {
                    self.note_last(last);
                    self.accept(from, previous, entries, chosen, round, out);
                }
            }
            Message::Accepted {
                ballot,
                through,
                round,
                damaged,
            } => {
                if self.is_about_me(now, ballot, out) {
                    self.accepted(now, from, through, round, damaged, out);
                }
            }
            Message::Refused {
                ballot,
                hint,
                round,
                damaged,
            } => {
                if self.is_about_me(now, ballot, out) {
                    self.refused(now, from, hint, round, damaged, out);
                }
            }
            Message::Lead { ballot } => {
                let is_mine = ballot == self.ballot && self.leader == Some(from);
                if is_mine && self.may_lead() {
                    self.campaign(now, true, out);
                }
            }
        }
    }

    /// A replica that has stepped back still knows whom to send requests to.
    fn overhear(&mut self, now: Time, from: NodeId, message: &Message, out: &mut Vec<Output>) {
        let Message::Accept { ballot, .. } = message else {
            return;
        };
        if *ballot < self.ballot {
            return;
        }
        // Of no weight: what this replica has promised is of no use any more.
        (self.ballot, self.heard) = (*ballot, now);
        if self.leader != Some(from) {
            self.leader = Some(from);
            out.push(Output::Leadership);
        }
    }

    /// True for an answer to this leader. A higher ballot ends its leadership.
    fn is_about_me(&mut self, now: Time, ballot: Ballot, out: &mut Vec<Output>) -> bool {
        if ballot > self.ballot {
            self.adopt(now, ballot, out);
            return false;
        }
        ballot == self.ballot && matches!(self.state, State::Leader(_))
    }

    /// A higher ballot is known: whatever this replica was, it is a follower.
    pub(super) fn adopt(&mut self, now: Time, ballot: Ballot, out: &mut Vec<Output>) {
        (self.ballot, self.vote) = (ballot, None);
        out.push(Output::Vote { ballot, vote: None });
        self.step_down(now, out);
    }

    /// Becomes a follower without a known leader.
    pub(super) fn step_down(&mut self, now: Time, out: &mut Vec<Output>) {
        let was = std::mem::replace(&mut self.state, State::Follower);
        self.leader = None;
        self.put_off(now);
        if let State::Leader(leading) = was {
            for ticket in leading.waiting_reads() {
                out.push(Output::Read {
                    ticket,
                    result: Err(None),
                });
            }
        }
        out.push(Output::Leadership);
    }

    /// Puts the next candidacy off.
    pub(super) fn put_off(&mut self, now: Time) {
        let spread = self.random(self.settings.spread);
        self.deadline = now + self.settings.election + spread;
    }

    /// A number up to `most`, from a sequence that the seed determines (splitmix64).
    pub(super) fn random(&mut self, most: u64) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % (most + 1)
    }

    /// The disk failed: this replica neither leads, votes nor accepts any more.
    pub fn step_back(&mut self, out: &mut Vec<Output>) {
        self.is_out = true;
        self.step_down(self.heard, out);
    }

    /// The entries from `slot` on, which are not state yet, cannot be read any more. Until they are
    /// there again this replica does not count, and it does not lead.
    pub fn lost(&mut self, now: Time, slot: Slot, out: &mut Vec<Output>) {
        let last = self.log.last().0;
        if slot <= self.log.base().0 || slot > last {
            return;
        }
        self.log.truncate(slot);
        self.durable = self.durable.min(slot.previous());
        self.damage = self.damage.max(Some(Damage::Through(last)));
        if matches!(self.state, State::Follower) {
            return;
        }
        self.step_down(now, out);
    }

    /// The caller has dropped the log up to `base`, which is chosen.
    pub fn cut(&mut self, base: Slot) {
        self.log.cut(base.min(self.chosen));
    }

    /// The state is now as of `base`, by an image. The log goes on behind it where it has the entry
    /// of that slot and ballot, and is empty otherwise.
    pub fn image_installed(
        &mut self,
        now: Time,
        base: (Slot, Ballot),
        members: Arc<Members>,
        out: &mut Vec<Output>,
    ) {
        if base.0 < self.log.base().0 {
            return;
        }
        if self.log.ballot_at(base.0) == Some(base.1) {
            // What was accepted behind it counts at the leader: it stays.
            self.log.cut(base.0);
            self.durable = self.durable.max(base.0);
        } else {
            if matches!(self.state, State::Leader(_)) {
                // It lacks what was chosen, so a later ballot has a leader.
                self.step_down(now, out);
            }
            self.log = Metas::new(base, members);
            self.durable = base.0;
        }
        self.chosen = self.chosen.max(base.0);
        self.put_off(now);
        out.push(Output::Chosen(self.chosen));
    }

    /// What this replica is.
    pub fn role(&self) -> Role {
        match self.state {
            State::Follower | State::Trial(_) => Role::Follower,
            State::Candidate(_) => Role::Candidate,
            State::Leader(_) => Role::Leader,
        }
    }

    /// True where it leads.
    pub fn is_leader(&self) -> bool {
        self.role() == Role::Leader
    }

    /// The leader, where one is known.
    pub fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    /// The ballot.
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Whom it has promised in this ballot.
    pub fn vote(&self) -> Option<NodeId> {
        self.vote
    }

    /// What is known to be chosen.
    pub fn chosen(&self) -> Slot {
        self.chosen
    }

    /// The last entry of the log.
    pub fn last(&self) -> (Slot, Ballot) {
        self.log.last()
    }

    /// The last entry before the log.
    pub fn base(&self) -> (Slot, Ballot) {
        self.log.base()
    }

    /// An entry of the log.
    pub fn meta(&self, slot: Slot) -> Option<&Meta> {
        self.log.get(slot)
    }

    /// The members in force: those of the last entry that changes them, chosen or not.
    pub fn members(&self) -> &Arc<Members> {
        self.log.members()
    }

    /// The members as of the entry at `slot`: those that entries behind it bring do not count.
    pub fn members_at(&self, slot: Slot) -> &Arc<Members> {
        self.log.members_at(slot)
    }

    /// True where the members in force are known to be chosen.
    pub fn has_chosen_members(&self) -> bool {
        self.log.members_since() <= self.chosen
    }

    /// At the leader, up to where a member has the log.
    pub fn matched(&self, node: NodeId) -> Option<Slot> {
        match &self.state {
            State::Leader(_) if node == self.node => Some(self.durable),
            State::Leader(leading) => leading.matched(node),
            _ => None,
        }
    }

    /// True until what was lost is there again.
    pub fn is_damaged(&self) -> bool {
        self.damage.is_some()
    }

    /// What was lost and is not there again.
    pub fn damage(&self) -> Option<Damage> {
        self.damage
    }

    /// True where this replica, with its disk, is a voter.
    pub(super) fn is_voter_of(&self, members: &Members) -> bool {
        let mine = members
            .get(self.node)
            .filter(|member| member.disk == self.disk);
        mine.is_some_and(|member| members.is_voter(member.node))
    }

    /// True where a value that each member has is reached by a majority: the largest such.
    pub(super) fn majority_of(&self, values: &BTreeMap<NodeId, u64>) -> Option<u64> {
        let members = self.log.members();
        let counts = self.is_voter_of(members);
        let mut all: Vec<u64> = members
            .voters()
            .filter(|node| counts || *node != self.node)
            .filter_map(|node| values.get(&node).copied())
            .collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.get(members.majority() - 1).copied()
    }

    #[cfg(test)]
    pub(super) fn node_id(&self) -> NodeId {
        self.node
    }

    /// Stands for election now, without a trial: for tests without time.
    #[cfg(test)]
    pub(super) fn stand_now(&mut self, out: &mut Vec<Output>) {
        if self.may_lead() {
            self.campaign(0, true, out);
        }
    }
}
