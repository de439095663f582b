//! Traps: what happens to a node at the moment that it sends a certain message. Defects of
//! elections and of recovery show only when several things come together within milliseconds, which
//! steps at random times rarely do.

use esker_sim::memory::PowerCut;
use esker_sim::world::count;
use esker_volume::consensus::Message;
use esker_volume::ids::{GroupId, NodeId};
use esker_volume::wire::{Change, Frame, Op};

use super::action::{By, What};
use super::world::{Event, World};

/// The message that a trap waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cue {
    /// A candidate asks for promises, not as a trial.
    Prepare,
    /// A promise is given.
    Promise,
    /// A leader sends entries.
    Entries,
    /// A follower has accepted entries.
    Accepted,
    /// A leader hands over.
    Lead,
    /// A request goes to a group's leader.
    Ask,
    /// A command of the system group's leader goes to a group's leader.
    Errand,
    /// A change of members goes to a group's leader.
    Member,
    /// The answer to a request.
    Answer,
    /// A piece of an image.
    Image,
    /// All of an image is installed.
    Installed,
}

pub(crate) const CUES: [Cue; 11] = [
    Cue::Prepare,
    Cue::Promise,
    Cue::Entries,
    Cue::Accepted,
    Cue::Lead,
    Cue::Ask,
    Cue::Errand,
    Cue::Member,
    Cue::Answer,
    Cue::Image,
    Cue::Installed,
];

/// What happens then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The message arrives so many milliseconds later, behind others.
    Hold(u16),
    /// It is lost.
    Lose,
    /// The sender's power is cut, and comes back after some milliseconds.
    Crash(PowerCut, u8, u16),
    /// The sender's map is written, and its power cut for some milliseconds.
    FlushCut(u16),
    /// The sender is cut off once the message is on its way.
    Isolate(u16),
    /// The sender stands still.
    Pause(u16),
    /// The message is lost, and the sender's power is cut.
    LoseCrash(u16),
    /// The message is lost, and the sender is cut off.
    LoseIsolate(u16),
}

/// A trap.
#[derive(Debug)]
pub(crate) struct Trap {
    /// None where any node springs it.
    node: Option<NodeId>,
    cue: Cue,
    /// None where the message may be of any group.
    group: Option<GroupId>,
    /// Messages that pass before.
    skip: u8,
    then: Then,
    /// The node that was cut off until then. Other traps that would end that are given up.
    frees: Option<NodeId>,
}

/// What becomes of a message.
pub(crate) enum Fate {
    Sent,
    Lost,
    /// So much later, unless the link breaks.
    Held(u64),
    /// So much later.
    Kept(u64),
}

/// How many milliseconds after the beginning of a duel each round of it comes.
const ROUNDS: [u64; 8] = [15, 40, 80, 140, 220, 350, 500, 650];

fn is_cue(frame: &Frame, cue: Cue, of: Option<GroupId>) -> bool {
    match frame {
        Frame::Consensus { group, .. } if of.is_some_and(|of| of != *group) => false,
        Frame::Consensus { message, .. } => match message {
            Message::Prepare { trial, .. } => cue == Cue::Prepare && !trial,
            Message::Promise { trial, granted, .. } => cue == Cue::Promise && !trial && *granted,
            Message::Accept { entries, .. } => cue == Cue::Entries && !entries.is_empty(),
            Message::Accepted { .. } => cue == Cue::Accepted,
            Message::Lead { .. } => cue == Cue::Lead,
            Message::Refused { .. } => false,
        },
        Frame::Ask { op, .. } => match op {
            Op::Command(_) => cue == Cue::Errand,
            Op::Member {
                change: Change::Add(..) | Change::Promote(_) | Change::Remove(_),
                since: Some(_),
            } => cue == Cue::Member,
            _ => cue == Cue::Ask,
        },
        Frame::Answer { .. } => cue == Cue::Answer,
        Frame::Image { .. } => cue == Cue::Image,
        _ => false,
    }
}

impl World {
    pub(crate) fn lay_trap(&mut self, node: u8, cue: Cue, skip: u8, then: Then) {
        let node = (node < 6).then(|| self.pick(node));
        self.traps.push(Trap {
            node,
            cue,
            group: None,
            skip,
            then,
            frees: None,
        });
    }

    /// No two nodes lead in one ballot.
    pub(crate) fn watch_leaders(&mut self, from: NodeId, bytes: &[u8]) {
        if let Some((group, ballot)) = led(bytes) {
            let first = *self.leaders.entry((group, ballot)).or_insert(from);
            assert_eq!(
                first, from,
                "group {group} has two leaders of ballot {ballot}"
            );
        }
    }

    /// Springs the traps that wait for a message, which is on its way.
    pub(crate) fn watch(&mut self, from: NodeId, bytes: &[u8]) -> Fate {
        if self.traps.is_empty() || self.is_healed {
            return Fate::Sent;
        }
        let is_of = |trap: &Trap| trap.node.is_none_or(|node| node == from);
        let Some(frame) = self.traps.iter().any(is_of).then(|| Frame::decode(bytes)) else {
            return Fate::Sent;
        };
        let Some(frame) = frame else {
            return Fate::Sent;
        };
        let mut sprung = None;
        let installs = self.has_installed(from, &frame);
        for (at, trap) in self.traps.iter_mut().enumerate() {
            let is_cue = match trap.cue {
                Cue::Installed => installs.is_some_and(|of| trap.group.is_none_or(|g| g == of)),
                cue => is_cue(&frame, cue, trap.group),
            };
            if !is_of(trap) || !is_cue {
                continue;
            }
            match trap.skip.checked_sub(1) {
                Some(skip) => trap.skip = skip,
                None => sprung = sprung.or(Some(at)),
            }
        }
        let Some(at) = sprung else {
            return Fate::Sent;
        };
        let trap = self.traps.remove(at);
        self.spring(from, &trap)
    }

    /// The group of which the frame says that its sender has installed all of an image.
    fn has_installed(&self, from: NodeId, frame: &Frame) -> Option<GroupId> {
        let Frame::ImageNext { group, piece, .. } = frame else {
            return None;
        };
        let core = self.nodes[from.0 as usize - 1].core.as_ref()?;
        let is_whole = !core.readers().0.is_incomplete(*group);
        (is_whole && *piece > 0 && *piece < u64::MAX).then_some(*group)
    }

    fn spring(&mut self, id: NodeId, trap: &Trap) -> Fate {
        count("trap");
        self.say(|| format!("node {id}: {trap:?}"));
        if let Some(free) = trap.frees {
            self.traps.retain(|other| other.frees.is_none());
            // The one that is cut off now is free when that one fails.
            let traps = self.traps.iter_mut();
            traps
                .filter(|other| other.node == Some(free) && other.group == trap.group)
                .for_each(|other| other.frees = Some(id));
            for other in self.ids() {
                self.net.link(free, other).blocked_until = 0;
                self.net.link(other, free).blocked_until = 0;
            }
        }
        let epoch = self.node(id).epoch;
        match trap.then {
            Then::Hold(millis) => return Fate::Held(u64::from(millis)),
            Then::Lose => return Fate::Lost,
            Then::Crash(mode, calls, down) => {
                let (calls, down) = (u64::from(calls), u64::from(down));
                self.after(0, Event::Cut(id, epoch, mode, calls, down));
            }
            Then::FlushCut(down) => {
                self.after(0, Event::FlushCut(id, epoch, u64::from(down)));
            }
            Then::Isolate(millis) => {
                self.after(0, Event::CutOff(id, u64::from(millis)));
                self.after(1, Event::Duel(id, 0));
            }
            Then::Pause(millis) => {
                self.after(0, Event::Stand(id, epoch, u64::from(millis)));
            }
            Then::LoseCrash(down) => {
                let mode = PowerCut::Kept;
                self.after(0, Event::Cut(id, epoch, mode, 0, u64::from(down)));
                return Fate::Lost;
            }
            Then::LoseIsolate(millis) => {
                self.cut_off(id, u64::from(millis), false);
                return Fate::Lost;
            }
        }
        Fate::Sent
    }

    pub(crate) fn led_by(&self, group: u8) -> Option<(GroupId, NodeId)> {
        let group = u16::from(group) % (self.settings.groups + 1);
        let leads = |core: &esker_volume::node::Core| {
            let groups = core.status().groups;
            let found = groups.iter().find(|found| found.group == group);
            found
                .map(|found| NodeId(found.leader))
                .filter(|id| id.0 > 0)
        };
        let mut cores = self.nodes.iter().filter_map(|node| node.core.as_ref());
        let leader = cores.find_map(leads)?;
        let is_up = self.nodes.get(leader.0 as usize - 1)?.core.is_some();
        is_up.then_some((GroupId(group), leader))
    }

    pub(crate) fn trap(
        &mut self,
        node: NodeId,
        (cue, group): (Cue, GroupId),
        skip: u8,
        then: Then,
        frees: Option<NodeId>,
    ) {
        self.traps.push(Trap {
            node: Some(node),
            cue,
            group: Some(group),
            skip,
            then,
            frees,
        });
    }

    /// Three elections (figure 8 of Raft's paper): a leader is cut off with entries that no other
    /// has, the next one when it is about to send its first entry, and the first one leads again
    /// and fails while it sends its entries. Then the second one is there again.
    pub(crate) fn three_elections(&mut self, group: u8, skip: u8, down: u16) {
        if let Some((group, leader)) = self.led_by(group) {
            // The writes that come then have a session.
            self.write_through(leader);
            self.after(300, Event::Elections(group, leader, skip, down));
        }
    }

    pub(crate) fn elections(&mut self, group: GroupId, leader: NodeId, skip: u8, down: u16) {
        if self.led_by(group.0 as u8) != Some((group, leader)) {
            return;
        }
        count("three elections");
        self.cut_off(leader, 4000, false);
        // So much that nothing else is in its message.
        self.write_all(leader);
        for id in self.members.clone() {
            let (then, frees) = if id == leader {
                // Cut off, it goes on to take for chosen what it took.
                let then = if self.random.bool() {
                    Then::LoseCrash(down)
                } else {
                    Then::LoseIsolate(down)
                };
                (then, None)
            } else {
                (Then::LoseIsolate(6000), Some(leader))
            };
            let skip = if id == leader { skip } else { 0 };
            self.trap(id, (Cue::Entries, group), skip, then, frees);
        }
    }

    /// The power of a leader whose disk is slow is cut, when its map was just written.
    pub(crate) fn flush_and_cut(&mut self, group: u8, millis: u16, down: u16) {
        let Some((_, leader)) = self.led_by(group) else {
            return;
        };
        count("flushed and cut");
        let node = self.node(leader);
        node.slow = u64::from(millis);
        let epoch = node.epoch;
        self.after(
            u64::from(millis) / 2,
            Event::FlushCut(leader, epoch, u64::from(down)),
        );
    }

    /// The leader of a group is cut off, and asked for what the others write.
    pub(crate) fn duel(&mut self, group: u8, millis: u16, hands_over: bool) {
        let Some((group, leader)) = self.led_by(group) else {
            return;
        };
        count("duel");
        if hands_over {
            // Handed over to another, and cut off when it has said so.
            let then = Then::Isolate(millis);
            self.trap(leader, (Cue::Lead, group), 0, then, None);
            let to = self.random.u8(..8);
            return self.transfer(group.0 as u8, to);
        }
        let breaks = self.random.bool();
        self.cut_off(leader, u64::from(millis), breaks);
        self.after(1, Event::Duel(leader, 0));
    }

    /// Another node writes, and this one and another one read: of each area.
    pub(crate) fn duel_on(&mut self, id: NodeId, round: usize) {
        let Some(wait) = ROUNDS.get(round) else {
            return;
        };
        let before = round.checked_sub(1).and_then(|at| ROUNDS.get(at));
        let pause = wait - before.copied().unwrap_or(0);
        self.after(pause, Event::Duel(id, round + 1));
        let old = (id.0 - 1) as u8;
        let other = old.wrapping_add(1 + self.random.u8(..2));
        for area in self.areas(0) {
            // Of one block, the same one each time.
            let sectors = u64::from(self.settings.block_size) / super::clients::SECTOR;
            let at = area.start..area.start + sectors;
            for (node, is_write) in [(other, true), (old, false), (other, false)] {
                let by = By {
                    node,
                    connection: 5,
                    wait: 400,
                    direct: false,
                };
                let what = if is_write {
                    What::Write(by, Default::default())
                } else {
                    What::Read(by, Default::default())
                };
                self.ask(by, &what, 0, at.clone());
            }
        }
    }
}

/// The group and ballot that the sender of a frame leads.
fn led(bytes: &[u8]) -> Option<(GroupId, u64)> {
    const CONSENSUS: u8 = 3;
    const ACCEPT: u8 = 2;
    let from = &mut esker_coding::Reader::new(bytes);
    let is_consensus = from.u8()? == CONSENSUS;
    let group = is_consensus.then(|| from.varint()).flatten()?;
    let is_accept = from.u8()? == ACCEPT;
    let ballot = is_accept.then(|| from.varint()).flatten()?;
    Some((GroupId(u16::try_from(group).ok()?), ballot))
}
