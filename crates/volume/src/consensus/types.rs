//! What goes into a group's protocol, and what comes out.

use std::sync::Arc;

use super::message::{Message, Meta};
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
    /// Its disk. With another one than the members say it neither leads nor counts.
    pub disk: DiskId,
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
    /// What was accepted and is lost.
    pub damage: Option<Damage>,
    /// The time.
    pub now: Time,
    /// Seed of the random parts of timeouts.
    pub seed: u64,
}

/// What a replica had accepted or promised, and has lost. Until it has what was chosen again it
/// neither leads, nor votes, nor counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Damage {
    /// Entries up to this slot at most.
    Through(Slot),
    /// Any entries and promises: what the damaged records said is not known.
    Unknown,
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
    /// With what was appended before, the log has all that was lost.
    Mended,
    /// Everything up to this slot is chosen.
    Chosen(Slot),
    /// A read may be answered from the state at this slot or later; or this replica does not lead,
    /// but that one.
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
    /// The leader hands over; or, for members: another change is under way, or the leader has just
    /// begun.
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

/// A candidate's request.
pub(super) struct Candidacy {
    pub(super) ballot: Ballot,
    /// The ballot and slot of its last entry.
    pub(super) last: (Ballot, Slot),
    pub(super) trial: bool,
    pub(super) forced: bool,
}
