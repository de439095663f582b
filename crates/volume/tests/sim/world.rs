//! The cluster, and its time: events happen one after the other, and each step of a list adds some.

use std::collections::{BTreeMap, BTreeSet};

use esker_sim::memory::PowerCut;
use esker_sim::world as sim;
use esker_volume::command::checksum;
use esker_volume::consensus;
use esker_volume::ids::{GroupId, NodeId, Slot};
use esker_volume::node::input::{Action, Input, ReadFailure, ReadKind, ReadResult};
use esker_volume::node::reading;
use esker_volume::wire::Frame;

use super::action::{Settings, Step, What};
use super::clients::{Call, Volume};
use super::members::Changing;
use super::net::Net;
use super::node::Node;
use super::plots::Plot;
use super::said::Said;
use super::snapshots::Taken;
use super::traps::Trap;
use super::volumes::Order;

/// What is to happen.
pub(crate) enum Event {
    Tick(NodeId, u64),
    Frame(NodeId, NodeId, u64, Vec<u8>),
    Batch(NodeId, u64),
    /// The node hears that its disk has failed.
    DiskFailed(NodeId, u64, Input),
    /// What follows from inputs that came together is carried out.
    Settle(NodeId, u64),
    Read(NodeId, u64, u64),
    /// What a read has found reaches the node.
    ReadDone(NodeId, u64, u64, Result<ReadResult, ReadFailure>),
    Dial,
    /// The second node hears that the connection of the first one has ended.
    Ended(NodeId, NodeId, u64),
    Up(NodeId),
    /// A trap was sprung: the power of a node is cut in its present life, with so many more calls
    /// of its disk, for some milliseconds.
    Cut(NodeId, u64, PowerCut, u64, u64),
    /// Its map is written, and its power cut, in its present life.
    FlushCut(NodeId, u64, u64),
    /// It is cut off for some milliseconds.
    CutOff(NodeId, u64),
    /// It stands still in its present life.
    Stand(NodeId, u64, u64),
    /// The next round of requests to a node that was cut off, and to others.
    Duel(NodeId, usize),
    /// A plot goes on.
    Plot,
    /// Writes through a node.
    Writes(NodeId),
    /// Three elections begin.
    Elections(GroupId, NodeId, u8, u16),
    /// A group's leader hands over to the node.
    HandOver(GroupId, NodeId),
    /// Looks after what takes several requests: snapshots, changes of members.
    Poll,
    Compare,
}

/// Of a frame that arrives whatever became of its link.
pub(crate) const ANY: u64 = u64::MAX;

/// How often replicas are compared, in milliseconds.
const COMPARE: u64 = 1_000;

pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) nodes: Vec<Node>,
    pub(crate) net: Net,
    queue: BTreeMap<(u64, u64), Event>,
    /// Virtual milliseconds.
    pub(crate) now: u64,
    /// Events so far: the clock of histories.
    pub(crate) count: u64,
    pub(crate) random: fastrand::Rng,
    pub(crate) calls: Vec<Call>,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) snapshots: Vec<Taken>,
    pub(crate) orders: Vec<Order>,
    /// The nodes that are members as the operator wants it, and what is being changed.
    pub(crate) members: BTreeSet<NodeId>,
    pub(crate) changing: Option<Changing>,
    /// Files of the victim's map were damaged.
    pub(crate) is_rotten: bool,
    pub(crate) next_connection: u64,
    /// Nothing fails any more.
    pub(crate) is_healed: bool,
    pub(crate) healed_at: u64,
    /// Hashes of states by group and position.
    pub(crate) hashes: BTreeMap<(GroupId, Slot), (u64, NodeId)>,
    /// By node, life and group, the position whose state was read.
    pub(crate) compared: BTreeMap<(NodeId, u64, GroupId), Slot>,
    pub(crate) traps: Vec<Trap>,
    pub(crate) plot: Option<Plot>,
    pub(crate) said: Said,
    /// By group and ballot, who leads.
    pub(crate) leaders: BTreeMap<(GroupId, u64), NodeId>,
    trace: u64,
    pub(crate) frames: bool,
    story: Option<Vec<String>>,
}

impl sim::World for World {
    type Settings = Settings;
    type Action = Step;

    fn generate(seed: u64) -> (Settings, Vec<Step>) {
        super::generate::run(seed)
    }

    fn new(settings: Settings) -> World {
        let mut world = World {
            settings,
            nodes: (1..=settings.nodes + u32::from(settings.spare))
                .map(Node::new)
                .collect(),
            net: Net::default(),
            queue: BTreeMap::new(),
            now: 1000,
            count: 0,
            random: fastrand::Rng::with_seed(settings.seed),
            calls: Vec::new(),
            volumes: Vec::new(),
            snapshots: Vec::new(),
            orders: Vec::new(),
            members: (1..=settings.nodes).map(NodeId).collect(),
            changing: None,
            is_rotten: false,
            next_connection: 1,
            is_healed: true,
            healed_at: 0,
            hashes: BTreeMap::new(),
            compared: BTreeMap::new(),
            traps: Vec::new(),
            plot: None,
            said: Said::default(),
            leaders: BTreeMap::new(),
            trace: 0,
            frames: std::env::var("ESKER_SIM_FRAMES").is_ok(),
            story: None,
        };
        for id in world.members.clone() {
            world.start(id);
        }
        world.after(1, Event::Dial);
        world.after(100, Event::Poll);
        world.after(COMPARE, Event::Compare);
        world.create_volume();
        world.is_healed = false;
        world
    }

    fn step(&mut self, step: &Step) {
        self.run_for(step.after);
        // So that a step that is taken away changes the others as little as possible.
        let kind = checksum(format!("{:?}", step.what).as_bytes());
        self.random = fastrand::Rng::with_seed(self.settings.seed ^ kind);
        self.happen(&step.what);
    }

    fn end(&mut self) {
        self.heal();
        self.converge();
        self.healed_at = self.count;
        self.write_anew();
        self.read_all();
        self.check_history();
        self.check_snapshots();
        self.check_volumes();
        self.check_usage();
    }

    fn as_test(seed: u64, settings: Settings, steps: &[Step]) -> String {
        use std::fmt::Write as _;
        let mut text = format!("#[test]\nfn seed_{seed}() {{\n    run(&{settings:?}, &[\n");
        for Step { after, what } in steps {
            let what = format!("{what:?}").replace("By {", "By {").to_string();
            let _ = writeln!(text, "        step({after}, {what}),");
        }
        text + "    ]);\n}\n"
    }

    fn tell(&mut self) {
        self.story = Some(Vec::new());
    }

    fn told(&mut self) -> Vec<String> {
        self.story.take().unwrap_or_default()
    }
}

impl World {
    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.nodes.iter().map(|node| node.id).collect()
    }

    pub(crate) fn node(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize - 1]
    }

    /// The node that a number of a step means.
    pub(crate) fn pick(&self, number: u8) -> NodeId {
        let used = self.nodes.iter().filter(|node| node.is_used).count();
        NodeId(u32::from(number) % used as u32 + 1)
    }

    /// The node whose disk rots and gets lost.
    pub(crate) fn victim(&self) -> NodeId {
        NodeId((self.settings.seed >> 3) as u32 % self.settings.nodes + 1)
    }

    pub(crate) fn say(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        match &mut self.story {
            Some(story) => story.push(format!("{now:7} {}", line())),
            None if self.frames => eprintln!("{now:7} {}", line()),
            None => {}
        }
    }

    /// A hash of everything that happened.
    pub(crate) fn trace(&self) -> u64 {
        self.trace
    }

    fn note(&mut self, bytes: &[u8]) {
        self.trace = self.trace.rotate_left(7) ^ checksum(bytes) ^ self.now;
    }

    pub(crate) fn after(&mut self, millis: u64, event: Event) {
        self.at(self.now + millis, event);
    }

    pub(crate) fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.queue.insert((time, self.count), event);
    }

    pub(crate) fn run_for(&mut self, millis: u64) {
        let until = self.now + millis;
        while let Some(entry) = self.queue.first_entry() {
            let (time, _) = *entry.key();
            if time > until {
                break;
            }
            let event = entry.remove();
            self.now = time;
            self.count += 1;
            self.event(event);
        }
        self.now = until;
    }

    fn event(&mut self, event: Event) {
        let whose = match &event {
            Event::Tick(id, _)
            | Event::Frame(_, id, ..)
            | Event::Batch(id, _)
            | Event::DiskFailed(id, ..)
            | Event::Settle(id, _)
            | Event::Read(id, ..)
            | Event::ReadDone(id, ..)
            | Event::Ended(_, id, _) => Some(*id),
            Event::Dial
            | Event::Up(_)
            | Event::Cut(..)
            | Event::CutOff(..)
            | Event::FlushCut(..)
            | Event::Stand(..)
            | Event::Duel(..)
            | Event::Plot
            | Event::Writes(_)
            | Event::Elections(..)
            | Event::HandOver(..)
            | Event::Poll
            | Event::Compare => None,
        };
        if let Some(id) = whose {
            let until = self.node(id).paused_until;
            if until > self.now {
                // What has come meanwhile may be taken before the node sees how late it is.
                let later = match event {
                    Event::Tick(..) => self.random.u64(..20),
                    _ => 0,
                };
                return self.at(until + later, event);
            }
        }
        match event {
            Event::Tick(id, epoch) => {
                if self.node(id).epoch == epoch {
                    let now = self.now;
                    let next = self.node(id).later(now, 10);
                    self.at(next, Event::Tick(id, epoch));
                    self.input(id, Input::Tick);
                }
            }
            Event::Frame(from, to, epoch, bytes) => {
                let link = self.net.link(from, to);
                if (link.epoch == epoch && link.is_up) || epoch == ANY {
                    self.show(from, to, &bytes);
                    self.note(&bytes);
                    self.input(to, Input::Frame(from, bytes));
                }
            }
            Event::Batch(id, epoch) => {
                let node = self.node(id);
                if node.epoch == epoch
                    && let Some(batch) = node.batch.take()
                {
                    self.run_batch(id, batch);
                }
            }
            Event::DiskFailed(id, epoch, input) => {
                if self.node(id).epoch == epoch {
                    self.node(id).hears -= 1;
                    self.input(id, input);
                }
            }
            Event::Settle(id, epoch) => self.settle(id, epoch),
            Event::Read(id, epoch, ticket) => self.run_read(id, epoch, ticket),
            Event::ReadDone(id, epoch, ticket, result) => {
                if self.node(id).epoch == epoch {
                    self.input(id, Input::ReadDone(ticket, result));
                }
            }
            Event::Dial => self.dial(),
            Event::Ended(from, to, epoch) => {
                let link = self.net.link(from, to);
                if link.is_known && !link.is_up && link.epoch == epoch {
                    link.is_known = false;
                    self.input(to, Input::Disconnected(from));
                }
            }
            Event::Up(id) => {
                if self.node(id).core.is_none() {
                    self.start(id);
                }
            }
            Event::Cut(id, epoch, mode, calls, down) => {
                let node = self.node(id);
                if node.epoch == epoch && node.core.is_some() && !self.is_healed {
                    sim::count("crash by a trap");
                    self.crash(id, mode, calls, down);
                }
            }
            Event::FlushCut(id, epoch, down) => {
                let is_healed = self.is_healed;
                let node = self.node(id);
                let core = node
                    .core
                    .as_ref()
                    .filter(|_| node.epoch == epoch && !is_healed);
                if let Some(core) = core.filter(|core| core.status().failed.is_empty()) {
                    // Where it fails, its disk is full or damaged.
                    drop(core.readers().0.flush());
                    self.crash(id, PowerCut::Lost, 0, down);
                }
            }
            Event::CutOff(id, millis) => {
                if !self.is_healed {
                    let breaks = self.random.bool();
                    self.cut_off(id, millis, breaks);
                }
            }
            Event::Stand(id, epoch, millis) => {
                let until = self.now + millis;
                if self.node(id).epoch == epoch && !self.is_healed {
                    self.node(id).paused_until = until;
                }
            }
            Event::Duel(id, round) => {
                if !self.is_healed {
                    self.duel_on(id, round);
                }
            }
            Event::Plot => self.plot_on(),
            Event::Writes(id) => self.write_through(id),
            Event::Elections(group, leader, skip, down) => {
                if !self.is_healed {
                    self.elections(group, leader, skip, down);
                }
            }
            Event::HandOver(group, to) => self.transfer(group.0 as u8, (to.0 - 1) as u8),
            Event::Poll => {
                self.poll_snapshots();
                self.poll_orders();
                self.poll_members();
                self.poll_disks();
                self.after(100, Event::Poll);
            }
            Event::Compare => {
                self.compare(false);
                self.after(COMPARE, Event::Compare);
            }
        }
    }

    /// Prints a message that is delivered: `ESKER_SIM_FRAMES=1`.
    fn show(&self, from: NodeId, to: NodeId, bytes: &[u8]) {
        if self.frames {
            match Frame::decode(bytes) {
                Some(Frame::Consensus { group, message, .. }) => {
                    eprintln!("{:7} {from}>{to} group {group}: {message:?}", self.now);
                }
                Some(Frame::Image {
                    group,
                    image,
                    piece,
                    at,
                    last,
                    ..
                }) => {
                    eprintln!(
                        "{:7} {from}>{to} group {group}: image {image} {piece} {at:?} {last}",
                        self.now
                    );
                }
                Some(other) => {
                    let text = format!("{other:?}");
                    eprintln!(
                        "{:7} {from}>{to} {}",
                        self.now,
                        text.get(..160).unwrap_or(&text)
                    );
                }
                None => {}
            }
        }
    }

    fn run_read(&mut self, id: NodeId, epoch: u64, ticket: u64) {
        let node = self.node(id);
        if node.epoch != epoch {
            return;
        }
        let Some(core) = &node.core else { return };
        let Some(work) = node.reads.remove(&ticket) else {
            return;
        };
        let (map, reader) = core.readers();
        let result = reading::run(&map, &reader, &work);
        let is_writing = node.batch.is_some();
        if is_writing && matches!(work.kind, ReadKind::Live { .. }) {
            self.plot_moves(id);
        }
        // The node may do much between what vacuum or scrub reads and that it hears of it.
        let is_upkeep = matches!(work.kind, ReadKind::Live { .. } | ReadKind::Scrub { .. });
        if is_upkeep && self.random.bool() {
            let later = self.random.u64(..=2 * self.settings.sync);
            return self.after(later, Event::ReadDone(id, epoch, ticket, result));
        }
        self.input(id, Input::ReadDone(ticket, result));
    }

    /// Starts a node.
    pub(crate) fn start(&mut self, id: NodeId) {
        let (settings, now) = (self.settings, self.now);
        let is_rotten = self.is_rotten && id == self.victim();
        let node = self.node(id);
        if let Err(error) = node.start(&settings, now) {
            let has_reason = now < node.full_until || now < node.unreadable_until;
            assert!(has_reason || is_rotten, "node {id} does not start: {error}");
            if !is_rotten {
                self.after(200, Event::Up(id));
            }
            return;
        }
        let epoch = node.epoch;
        let actions = node.core.as_mut().unwrap().start_actions();
        let logs = self.logs(id);
        self.say(|| format!("node {id} starts, its logs {logs}"));
        self.check_logs(id, &logs);
        self.check_ends(id);
        self.check_blocks(id);
        if id == self.victim() && !self.is_healed && self.random.u8(..4) == 0 {
            self.rot_ahead();
        }
        self.carry_out(id, actions);
        self.after(1, Event::Tick(id, epoch));
    }

    /// The power of a node is cut.
    pub(crate) fn crash(&mut self, id: NodeId, mode: PowerCut, calls: u64, down: u64) {
        let seed = self.random.u64(..);
        self.net.crash(id);
        self.node(id).cut_power(seed, mode, calls);
        self.forget_calls(id);
        let up_at = self.now + down;
        self.node(id).up_at = Some(up_at);
        self.at(up_at, Event::Up(id));
        // The others hear of it now, later, or when it is linked again.
        for other in self.ids() {
            let epoch = self.net.link(id, other).epoch;
            if other != id {
                let after = self.random.u64(..400);
                self.after(after, Event::Ended(id, other, epoch));
            }
        }
    }

    pub(crate) fn input(&mut self, id: NodeId, input: Input) {
        let now = self.now;
        let node = self.node(id);
        let time: consensus::Time = node.clock(now);
        let Some(core) = &mut node.core else { return };
        core.take(time, input);
        // Others may join it.
        let epoch = node.epoch;
        match (time ^ u64::from(id.0)) % 4 {
            0 => self.after(1, Event::Settle(id, epoch)),
            _ => self.settle(id, epoch),
        }
    }

    fn settle(&mut self, id: NodeId, epoch: u64) {
        let node = self.node(id);
        if let Some(core) = node.core.as_mut().filter(|_| node.epoch == epoch) {
            let actions = core.settle();
            self.carry_out(id, actions);
        }
    }

    pub(crate) fn carry_out(&mut self, id: NodeId, actions: Vec<Action>) {
        let epoch = self.node(id).epoch;
        for action in actions {
            match action {
                Action::Send(to, packet) => self.send(id, to, packet.flat()),
                Action::Batch(batch) => {
                    self.node(id).batch = Some(batch);
                    let slow = std::mem::take(&mut self.node(id).slow);
                    let takes = slow + self.random.u64(..=self.settings.sync);
                    self.after(takes, Event::Batch(id, epoch));
                }
                Action::Read(ticket, work) => {
                    self.node(id).reads.insert(ticket, work);
                    let takes = self.random.u64(..=self.settings.sync);
                    self.after(takes, Event::Read(id, epoch, ticket));
                }
                Action::Answer { ticket, result, .. } => self.answered(ticket, result),
                Action::Peers(peers) => {
                    let peers = peers.into_iter().map(|(node, _)| node);
                    self.node(id).peers = peers.collect();
                }
                Action::End(connection) => self.ended(id, connection),
            }
        }
    }

    fn happen(&mut self, what: &What) {
        let now = self.now;
        self.say(|| format!("{what:?}"));
        self.note(&[1]);
        match *what {
            What::Write(..) | What::Discard(..) | What::Read(..) | What::ReadLocal(..) => {
                self.ask_for(what);
            }
            What::Hang(node, connection) => self.hang(self.pick(node), connection),
            What::Crash(node, mode, calls, down) => {
                let id = self.pick(node);
                if self.node(id).core.is_some() {
                    sim::count("crash");
                    self.crash(id, mode, u64::from(calls), u64::from(down));
                }
            }
            What::Blackout(mode, calls, down) => {
                sim::count("blackout");
                for id in self.ids() {
                    if self.node(id).core.is_some() {
                        let down = self.random.u64(..=u64::from(down));
                        self.crash(id, mode, u64::from(calls), down);
                    }
                }
            }
            What::Restart(node, down) => {
                let id = self.pick(node);
                self.restart(id, u64::from(down));
            }
            What::Block(from, to, millis) => {
                let (from, to) = (self.pick(from), self.pick(to));
                self.net.link(from, to).blocked_until = now + u64::from(millis);
                if self.random.bool() {
                    self.break_link(from, to);
                }
            }
            What::Isolate(node, millis) => {
                let id = self.pick(node);
                let breaks = self.random.bool();
                self.cut_off(id, u64::from(millis), breaks);
            }
            What::Trap(node, cue, skip, then) => self.lay_trap(node, cue, skip, then),
            What::Plot(kind, group) => self.plot(kind, group),
            What::ThreeElections(group, skip, down) => self.three_elections(group, skip, down),
            What::FlushCut(group, millis, down) => self.flush_and_cut(group, millis, down),
            What::Duel(group, millis, hands_over) => self.duel(group, millis, hands_over),
            What::Break(from, to) => self.break_link(self.pick(from), self.pick(to)),
            What::Pause(node, millis) => {
                let id = self.pick(node);
                self.node(id).paused_until = now + u64::from(millis);
            }
            What::Slow(node, millis) => {
                let id = self.pick(node);
                self.node(id).slow = u64::from(millis);
            }
            What::FailSync(node) => {
                let id = self.pick(node);
                self.node(id).may_fail = true;
                self.node(id).faulty.fail_sync_once();
            }
            What::FailAhead(node, late) => {
                let id = self.pick(node);
                self.node(id).ahead_fails = Some(u64::from(late));
            }
            What::Full(node, room, millis) => {
                let id = self.pick(node);
                let node = self.node(id);
                node.may_fail = true;
                let room = node.faulty.used() + u64::from(room);
                node.faulty.set_capacity(room);
                node.full_until = now + u64::from(millis);
            }
            What::Unreadable(node, reads, millis) => {
                let id = self.pick(node);
                self.unreadable(id, u64::from(reads), u64::from(millis));
            }
            What::Rot(kind) => self.rot(kind),
            What::RotMap(kind) => self.rot_map(kind),
            What::Clock(node, speed) => {
                let id = self.pick(node);
                self.node(id).set_speed(now, u64::from(speed));
            }
            What::Transfer(group, node) => self.transfer(group, node),
            What::Scrub(node) => {
                let id = self.pick(node);
                if let Some(core) = &mut self.node(id).core {
                    core.start_scrub();
                }
            }
            What::Snapshot(volume) => self.take_snapshot(volume),
            What::Clone(snapshot) => self.make_clone(snapshot),
            What::Forget(snapshot) => self.forget_snapshot(snapshot),
            What::Replace => self.replace(),
            What::Join(is_wiped) => self.join(is_wiped),
            What::Leave(node) => self.leave(self.pick(node)),
            What::Create(number) => self.order_create(number),
            What::Grow(number) => self.order_grow(number),
            What::Rename(number) => self.order_rename(number),
            What::Delete(number) => self.order_delete(number),
        }
    }
}
