//! What a leader knows of the other members.

use std::collections::{BTreeMap, VecDeque};

use super::rounds::Rounds;
use super::types::Time;
use crate::ids::{NodeId, Slot};

/// What a leader knows of another member.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Progress {
    /// Up to where it has the log.
    pub(super) matched: Slot,
    /// What is sent next.
    pub(super) next: Slot,
    /// What is under way: the last slot and the bytes of each message.
    pub(super) under_way: VecDeque<(Slot, usize)>,
    pub(super) under_way_bytes: usize,
    /// Where its log is the leader's is not known: one message at a time.
    pub(super) is_probing: bool,
    /// It needs an image, which was asked for.
    pub(super) needs_image: bool,
    pub(super) is_damaged: bool,
    /// When it answered last.
    pub(super) heard: Time,
    /// The last round that it answered.
    pub(super) round: u64,
}

impl Progress {
    pub(super) fn new(next: Slot, now: Time) -> Progress {
        Progress {
            matched: Slot(0),
            next,
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            is_probing: true,
            needs_image: false,
            is_damaged: false,
            heard: now,
            round: 0,
        }
    }

    /// It has the log up to `through`, or said so before it said more.
    pub(super) fn has(&mut self, through: Slot) {
        self.matched = self.matched.max(through);
        let matched = self.matched;
        // A sign of life that says nothing of what is probed does not end the probing.
        if matched.next() >= self.next {
            self.is_probing = false;
        }
        self.next = self.next.max(matched.next());
        let is_there = |(slot, _): &mut (Slot, usize)| *slot <= matched;
        while let Some((_, bytes)) = self.under_way.pop_front_if(is_there) {
            self.under_way_bytes -= bytes;
        }
    }

    pub(super) fn forget_under_way(&mut self) {
        self.under_way.clear();
        self.under_way_bytes = 0;
    }
}

/// Leadership is being handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Transfer {
    pub(super) to: NodeId,
    /// When it is given up.
    pub(super) until: Time,
    /// The request was sent.
    pub(super) is_asked: bool,
}

/// A leadership.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Leading {
    pub(super) members: BTreeMap<NodeId, Progress>,
    /// The first entry of this ballot.
    pub(super) first: Slot,
    pub(super) reads: Rounds,
    pub(super) next_heartbeat: Time,
    pub(super) transfer: Option<Transfer>,
    /// Another member was asked to lead once: it may be elected at any time from now on, until this
    /// one leads in a later ballot.
    pub(super) is_giving_up: bool,
}

impl Leading {
    pub(super) fn waiting_reads(&self) -> Vec<u64> {
        self.reads.tickets()
    }

    pub(super) fn matched(&self, node: NodeId) -> Option<Slot> {
        self.members.get(&node).map(|progress| progress.matched)
    }
}
