//! One group of a node: its protocol, its log, and what it leads.

use std::collections::VecDeque;

use super::leader::{Leader, Origin};
use super::log::Log;
use crate::consensus::{self, Damage, Time};
use crate::ids::{Ballot, GroupId, Slot};
use crate::wire::Source;

/// A read at the leader, until the protocol allows it and the state is far enough.
#[derive(Debug, Clone)]
pub(super) struct PendingRead {
    pub(super) origin: Origin,
    pub(super) source: Source,
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) allocation: bool,
}

/// A group of this node.
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) consensus: consensus::Core,
    pub(super) log: Log,
    /// The last slot whose command the map has.
    pub(super) applied: Slot,
    /// The last slot that is known to be chosen.
    pub(super) chosen: Slot,
    /// The last slot that is durable on this disk.
    pub(super) durable: Slot,
    pub(super) leader: Leader,
    /// True while this node leads and has applied everything that was chosen before.
    pub(super) leads: bool,
    /// The slot from which on this node's own commands are applied: it may answer then.
    pub(super) ready_at: Slot,
    /// Reads that wait for the state to be at a slot.
    pub(super) reads: VecDeque<(Slot, PendingRead)>,
    /// The state is incomplete until an image is installed.
    pub(super) is_incomplete: bool,
    /// What was lost, as the disk is to say: until what mends it is there, too.
    pub(super) damage: Option<Damage>,
    /// When the state was known to have everything that the leader had.
    pub(super) was_current: Option<Time>,
    /// What the leader of this ballot had, and when it said so: the state is not that far yet.
    pub(super) told: Option<(Time, Slot, Ballot)>,
}

impl Group {
    /// The leader says that it knows what is chosen up to `chosen`.
    pub(super) fn hear(&mut self, now: Time, chosen: Slot, ballot: Ballot) {
        self.told.get_or_insert((now, chosen, ballot));
        self.note_current();
    }

    /// The state may have come to where the leader was.
    pub(super) fn note_current(&mut self) {
        let (applied, is_incomplete) = (self.applied, self.is_incomplete);
        let told = self.told.take_if(|(_, chosen, _)| *chosen <= applied);
        let Some((at, chosen, ballot)) = told.filter(|_| !is_incomplete) else {
            return;
        };
        // A new leader knows what is chosen once that has an entry of its own.
        if self.log.ballot_at(chosen) == Some(ballot) {
            self.was_current = Some(at);
        }
    }

    /// When the state was last known to have everything that was acknowledged: at a leader, when it
    /// began the last round that a majority has answered.
    pub(super) fn current(&self) -> Option<Time> {
        let led = self.consensus.confirmed().filter(|_| self.leads);
        led.max(self.was_current)
    }

    /// The slot up to which commands may be applied: chosen, and durable here, so that the map
    /// never has what the log lacks.
    pub(super) fn applicable(&self) -> Slot {
        if self.is_incomplete {
            self.applied
        } else {
            self.chosen.min(self.durable)
        }
    }
}
