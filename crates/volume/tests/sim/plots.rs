//! Plots: what has to come together for a defect to show, where chance would bring it together once
//! in thousands of runs. A plot watches messages and time, and gives up when the cluster goes
//! another way. One runs at a time.

use esker_sim::memory::PowerCut;
use esker_sim::world::count;
use esker_volume::command::Command;
use esker_volume::consensus::Message;
use esker_volume::ids::{GroupId, NodeId, Slot, VolumeId};
use esker_volume::node::input::Input;
use esker_volume::system::{Source, group_at};
use esker_volume::wire::{Change, Frame, Op};

use super::action::{By, What};
use super::clients::SECTOR;
use super::scenes::{ByCount, Lives};
use super::traps::{Cue, Fate, Then};
use super::world::{Event, World};

/// How often a plot looks at the cluster, in milliseconds, and after how many it gives up.
const LOOK: u64 = 10;
const PATIENCE: u64 = 6_000;

/// A frame that was seen: from where, to where, and for which group.
struct Copy {
    from: NodeId,
    to: NodeId,
    group: GroupId,
    bytes: Vec<u8>,
}

/// What a plot does.
enum Kind {
    /// Two candidates for one ballot. The leader hands over and its power is cut; its heir stands
    /// still and takes the message late. Another node becomes a candidate meanwhile: who votes for
    /// that one has its power cut, and is asked by the heir then.
    Votes {
        group: GroupId,
        leader: NodeId,
        heir: NodeId,
        lead: Option<Vec<u8>>,
        voters: Vec<NodeId>,
    },
    /// The release of a snapshot arrives once more, while the next snapshot is being taken: one
    /// group is cut, another one is not.
    Release {
        volume: usize,
        /// The snapshots.
        first: usize,
        second: Option<usize>,
        copies: Vec<Copy>,
        /// The group that was cut, since when, and the writes to it.
        cut: Option<(GroupId, u64)>,
        writes: Vec<usize>,
    },
    /// The removal of a member arrives once more, when the node is a member again.
    Removal { stage: u8, copies: Vec<Copy> },
    /// A node gets an image, and the log as well, from a leader that has more of it. With `rots`
    /// the victim leads, and what it wrote last has rotted when it is to send it.
    Image {
        group: GroupId,
        behind: NodeId,
        is_back: bool,
        rots: bool,
    },
    /// A leader reaches no voter, only a learner.
    Learner,
    /// The map of a node is written, and its power is cut, when vacuum moves blocks while a batch
    /// is under way, at the end of that.
    Moved { of: Option<NodeId> },
    /// An entry that a majority has, of an earlier ballot.
    ByCount(ByCount),
    /// An answer that comes in a later life.
    Lives(Lives),
}

/// A plot.
pub(crate) struct Plot {
    kind: Kind,
    until: u64,
}

impl World {
    /// Begins a plot, unless one runs.
    pub(crate) fn plot(&mut self, kind: u8, group: u8) {
        if self.plot.is_some() || self.is_healed {
            return;
        }
        let kind = match kind {
            0 => self.plot_votes(group),
            1 => self.plot_release(group),
            2 => self.plot_removal(),
            3 => self.plot_image(group, false),
            4 => self.plot_learner(),
            6 => self.plot_image(group, true),
            7 => self.begin_by_count(group).map(Kind::ByCount),
            8 => self.begin_lives(group).map(Kind::Lives),
            _ => Some(Kind::Moved { of: None }),
        };
        if let Some(kind) = kind {
            let until = self.now + PATIENCE;
            self.plot = Some(Plot { kind, until });
            self.after(LOOK, Event::Plot);
        }
    }

    fn plot_votes(&mut self, group: u8) -> Option<Kind> {
        let (group, leader) = self.led_by(group)?;
        let others: Vec<NodeId> = self.members.iter().copied().collect();
        let others: Vec<NodeId> = others.into_iter().filter(|id| *id != leader).collect();
        if others.len() < 2 {
            return None;
        }
        let heir = others[self.random.usize(..others.len())];
        self.transfer(group.0 as u8, (heir.0 - 1) as u8);
        let (lead, voters) = (None, Vec::new());
        Some(Kind::Votes {
            group,
            leader,
            heir,
            lead,
            voters,
        })
    }

    fn plot_release(&mut self, volume: u8) -> Option<Kind> {
        let first = self.snapshots.len();
        self.take_snapshot(volume);
        let volume = self.snapshots.get(first)?.volume;
        Some(Kind::Release {
            volume,
            first,
            second: None,
            copies: Vec::new(),
            cut: None,
            writes: Vec::new(),
        })
    }

    fn plot_removal(&mut self) -> Option<Kind> {
        if !self.settings.spare || self.changing.is_some() {
            return None;
        }
        let last = NodeId(self.settings.nodes + 1);
        if !self.members.contains(&last) {
            self.join(false);
        }
        let copies = Vec::new();
        Some(Kind::Removal { stage: 0, copies })
    }

    fn plot_image(&mut self, group: u8, rots: bool) -> Option<Kind> {
        let (group, mut leader) = self.led_by(group)?;
        if rots {
            leader = self.victim();
            self.transfer(group.0 as u8, (leader.0 - 1) as u8);
        }
        let others: Vec<NodeId> = self.members.iter().copied().collect();
        let others: Vec<NodeId> = others.into_iter().filter(|id| *id != leader).collect();
        let behind = *others.get(self.random.usize(..others.len().max(1)))?;
        self.cut_off(behind, PATIENCE, false);
        let is_back = false;
        Some(Kind::Image {
            group,
            behind,
            is_back,
            rots,
        })
    }

    fn plot_learner(&mut self) -> Option<Kind> {
        let last = NodeId(self.settings.nodes + 1);
        let is_free = self.settings.spare && self.changing.is_none();
        if !is_free || self.members.contains(&last) {
            return None;
        }
        self.join(false);
        Some(Kind::Learner)
    }

    /// A node has read what vacuum is to move, and a batch is under way.
    pub(crate) fn plot_moves(&mut self, id: NodeId) {
        if let Some(Kind::Moved { of }) = self.plot.as_mut().map(|plot| &mut plot.kind) {
            *of = Some(id);
        }
    }

    /// A node has ended a batch.
    pub(crate) fn plot_written(&mut self, id: NodeId) {
        let plot = self.plot.as_ref().map(|plot| &plot.kind);
        let is_it = matches!(plot, Some(Kind::Moved { of: Some(of) }) if *of == id);
        if is_it && self.node(id).batch.is_some() {
            count("moved: flushed and cut");
            self.plot = None;
            let epoch = self.node(id).epoch;
            self.after(0, Event::FlushCut(id, epoch, 50));
        }
    }

    /// A frame is on its way: what becomes of it. `None` where the plot does not care.
    pub(crate) fn plot_sees(&mut self, from: NodeId, to: NodeId, bytes: &[u8]) -> Option<Fate> {
        self.plot.as_ref()?;
        let frame = Frame::decode(bytes)?;
        let mut plot = self.plot.take()?;
        let fate = match &mut plot.kind {
            Kind::Votes { .. } => self.votes_see(&mut plot, (from, to), &frame, bytes),
            Kind::Release { .. } => self.release_sees(&mut plot, (from, to), &frame, bytes),
            Kind::Removal { stage: 1, copies } => {
                if let Frame::Ask {
                    group,
                    op:
                        Op::Member {
                            change: Change::Remove(_),
                            since: Some(_),
                        },
                    ..
                } = frame
                    && copies.iter().all(|copy| copy.group != group)
                {
                    let bytes = bytes.to_vec();
                    copies.push(Copy {
                        from,
                        to,
                        group,
                        bytes,
                    });
                }
                None
            }
            Kind::Image {
                group: of,
                behind,
                is_back: true,
                rots: false,
            } => match frame {
                Frame::Image { group, piece, .. } if group == *of && to == *behind && piece > 0 => {
                    count("image and log");
                    let others: Vec<NodeId> = self.members.iter().copied().collect();
                    let others = others.into_iter().filter(|id| *id != from && id != behind);
                    // The one whose log reaches back furthest.
                    let base =
                        |id: &NodeId| self.log_of(*id, group).map_or(u64::MAX, |(base, _)| base.0);
                    if let Some(heir) = others.min_by_key(base) {
                        self.after(0, Event::HandOver(group, heir));
                    }
                    plot.until = self.now;
                    None
                }
                _ => None,
            },
            Kind::ByCount(of) => self.by_count_sees(of, &mut plot.until, (from, to), &frame),
            Kind::Lives(of) => self.lives_see(of, (from, to), &frame),
            Kind::Removal { .. } | Kind::Image { .. } | Kind::Learner | Kind::Moved { .. } => None,
        };
        self.plot = Some(plot);
        fate
    }

    fn votes_see(
        &mut self,
        plot: &mut Plot,
        (from, to): (NodeId, NodeId),
        frame: &Frame,
        bytes: &[u8],
    ) -> Option<Fate> {
        let (now, until) = (self.now, plot.until);
        let Kind::Votes {
            group: of,
            leader,
            heir,
            lead,
            voters,
        } = &mut plot.kind
        else {
            return None;
        };
        let Frame::Consensus { group, message, .. } = frame else {
            return None;
        };
        if group != of {
            return None;
        }
        match message {
            Message::Lead { .. } if lead.is_none() && (from, to) == (*leader, *heir) => {
                count("votes: handed over");
                *lead = Some(bytes.to_vec());
                let (leader, heir) = (*leader, *heir);
                self.node(heir).paused_until = now + 2 * LOOK + 5;
                for other in self.ids() {
                    self.net.link(other, heir).blocked_until = until;
                    self.net.link(heir, other).blocked_until = until;
                }
                self.cut_soon(leader);
                Some(Fate::Lost)
            }
            Message::Promise {
                trial: false,
                granted: true,
                ..
            } if lead.is_some() && from != *heir && to != *heir => {
                count("votes: voted");
                voters.push(from);
                // What the new leader sends does not arrive before the heir asks.
                self.net.link(to, from).blocked_until = until;
                self.cut_soon(from);
                Some(Fate::Kept(1))
            }
            _ => None,
        }
    }

    fn cut_soon(&mut self, id: NodeId) {
        let (epoch, down) = (self.node(id).epoch, self.random.u64(..40));
        let mode = PowerCut::Kept;
        self.after(0, Event::Cut(id, epoch, mode, 0, down));
    }

    fn release_sees(
        &mut self,
        plot: &mut Plot,
        (from, to): (NodeId, NodeId),
        frame: &Frame,
        bytes: &[u8],
    ) -> Option<Fate> {
        let now = self.now;
        let Kind::Release {
            volume,
            second,
            copies,
            cut,
            ..
        } = &mut plot.kind
        else {
            return None;
        };
        let Frame::Ask {
            group,
            op: Op::Command(command),
            ..
        } = frame
        else {
            return None;
        };
        let (command, _) = Command::decode(command)?;
        let id: VolumeId = self.volumes[*volume].id;
        match command {
            Command::Release { volume, .. } if volume == id && second.is_none() => {
                copies.push(Copy {
                    from,
                    to,
                    group: *group,
                    bytes: bytes.to_vec(),
                });
                None
            }
            Command::Cut { volume, .. } if volume == id && second.is_some() => {
                if cut.is_none() && copies.iter().any(|copy| copy.group == *group) {
                    count("release: cut");
                    *cut = Some((*group, now));
                }
                match cut {
                    Some((first, _)) if first == group => None,
                    _ => Some(Fate::Lost),
                }
            }
            _ => None,
        }
    }

    /// A plot goes on.
    pub(crate) fn plot_on(&mut self) {
        let Some(mut plot) = self.plot.take() else {
            return;
        };
        let stays = !self.is_healed && self.now < plot.until && self.go_on(&mut plot);
        if stays {
            self.plot = Some(plot);
            self.after(LOOK, Event::Plot);
        }
    }

    /// False where it has come to its end.
    fn go_on(&mut self, plot: &mut Plot) -> bool {
        match &mut plot.kind {
            Kind::Votes { .. } => self.votes_on(plot),
            Kind::Release { .. } => self.release_on(plot),
            Kind::Removal { .. } => self.removal_on(plot),
            Kind::Learner => self.learner_on(),
            Kind::Moved { .. } => {
                // So that there is garbage, and batches.
                self.write_areas(0, None);
                let slowest = 3 * LOOK;
                for node in &mut self.nodes {
                    node.slow = self.random.u64(..slowest);
                }
                true
            }
            Kind::ByCount(of) => self.by_count_on(of, &mut plot.until),
            Kind::Lives(of) => self.lives_on(of),
            Kind::Image {
                group,
                behind,
                is_back,
                rots,
            } => {
                let (group, behind, was_back) = (*group, *behind, *is_back);
                let leads = !*rots || self.led_by(group.0 as u8) == Some((group, self.victim()));
                *is_back = was_back || leads && self.is_left_behind(group, behind);
                if *is_back && !was_back {
                    if *rots {
                        self.rot_newest();
                    }
                    if self.random.bool() {
                        // Its state is written, and where its log begins is not.
                        let then = Then::FlushCut(self.random.u16(..60));
                        self.trap(behind, (Cue::Installed, group), 0, then, None);
                    }
                    plot.until = self.now + PATIENCE;
                    self.cut_off(behind, 0, false);
                } else if !was_back {
                    self.write_areas(0, None);
                }
                true
            }
        }
    }

    fn votes_on(&mut self, plot: &mut Plot) -> bool {
        let Kind::Votes {
            leader,
            heir,
            lead: Some(lead),
            voters,
            ..
        } = &plot.kind
        else {
            return true;
        };
        let (leader, heir) = (*leader, *heir);
        self.node(heir).paused_until = self.now + 2 * LOOK + 5;
        let is_up = |id: &NodeId| self.nodes[id.0 as usize - 1].core.is_some();
        let all = voters.len() >= self.members.len() / 2 && voters.iter().all(is_up);
        if !all || !is_up(&heir) {
            return is_up(&heir);
        }
        count("votes: asked again");
        self.node(heir).paused_until = self.now;
        for voter in voters.clone() {
            self.connect(heir, voter);
            self.connect(voter, heir);
        }
        self.input(heir, Input::Frame(leader, lead.clone()));
        false
    }

    fn release_on(&mut self, plot: &mut Plot) -> bool {
        let now = self.now;
        let Kind::Release {
            volume,
            first,
            second,
            copies,
            cut,
            writes,
        } = &mut plot.kind
        else {
            return false;
        };
        if second.is_none() {
            if self.snapshots[*first].done.is_some() {
                let next = self.snapshots.len();
                self.take_snapshot(*volume as u8);
                *second = Some(next);
                plot.until = now + PATIENCE;
                return !copies.is_empty() && self.snapshots.len() > next;
            }
            return true;
        }
        let (volume, Some((group, since))) = (*volume, *cut) else {
            return true;
        };
        let since = now - since;
        if writes.is_empty() && since >= 3 * LOOK {
            *writes = self.write_areas(volume, Some(group));
            return !writes.is_empty();
        }
        if since < 6 * LOOK {
            return true;
        }
        let is_answered = writes.iter().any(|call| self.calls[*call].is_done());
        if is_answered {
            count("release: answered too early");
            self.write_areas(volume, None);
            return false;
        }
        // The one that is sent again, to the leader that there is.
        let copy = copies.iter().find(|copy| copy.group == group);
        if let Some(Copy {
            from, to, bytes, ..
        }) = copy
            && since < 12 * LOOK
        {
            count("release: again");
            let (from, to, bytes) = (*from, *to, bytes.clone());
            self.input(to, Input::Frame(from, bytes));
        }
        since < 30 * LOOK
    }

    fn removal_on(&mut self, plot: &mut Plot) -> bool {
        let Kind::Removal { stage, copies } = &mut plot.kind else {
            return false;
        };
        if self.changing.is_some() {
            // This takes longer than other plots.
            plot.until = self.now + PATIENCE;
            return true;
        }
        let last = NodeId(self.settings.nodes + 1);
        let is_member = self.members.contains(&last);
        match *stage {
            0 if is_member => self.leave(last),
            1 if !is_member => self.join(false),
            2 if is_member => {
                count("removal: again");
                for copy in std::mem::take(copies) {
                    if let Some((_, leader)) = self.led_by(copy.group.0 as u8)
                        && leader != copy.from
                    {
                        self.input(leader, Input::Frame(copy.from, copy.bytes));
                    }
                }
                return false;
            }
            _ => return false,
        }
        *stage += 1;
        self.changing.is_some()
    }

    fn learner_on(&mut self) -> bool {
        if self.changing.is_none() {
            return false;
        }
        for group in 1..=self.settings.groups {
            let Some((group, leader)) = self.led_by(group as u8) else {
                continue;
            };
            let core = self.nodes[leader.0 as usize - 1].core.as_ref();
            let status = core.map(|core| core.status());
            let groups = status.into_iter().flat_map(|status| status.groups);
            let mut of = groups.filter(|of| of.group == group.0);
            let members = of.next().map_or(Vec::new(), |of| of.members);
            if !members.iter().any(|member| member.1 && member.3 > 0) {
                continue;
            }
            count("learner alone");
            let until = self.now + 2500;
            for (node, ..) in members.iter().filter(|member| !member.1) {
                let voter = NodeId(*node);
                if voter != leader {
                    self.net.link(leader, voter).blocked_until = until;
                    self.net.link(voter, leader).blocked_until = until;
                }
            }
            self.after(1, Event::Duel(leader, 0));
            for round in 0..4 {
                self.after(1 + 300 * round, Event::Writes(leader));
            }
            return false;
        }
        true
    }

    /// Writes through a node, to a block of each area.
    pub(crate) fn write_through(&mut self, id: NodeId) {
        let block = u64::from(self.settings.block_size) / SECTOR;
        self.write_some(id, block);
    }

    /// Writes through a node, to all of each area.
    pub(crate) fn write_all(&mut self, id: NodeId) {
        self.write_some(id, u64::MAX);
    }

    fn write_some(&mut self, id: NodeId, most: u64) {
        let by = By {
            node: (id.0 - 1) as u8,
            connection: 4,
            wait: 6000,
            direct: false,
        };
        for area in self.areas(0) {
            let what = What::Write(by, Default::default());
            let end = area.end.min(area.start.saturating_add(most));
            self.ask(by, &what, 0, area.start..end);
        }
    }

    /// Writes to a block of each area of a volume, or of those of a group.
    fn write_areas(&mut self, volume: usize, of: Option<GroupId>) -> Vec<usize> {
        let mut calls = Vec::new();
        let by = By {
            node: self.random.u8(..8),
            connection: 4,
            wait: 3000,
            direct: false,
        };
        let block = u64::from(self.settings.block_size) / SECTOR;
        for area in self.areas(volume) {
            let at = area.start..area.start + block;
            if of.is_none_or(|of| self.group_of(volume, at.start) == Some(of)) {
                let what = What::Write(by, Default::default());
                calls.extend(self.ask(by, &what, volume, at));
            }
        }
        calls
    }

    fn group_of(&self, volume: usize, sector: u64) -> Option<GroupId> {
        let core = self.nodes.iter().find_map(|node| node.core.as_ref())?;
        let source = Source::Volume(self.volumes[volume].id);
        let shape = core.readers().0.system().shape(source)?;
        let groups = self.settings.groups;
        Some(group_at(shape.placement, sector * SECTOR, groups))
    }

    /// The slot before a replica's log, and its last one.
    pub(crate) fn log_of(&self, id: NodeId, group: GroupId) -> Option<(Slot, Slot)> {
        let status = self.nodes[id.0 as usize - 1].core.as_ref()?.status();
        let mut groups = status.groups.into_iter();
        let found = groups.find(|of| of.group == group.0)?;
        Some((found.base, found.last))
    }

    /// The log of a group's leader begins behind the end of this node's.
    pub(crate) fn is_left_behind(&mut self, group: GroupId, id: NodeId) -> bool {
        let leader = self.led_by(group.0 as u8).map(|(_, leader)| leader);
        let ends = leader.and_then(|leader| {
            let of_leader = self.log_of(leader, group);
            of_leader.zip(self.log_of(id, group))
        });
        ends.is_some_and(|((base, _), (_, last))| base > last)
    }
}
