//! Plots that go through stages: each begins when the one before has brought about what it needs.

use esker_sim::memory::PowerCut;
use esker_sim::world::count;
use esker_volume::consensus::Message;
use esker_volume::ids::{GroupId, NodeId, Slot};
use esker_volume::wire::{Frame, Op};

use super::traps::Fate;
use super::world::{Event, World};

/// How long a node stays cut off, and how long a stage may take, in milliseconds.
const AWAY: u64 = 6_000;

/// Chosen by count (figure 8 of Raft's paper). The first leader is cut off with entries that no
/// other node has. The second one is cut off when it sends its first entry. The first one leads
/// again; a majority has its old entries then, and none of its new ballot. It is cut off, and the
/// second one, whose log ends with a later ballot, is there again.
pub(crate) struct ByCount {
    group: GroupId,
    first: NodeId,
    stage: Counting,
}

enum Counting {
    /// The first one writes, so that its next writes have a session.
    Opening { since: u64 },
    /// The first one is cut off.
    Alone,
    /// The second one is, and the first one has entries up to a slot.
    Again { second: NodeId, slot: Slot },
}

/// A request of a node's earlier life is answered in a later one, in which the node asks as many.
pub(crate) struct Lives {
    group: GroupId,
    leader: NodeId,
    asker: NodeId,
    stage: Living,
}

enum Living {
    /// The node starts, and its life is not this one.
    Starting { epoch: u64 },
    /// It asks.
    Asking,
    /// The leader has what it asked for, and sends it to nobody.
    Asked { epoch: u64 },
}

impl World {
    pub(crate) fn begin_by_count(&mut self, group: u8) -> Option<ByCount> {
        let (group, first) = self.led_by(group)?;
        if self.members.len() != 3 || !self.members.contains(&first) {
            return None;
        }
        count("by count");
        self.write_through(first);
        let since = self.now;
        let stage = Counting::Opening { since };
        Some(ByCount {
            group,
            first,
            stage,
        })
    }

    /// False where the plot has come to its end. A new stage has its time.
    pub(crate) fn by_count_on(&mut self, of: &mut ByCount, until: &mut u64) -> bool {
        match of.stage {
            Counting::Opening { since } if self.now >= since + 300 => {
                if self.led_by(of.group.0 as u8) != Some((of.group, of.first)) {
                    return false;
                }
                self.cut_off(of.first, AWAY, false);
                // So much that nothing else is in its message.
                self.write_all(of.first);
                (of.stage, *until) = (Counting::Alone, self.now + AWAY);
                true
            }
            // A node that is down comes back before its time.
            Counting::Again { second, .. } => {
                for other in self.ids() {
                    self.block(second, other, AWAY);
                }
                true
            }
            _ => true,
        }
    }

    pub(crate) fn by_count_sees(
        &mut self,
        of: &mut ByCount,
        until: &mut u64,
        (from, to): (NodeId, NodeId),
        frame: &Frame,
    ) -> Option<Fate> {
        let Frame::Consensus { group, message, .. } = frame else {
            return None;
        };
        if *group != of.group {
            return None;
        }
        match (&of.stage, message) {
            (Counting::Alone, Message::Accept { entries, .. })
                if from != of.first && !entries.is_empty() =>
            {
                count("by count: the second one leads");
                let (_, slot) = self.log_of(of.first, of.group)?;
                for other in self.ids() {
                    self.block(of.first, other, 0);
                }
                self.cut_off(from, AWAY, false);
                let second = from;
                of.stage = Counting::Again { second, slot };
                *until = self.now + AWAY;
                Some(Fate::Lost)
            }
            (
                Counting::Again { .. },
                Message::Accept {
                    ballot, entries, ..
                },
            ) if from == of.first && entries.iter().any(|meta| meta.ballot == *ballot) => {
                Some(Fate::Lost)
            }
            (Counting::Again { second, slot }, Message::Accepted { through, .. })
                if to == of.first && through >= slot =>
            {
                count("by count: a majority has the old entries");
                let second = *second;
                for other in self.ids() {
                    self.block(second, other, 0);
                }
                self.cut_off(of.first, AWAY, false);
                *until = self.now;
                Some(Fate::Kept(1))
            }
            _ => None,
        }
    }

    pub(crate) fn begin_lives(&mut self, group: u8) -> Option<Lives> {
        let (group, leader) = self.led_by(group)?;
        let others = self.members.iter().copied().filter(|id| *id != leader);
        let others: Vec<NodeId> = others.collect();
        let asker = *others.get(self.random.usize(..others.len().max(1)))?;
        count("lives");
        let epoch = self.node(asker).epoch;
        self.end_life(asker);
        Some(Lives {
            group,
            leader,
            asker,
            stage: Living::Starting { epoch },
        })
    }

    fn end_life(&mut self, id: NodeId) {
        let (epoch, down) = (self.node(id).epoch, self.random.u64(..40));
        self.after(0, Event::Cut(id, epoch, PowerCut::Kept, 0, down));
    }

    /// False where the plot has come to its end.
    pub(crate) fn lives_on(&mut self, of: &mut Lives) -> bool {
        if self.led_by(of.group.0 as u8) != Some((of.group, of.leader)) {
            return false;
        }
        let (leader, asker) = (of.leader, of.asker);
        let is_linked = self.net.link(asker, leader).is_up && self.net.link(leader, asker).is_up;
        let is_up = is_linked && self.node(asker).core.is_some();
        match of.stage {
            Living::Starting { epoch } if is_up && self.node(asker).epoch > epoch => {
                self.write_through(asker);
                of.stage = Living::Asking;
                true
            }
            Living::Asked { epoch } if is_up && self.node(asker).epoch > epoch => {
                count("lives: asked in the next one");
                self.write_through(asker);
                false
            }
            _ => true,
        }
    }

    pub(crate) fn lives_see(
        &mut self,
        of: &mut Lives,
        (from, to): (NodeId, NodeId),
        frame: &Frame,
    ) -> Option<Fate> {
        let is_asked = (from, to) == (of.asker, of.leader);
        match (&of.stage, frame) {
            (
                Living::Asking,
                Frame::Ask {
                    group,
                    op: Op::Write { .. },
                    ..
                },
            ) if is_asked && *group == of.group => {
                count("lives: asked");
                let epoch = self.node(of.asker).epoch;
                of.stage = Living::Asked { epoch };
                self.end_life(of.asker);
                Some(Fate::Kept(1))
            }
            (
                Living::Asked { .. },
                Frame::Consensus {
                    group,
                    message: Message::Accept { entries, .. },
                    ..
                },
            ) if *group == of.group && from == of.leader && !entries.is_empty() => Some(Fate::Lost),
            _ => None,
        }
    }

    /// Nothing goes between two nodes for so many milliseconds from now on.
    fn block(&mut self, one: NodeId, other: NodeId, millis: u64) {
        let until = self.now + millis;
        self.net.link(one, other).blocked_until = until;
        self.net.link(other, one).blocked_until = until;
    }
}
