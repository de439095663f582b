//! The state of a replica in one group, and what goes in and comes out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::lead::Leading;
use super::message::{Message, Meta};
use super::metas::Metas;
use crate::ids::{Ballot, DiskId, NodeId, Slot};
use crate::members::Members;

/// Milliseconds since some moment, of a clock that counts suspension and never steps back.
pub type Time = u64;

/// Bytes of the command of the entry that a new leader begins with, which does nothing.
pub const NOTHING_BYTES: u32 = 1;

/// Times and windows of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How often a leader gives a sign of life, in milliseconds.
    pub heartbeat: Time,
    /// After how long without one a follower may become a candidate, at the earliest.
    pub election: Time,
    /// What is added to that at random, at most.
    pub spread: Time,
    /// By how much the clocks of two nodes may differ in speed, in percent.
    pub drift_percent: u8,
    /// Bytes of commands that are under way to a follower.
    pub window_bytes: usize,
    /// Bytes of commands of one message; a single entry may have more.
    pub message_bytes: usize,
    /// Reads are allowed by lease. Without, each asks a majority.
    pub lease: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            heartbeat: 100,
            election: 600,
            spread: 300,
            drift_percent: 10,
            window_bytes: 8 << 20,
            message_bytes: 1 << 20,
            lease: true,
        }
    }
}

/// What a replica starts with, from its disk.
#[derive(Debug, Clone)]
pub struct Start {
    /// The node.
    pub node: NodeId,
    /// Its ballot.
    pub ballot: Ballot,
    /// Whom it has promised in this ballot.
    pub vote: Option<NodeId>,
    /// The last entry before the log.
    pub base: (Slot, Ballot),
    /// The log.
    pub log: Vec<Meta>,
    /// What is known to be chosen, at least the base.
    pub chosen: Slot,
    /// The members as of the base.
    pub members: Arc<Members>,
    /// Entries up to this slot may have been accepted and are lost.
    pub damaged_through: Option<Slot>,
    /// The time.
    pub now: Time,
    /// Seed of the random parts of timeouts.
    pub seed: u64,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send a message.
    Send {
        /// To whom.
        to: NodeId,
        /// The message.
        message: Message,
        /// Only once everything that was appended before is durable.
        after_sync: bool,
    },
    /// Append to the log on disk what was promised.
    Vote {
        /// The ballot.
        ballot: Ballot,
        /// Whom.
        vote: Option<NodeId>,
    },
    /// Append entries to the log on disk. They replace those from the first one's slot on.
    Append(Vec<Meta>),
    /// Everything up to this slot is chosen.
    Chosen(Slot),
    /// A read may be answered from the state at this slot or later; or this replica does not lead, but that one.
    Read {
        /// The read.
        ticket: u64,
        /// The slot, or the leader.
        result: Result<Slot, Option<NodeId>>,
    },
    /// The role, or the leader that is known, has changed.
    Leadership,
    /// The follower is behind the log: it needs an image of the state.
    NeedsImage(NodeId),
}

/// Why a command was not proposed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposeError {
    /// Another replica leads, if one is known.
    NotLeader {
        /// That one.
        leader: Option<NodeId>,
    },
    /// The leader hands over; or, for members: another change is under way, or the leader has just begun.
    Busy,
    /// More than one voter differs from the present members.
    TooMany,
}

/// What a replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It follows a leader, or waits for one.
    Follower,
    /// It asks for promises.
    Candidate,
    /// It leads.
    Leader,
}

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
    pub(super) ballot: Ballot,
    pub(super) vote: Option<NodeId>,
    pub(super) log: Metas,
    pub(super) chosen: Slot,
    /// Up to where the log is durable here.
    pub(super) durable: Slot,
    pub(super) state: State,
    pub(super) leader: Option<NodeId>,
    /// When the leader was heard last; at first the start, since a leader may have been heard just before.
    pub(super) heard: Time,
    /// When it becomes a candidate.
    pub(super) deadline: Time,
    pub(super) damaged_through: Option<Slot>,
    /// The disk failed.
    pub(super) is_out: bool,
    /// The state is not there: it is being replaced by an image.
    pub(super) is_incomplete: bool,
    /// The node's disk: it is a member only with the one that it had when it became one.
    pub(super) disk: Option<DiskId>,
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
            ballot: start.ballot,
            vote: start.vote,
            chosen: start.chosen.max(start.base.0),
            durable: log.last().0,
            log,
            state: State::Follower,
            leader: None,
            heard: start.now,
            deadline: 0,
            damaged_through: start.damaged_through,
            is_out: false,
            is_incomplete: false,
            disk: None,
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
        if self.is_out || from == self.node {
            return;
        }
        match message {
            Message::Prepare {
                ballot,
                last,
                trial,
                forced,
            } => {
                self.prepare(now, from, (ballot, last), trial, forced, out);
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
                round,
            } => {
                if self.follow(now, from, ballot, round, out) {
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
            } => {
                if self.is_about_me(now, ballot, out) {
                    self.refused(now, from, hint, round, out);
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

    /// Names the node's disk. A node whose place among the members was another disk's does not lead: what that one accepted
    /// is not here. Without, any disk is the member's.
    pub fn set_disk(&mut self, disk: DiskId) {
        self.disk = Some(disk);
    }

    /// Whether the state is incomplete until an image is installed: such a replica does not lead, since only a leader sends
    /// images.
    pub fn set_incomplete(&mut self, is_incomplete: bool) {
        self.is_incomplete = is_incomplete;
    }

    /// The caller has dropped the log up to `base`, which is chosen.
    pub fn cut(&mut self, base: Slot) {
        self.log.cut(base.min(self.chosen));
    }

    /// The state is now as of `base`, by an image. Entries behind it stay where the log has the image's last one: they may have
    /// been accepted. In any other log they do not follow from what was chosen.
    pub fn image_installed(
        &mut self,
        now: Time,
        base: (Slot, Ballot),
        members: Arc<Members>,
        out: &mut Vec<Output>,
    ) {
        if matches!(self.state, State::Leader(_)) || base.0 < self.log.base().0 {
            return;
        }
        if self.log.ballot_at(base.0) == Some(base.1) {
            self.log.cut(base.0);
            self.durable = self.durable.max(base.0);
        } else {
            self.log = Metas::new(base, members);
            self.durable = base.0;
        }
        self.chosen = self.chosen.max(base.0);
        self.put_off(now);
        out.push(Output::Chosen(base.0));
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
        self.damaged_through.is_some()
    }

    /// True where a value that each member has is reached by a majority: the largest such.
    pub(super) fn majority_of(&self, values: &BTreeMap<NodeId, u64>) -> Option<u64> {
        let members = self.log.members();
        let mut all: Vec<u64> = members
            .voters()
            .filter_map(|node| values.get(&node).copied())
            .collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.get(members.majority() - 1).copied()
    }
}
