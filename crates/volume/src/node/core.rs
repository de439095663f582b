//! A node without I/O: what happened goes in, what is to be done comes out. The driver of threads
//! and the simulator run the same core.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::group::{Group, PendingRead};
use super::home::{Home, ReadBack};
use super::images::{Images, Piece};
use super::input::{Action, ConnectionId, Input, Manner, Work};
use super::leader::Origin;
use super::router::{Followed, Router};
use super::running::{Bodies, RunningRead};
use super::settings::Settings;
use crate::body::Body;
use crate::bytes::Bytes;
use crate::consensus::{Message, Output, Time};
use crate::error::Error;
use crate::extents::{Extents, Kind, Reader};
use crate::ids::{GroupId, NodeId, Slot};
use crate::map::Map;
use crate::system::Shape;
use crate::wire::{Formation, Frame, Hello, Packet, Refusal, Reply, Source};

/// A node.
pub struct Core {
    pub(super) home: Home,
    pub(super) me: Hello,
    pub(super) settings: Settings,
    pub(super) now: Time,
    pub(super) map: Arc<Map>,
    pub(super) extents: Extents,
    pub(super) reader: Reader,
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) formation: Option<Formation>,
    /// The disk has records of groups that it knows no cluster of.
    pub(super) was_used: bool,
    /// The log sequence number behind the record of the formation.
    pub(super) formed_at: u64,
    /// The linked nodes know of the formation.
    pub(super) is_announced: bool,
    pub(super) router: Router,
    pub(super) images: Images,
    pub(super) healing: super::heal::Healing,
    pub(super) errands: super::errands::Errands,
    pub(super) vacuum: super::space::Vacuum,
    /// Nodes with a link, and what they said of themselves.
    pub(super) peers: BTreeMap<NodeId, Hello>,
    /// When a node's last link ended.
    pub(super) lost: BTreeMap<NodeId, Time>,
    /// Frames that may leave once everything before a log sequence number is durable.
    pub(super) after_sync: VecDeque<(u64, NodeId, Packet)>,
    pub(super) is_syncing: bool,
    /// When the batch was begun that is being synced.
    pub(super) syncing_since: Time,
    /// Groups with commands that were proposed and are not sent yet.
    pub(super) proposed: BTreeSet<GroupId>,
    /// Groups in which more is chosen or durable than was applied.
    pub(super) to_apply: BTreeSet<GroupId>,
    /// The disk failed or is full: this replica has stepped back.
    pub(super) failed: Option<Error>,
    pub(super) running: HashMap<u64, RunningRead>,
    /// Reads that the protocol has not allowed yet.
    pub(super) asked: HashMap<u64, PendingRead>,
    next_ticket: u64,
    /// Answers that wait until this node's state of the system group has what they say.
    late: Vec<Late>,
    pub(super) actions: Vec<Action>,
    /// Bytes of data that commands of users brought.
    pub(super) user_bytes: u64,
    pub(super) last_ticks: super::errands::Ticks,
}

/// An answer for a user that may have to wait.
struct Late {
    connection: ConnectionId,
    ticket: u64,
    result: Result<Reply, Refusal>,
    since: Time,
}

/// How long an answer waits for this node's own state, in milliseconds.
const LATEST: Time = 5_000;

/// What [`Core::new`] is made of, by `open`.
pub(super) struct Opened {
    pub(super) home: Home,
    pub(super) me: Hello,
    pub(super) settings: Settings,
    pub(super) now: Time,
    pub(super) map: Arc<Map>,
    pub(super) back: ReadBack,
}

impl Core {
    pub(super) fn new(opened: Opened) -> Core {
        let mut router = Router::new(opened.me.node, opened.me.life);
        let back = opened.back;
        if let Some(formation) = &back.formation {
            router.set_groups(formation.groups);
        }
        Core {
            router,
            reader: back.extents.reader(),
            home: opened.home,
            me: opened.me,
            settings: opened.settings,
            now: opened.now,
            map: opened.map,
            extents: back.extents,
            groups: back.groups,
            is_announced: back.formation.is_some(),
            formed_at: 0,
            formation: back.formation,
            was_used: back.was_used,
            images: Images::default(),
            healing: super::heal::Healing::default(),
            errands: super::errands::Errands::default(),
            vacuum: super::space::Vacuum::default(),
            peers: BTreeMap::new(),
            lost: BTreeMap::new(),
            after_sync: VecDeque::new(),
            is_syncing: false,
            syncing_since: 0,
            proposed: BTreeSet::new(),
            to_apply: BTreeSet::new(),
            failed: None,
            running: HashMap::new(),
            asked: HashMap::new(),
            next_ticket: 1,
            late: Vec::new(),
            actions: Vec::new(),
            user_bytes: 0,
            last_ticks: super::errands::Ticks::default(),
        }
    }

    /// What this node says of itself on a new link.
    pub fn hello(&self) -> Hello {
        self.me.clone()
    }

    /// The map and the blocks, for threads that read.
    pub fn readers(&self) -> (Arc<Map>, Reader) {
        (self.map.clone(), self.reader.clone())
    }

    /// What is to be done before anything happened.
    pub fn start_actions(&mut self) -> Vec<Action> {
        self.start_batch();
        std::mem::take(&mut self.actions)
    }

    /// Writes the map's memtables to tables and closes it.
    pub fn close(&self) {
        drop(self.map.close());
    }

    /// Takes what happened at `now` (milliseconds, never stepping back), and returns what is to be
    /// done.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Action> {
        self.take(now, input);
        self.settle()
    }

    /// Takes what happened at `now` (milliseconds, never stepping back). What is to be done is
    /// returned by the next [`Core::settle`]: several inputs that came together make one batch, and
    /// one message to each follower.
    pub fn take(&mut self, now: Time, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Tick => self.tick(),
            Input::Connected(hello) => self.connected(hello),
            Input::Disconnected(node) => self.disconnected(node),
            Input::Frame(from, bytes) => self.frame(from, &bytes.into()),
            Input::BatchDone(result) => self.batch_done(result),
            Input::AheadFailed(error) => self.fail(error),
            Input::ReadDone(ticket, result) => self.read_done(ticket, result),
            Input::Open(connection) => self.router.open(connection),
            Input::Closed(connection) => {
                self.late.retain(|late| late.connection != connection);
                self.router.closed(connection, self.now);
            }
            Input::Request {
                connection,
                ticket,
                work,
                manner,
            } => self.request(connection, ticket, work, manner),
        }
    }

    /// Returns what is to be done after what was taken.
    pub fn settle(&mut self) -> Vec<Action> {
        let mut actions = self.hasten();
        actions.append(&mut self.finish());
        actions
    }

    /// The first part of [`Core::settle`]: what other nodes and the disk are waiting for. Nothing
    /// is applied before they have it.
    pub fn hasten(&mut self) -> Vec<Action> {
        self.route();
        for id in std::mem::take(&mut self.proposed) {
            self.step(id, &mut Bodies::new(), |core, now, out| {
                core.send_proposed(now, out)
            });
        }
        self.start_batch();
        std::mem::take(&mut self.actions)
    }

    /// True if no request waits for what [`Core::finish`] will do: this node leads none of the
    /// groups in which something is to be applied.
    pub fn may_finish_later(&self) -> bool {
        let led = |id: &GroupId| self.groups.get(id).is_some_and(|group| group.leads);
        !self.to_apply.iter().any(led)
    }

    /// The second part: applies what is chosen, and returns what follows from it.
    pub fn finish(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while !self.to_apply.is_empty() {
            for id in std::mem::take(&mut self.to_apply) {
                self.apply(id);
            }
            actions.append(&mut self.hasten());
        }
        actions
    }

    fn tick(&mut self) {
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        for id in ids {
            self.step(id, &mut Bodies::new(), |core, now, out| core.tick(now, out));
        }
        self.run_errands();
        self.answer_late();
        self.tick_images();
        self.tick_space();
    }

    fn connected(&mut self, hello: Hello) {
        let node = hello.node;
        self.lost.remove(&node);
        self.errands.declined.remove(&node);
        self.peers.insert(node, hello);
        self.meet(node);
        if self.is_member(node) {
            for group in self.groups.values_mut() {
                group.consensus.reachable(node);
            }
        }
    }

    fn disconnected(&mut self, node: NodeId) {
        self.peers.remove(&node);
        self.lost.insert(node, self.now);
        self.router.disconnected(node);
        for group in self.groups.values_mut() {
            group.consensus.unreachable(node);
        }
    }

    /// True where the node at the other end of the link is a member with its present disk.
    pub(super) fn is_member(&self, node: NodeId) -> bool {
        let Some(hello) = self.peers.get(&node) else {
            return false;
        };
        let cluster = self
            .formation
            .as_ref()
            .map_or(0, |formation| formation.cluster);
        hello.cluster == cluster && cluster != 0
    }

    #[cfg(test)]
    pub(super) fn peer_disk(&self, node: NodeId) -> Option<crate::ids::DiskId> {
        self.peers.get(&node).map(|hello| hello.disk)
    }

    /// True for a machine that was replaced and is there again, with its number and its former
    /// disk, while the one that replaced it is linked: what it says would be taken for what that
    /// one says.
    pub fn is_replaced(&self, hello: &Hello) -> bool {
        let Some(linked) = self.peers.get(&hello.node) else {
            return false;
        };
        let is_disk_of_member = |disk| {
            let mut groups = self.groups.values();
            groups.any(|group| {
                let member = group.consensus.members().get(hello.node);
                member.is_some_and(|member| member.disk == disk)
            })
        };
        // Without a leader this node may not know yet who has replaced whom.
        let mut groups = self.groups.values();
        linked.disk != hello.disk
            && groups.any(|group| group.consensus.leader().is_some())
            && is_disk_of_member(linked.disk)
            && !is_disk_of_member(hello.disk)
    }

    /// Lets a group's protocol take a step, and does what it asks for.
    pub(super) fn step(
        &mut self,
        id: GroupId,
        bodies: &mut Bodies,
        act: impl FnOnce(&mut crate::consensus::Core, Time, &mut Vec<Output>),
    ) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        // What it knew as a leader stays known when it steps back.
        group.was_current = group.current();
        let mut outputs = Vec::new();
        act(&mut group.consensus, self.now, &mut outputs);
        for output in outputs {
            self.output(id, output, bodies);
        }
    }

    pub(super) fn output(&mut self, id: GroupId, output: Output, bodies: &mut Bodies) {
        match output {
            Output::Send {
                to,
                message,
                after_sync,
            } => self.send_message(id, to, message, after_sync),
            Output::Vote { ballot, vote } => {
                let vote = vote.map_or(0, |node| node.0).to_le_bytes();
                // Twice, since nothing else could tell what was promised.
                for _ in 0..2 {
                    self.append(Kind::Vote, id, 0, ballot, &[&vote]);
                }
            }
            Output::Append(entries) => {
                for meta in entries {
                    let body = bodies.remove(&meta.slot);
                    let body = body.unwrap_or_else(|| vec![0].into());
                    self.append_entry(id, meta.slot, meta.ballot, body);
                }
            }
            Output::Mended => self.mended(id),
            Output::Chosen(slot) => {
                if let Some(group) = self.groups.get_mut(&id) {
                    group.chosen = group.chosen.max(slot);
                }
                self.to_apply.insert(id);
            }
            Output::Read { ticket, result } => self.read_allowed(id, ticket, result),
            Output::Leadership => self.leadership(id),
            Output::NeedsImage(node) => self.images.wanted(id, node),
        }
    }

    fn send_message(&mut self, id: GroupId, to: NodeId, message: Message, after_sync: bool) {
        if after_sync && self.failed.is_some() {
            // What it rests on may be what could not be appended.
            return;
        }
        let mut bodies = Vec::new();
        if let Message::Accept { entries, .. } = &message {
            for meta in entries {
                match self.body(id, meta.slot, meta.ballot) {
                    Ok(Some(body)) => bodies.push(body),
                    Err(error) => return self.fail(error),
                    Ok(None) => {
                        // It was replaced since, or its bytes are damaged.
                        let group = self.groups.get(&id);
                        let now = group.and_then(|group| group.log.ballot_at(meta.slot));
                        if now == Some(meta.ballot) {
                            self.lose(id, meta.slot);
                        }
                        return;
                    }
                }
            }
        }
        let packet = Frame::Consensus {
            group: id,
            message,
            bodies,
        }
        .encode();
        let end = self.extents.end();
        if after_sync && self.extents.synced() < end {
            self.after_sync.push_back((end, to, packet))
        } else {
            self.actions.push(Action::Send(to, packet))
        }
    }

    fn frame(&mut self, from: NodeId, bytes: &Bytes) {
        let Some(frame) = Frame::decode_shared(bytes) else {
            return;
        };
        match frame {
            Frame::Form(formation) => self.form(from, formation),
            Frame::Hello(hello) => self.heard_hello(from, hello),
            _ if !self.is_member(from) => self.ask_for_hello(from),
            Frame::Consensus {
                group,
                message,
                bodies,
            } => self.message(from, group, message, bodies),
            Frame::Ask { id, group, op } => {
                let origin = Origin::Remote(from, id);
                self.ask(group, origin, op);
            }
            Frame::Answer { id, result } => {
                let mut followed = Vec::new();
                self.router.answered(self.now, id, result, &mut followed);
                self.follow(followed);
            }
            Frame::Image {
                group,
                image,
                piece,
                at,
                last,
                bytes,
            } => {
                let piece = Piece {
                    image,
                    number: piece,
                    at,
                    is_last: last,
                    bytes: &bytes,
                };
                self.image_piece(from, group, &piece);
            }
            Frame::ImageNext {
                group,
                image,
                piece,
            } => self.image_next(from, group, image, piece),
            Frame::Fetch {
                id,
                group,
                layer,
                block,
                checksum,
            } => {
                self.fetch(from, id, group, layer, block, checksum);
            }
            Frame::Fetched { id, data } => self.fetched(id, data),
            // Clients are the driver's.
            Frame::Client { .. } | Frame::ClientAnswer { .. } => {}
        }
    }

    fn message(&mut self, from: NodeId, id: GroupId, message: Message, bodies: Vec<Body>) {
        let Some(group) = self.groups.get(&id) else {
            return;
        };
        if group.is_incomplete && matches!(message, Message::Lead { .. }) {
            // It could answer nothing until an image is installed, and the leader can.
            return;
        }
        // A member is a node with the disk that it had when it became one: the answers of any other
        // do not count. What a leader or candidate says is taken also where this replica does not
        // know yet that the node has another disk, or it would never learn so; what it is worth is
        // for its ballot and log to say.
        let disk = self.peers.get(&from).map(|hello| hello.disk);
        let is_answer = matches!(
            message,
            Message::Promise { .. } | Message::Accepted { .. } | Message::Refused { .. }
        );
        let member = group.consensus.members().get(from);
        let is_other = member.is_some_and(|member| Some(member.disk) != disk);
        if is_answer && is_other {
            return;
        }
        let mut by_slot = Bodies::new();
        if let Message::Accept { entries, .. } = &message {
            let fits =
                |(meta, body): (&crate::consensus::Meta, &Body)| meta.bytes as usize == body.len();
            if entries.len() != bodies.len() || !entries.iter().zip(&bodies).all(fits) {
                return;
            }
            by_slot = entries.iter().map(|meta| meta.slot).zip(bodies).collect();
        }
        let said = match &message {
            Message::Accept { ballot, chosen, .. } => Some((*ballot, *chosen)),
            _ => None,
        };
        self.step(id, &mut by_slot, |core, now, out| {
            core.receive(now, from, message, out)
        });
        if let Some((ballot, chosen)) = said
            && let Some(group) = self.groups.get_mut(&id)
            && group.consensus.leader() == Some(from)
            && group.consensus.ballot() == ballot
        {
            group.hear(self.now, chosen, ballot);
        }
    }

    pub(super) fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    pub(super) fn answer(&mut self, origin: Origin, result: Result<Reply, Refusal>) {
        match origin {
            Origin::Local(part) => {
                let mut followed = Vec::new();
                self.router.answered(self.now, part, result, &mut followed);
                self.follow(followed);
            }
            Origin::Remote(node, id) => {
                self.actions
                    .push(Action::Send(node, Frame::Answer { id, result }.encode()));
            }
        }
    }

    pub(super) fn follow(&mut self, followed: Vec<Followed>) {
        for followed in followed {
            match followed {
                Followed::Answer(connection, ticket, result) => {
                    self.late.push(Late {
                        connection,
                        ticket,
                        result,
                        since: self.now,
                    });
                    self.answer_late();
                }
                Followed::Errand(key, result) => self.errand_done(key, result),
                Followed::End(connection) => self.actions.push(Action::End(connection)),
            }
        }
    }

    /// Answers users. What the system group did is answered when this node knows of it: who creates
    /// a volume, and opens it at the same node, finds it there.
    pub(super) fn answer_late(&mut self) {
        let system = self.groups.get(&GroupId::SYSTEM);
        let applied = system.map_or(Slot(0), |group| group.applied);
        // A node that has stepped back does not come to know.
        let knows_all = self.failed.is_some() || system.is_none();
        for late in std::mem::take(&mut self.late) {
            match late.result {
                Ok(Reply::System(_, slot))
                    if slot > applied && !knows_all && self.now < late.since + LATEST =>
                {
                    self.late.push(late);
                }
                result => self.actions.push(Action::Answer {
                    connection: late.connection,
                    ticket: late.ticket,
                    result,
                }),
            }
        }
    }

    /// Sends the parts of requests that are due to the leaders of their groups.
    fn route(&mut self) {
        // A part that this node answers at once may make another one due.
        for _ in 0..16 {
            let mut followed = Vec::new();
            let (groups, me) = (&self.groups, self.me.node);
            let leader = |id: GroupId| {
                let group = groups.get(&id)?;
                let leader = group.consensus.leader()?;
                (leader != me || group.leads).then_some(leader)
            };
            let due = self.router.due(self.now, &leader, &mut followed);
            self.follow(followed);
            if due.is_empty() {
                return;
            }
            for (id, group, to, op) in due {
                if to == me {
                    self.ask(group, Origin::Local(id), op)
                } else {
                    let packet = Frame::Ask { id, group, op }.encode();
                    self.actions.push(Action::Send(to, packet));
                }
            }
        }
    }

    fn request(&mut self, connection: ConnectionId, ticket: u64, work: Work, manner: Manner) {
        if let Work::ReadLocal {
            source,
            offset,
            length,
        } = work
        {
            return self.read_local(connection, ticket, source, (offset, length));
        }
        let shape = self.shape(&work);
        let begun = self
            .router
            .begin(self.now, connection, ticket, work, manner, shape);
        if let Err(refusal) = begun {
            let result = Err(refusal);
            self.actions.push(Action::Answer {
                connection,
                ticket,
                result,
            });
        }
    }

    fn shape(&self, work: &Work) -> Option<Shape> {
        let source = match work {
            Work::Read { source, .. }
            | Work::ReadLocal { source, .. }
            | Work::Allocation { source, .. } => *source,
            Work::Write { volume, .. } | Work::Discard { volume, .. } => Source::Volume(*volume),
            Work::System(_) | Work::Command(..) | Work::Transfer(..) | Work::Member(..) => {
                return None;
            }
        };
        self.map.system().shape(source)
    }
}
