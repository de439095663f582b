//! What became of a command. It follows from the commands before, so it is equal on all replicas.

use std::sync::Arc;

use crate::members::Members;

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The command took effect, or its effect was there already.
    Done,
    /// This request happened before, in an earlier slot.
    Repeated,
    /// The command did nothing.
    Refused(Refusal),
    /// The encoded outcome of a command of the system group ([`crate::system::SystemOutcome`]).
    System(Vec<u8>),
}

/// Why a command did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The session was never opened, is closed, or is forgotten.
    NoSession,
    /// The session has said that this number is answered: the command is a late duplicate.
    Answered,
    /// The session has too many requests above its lowest unanswered one.
    WindowFull,
    /// The group has no such volume.
    NoVolume,
    /// The group has no snapshot with that layer.
    NoLayer,
    /// The command contradicts itself or the state: counts that differ, a block size that is none,
    /// a command of the system group elsewhere.
    Malformed,
}

/// What [`Map::apply`](super::Map::apply) did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// What the command did.
    pub outcome: Outcome,
    /// True for a write or discard of a volume that is between its cut and its release: it is
    /// acknowledged later.
    pub held: bool,
    /// True where the command ended that state: what was held may be acknowledged.
    pub released: bool,
    /// The new members of the group, where the command was
    /// [`Command::Members`](crate::command::Command::Members).
    pub members: Option<Arc<Members>>,
}

impl Applied {
    /// An outcome without consequences for other commands.
    pub(super) fn of(outcome: Outcome) -> Applied {
        Applied {
            outcome,
            held: false,
            released: false,
            members: None,
        }
    }
}
