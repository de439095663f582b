//! A node without I/O: what happened goes in, what is to be done comes out. The driver of threads and the simulator run the
//! same core.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::group::{Group, PendingRead};
use super::images::Images;
use super::input::{Action, ConnectionId, Input, Manner, ReadFailure, ReadKind, ReadResult, Work};
use super::leader::{Origin, Pending};
use super::log::Entry;
use super::router::{Followed, Router};
use super::settings::Settings;
use crate::consensus::{Message, Output, Time};
use crate::error::Error;
use crate::extents::{Extents, Kind, Reader};
use crate::ids::{Ballot, GroupId, NodeId, Slot};
use crate::map::Map;
use crate::system::{Shape, group_at};
use crate::wire::{Formation, Frame, Hello, Op, Packet, Refusal, Reply, Source};

/// Commands that came with a message, by slot.
pub(super) type Bodies = BTreeMap<Slot, Arc<Vec<u8>>>;

/// What a read is for.
pub(super) enum ReadFor {
    /// The answer to a request.
    Origin(Origin),
    /// A part of a block is merged with what was read.
    Merge(GroupId),
    /// A request that asked for what this node has.
    Local(ConnectionId, u64),
    /// Another replica's damaged block: its node, and the number of its question.
    Fetch(NodeId, u64),
    /// A piece of an image for another replica, and the image's number.
    Piece(NodeId, u64),
    /// Vacuum, scrub, flushes and merges.
    Upkeep,
}

/// A read that is running, or that waits for a block to be healed.
pub(super) struct RunningRead {
    pub(super) whom: ReadFor,
    pub(super) work: super::input::ReadWork,
    /// How often it was tried again after a block was healed.
    pub(super) tries: u32,
}

/// A node.
pub struct Core {
    pub(super) me: Hello,
    pub(super) settings: Settings,
    pub(super) now: Time,
    pub(super) map: Arc<Map>,
    pub(super) extents: Extents,
    pub(super) reader: Reader,
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) formation: Option<Formation>,
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
    after_sync: VecDeque<(u64, NodeId, Packet)>,
    is_syncing: bool,
    /// The disk failed: this replica has stepped back.
    pub(super) failed: Option<Error>,
    pub(super) running: HashMap<u64, RunningRead>,
    /// Reads that the protocol has not allowed yet.
    asked: HashMap<u64, (GroupId, PendingRead)>,
    next_ticket: u64,
    pub(super) actions: Vec<Action>,
    /// Bytes of data that commands of users brought.
    pub(super) user_bytes: u64,
    upkeep_failures: u64,
    last_upkeep_failure: String,
    pub(super) last_ticks: super::errands::Ticks,
}

/// What [`Core::new`] is made of, by `open`.
pub(super) struct Opened {
    pub(super) me: Hello,
    pub(super) settings: Settings,
    pub(super) now: Time,
    pub(super) map: Arc<Map>,
    pub(super) extents: Extents,
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) formation: Option<Formation>,
}

impl Core {
    pub(super) fn new(opened: Opened) -> Core {
        let mut router = Router::new(opened.me.node, opened.me.life);
        if let Some(formation) = &opened.formation {
            router.set_groups(formation.groups);
        }
        Core {
            router,
            reader: opened.extents.reader(),
            me: opened.me,
            settings: opened.settings,
            now: opened.now,
            map: opened.map,
            extents: opened.extents,
            groups: opened.groups,
            is_announced: opened.formation.is_some(),
            formed_at: 0,
            formation: opened.formation,
            images: Images::default(),
            healing: super::heal::Healing::default(),
            errands: super::errands::Errands::default(),
            vacuum: super::space::Vacuum::default(),
            peers: BTreeMap::new(),
            lost: BTreeMap::new(),
            after_sync: VecDeque::new(),
            is_syncing: false,
            failed: None,
            running: HashMap::new(),
            asked: HashMap::new(),
            next_ticket: 1,
            actions: Vec::new(),
            user_bytes: 0,
            upkeep_failures: 0,
            last_upkeep_failure: String::new(),
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

    /// Takes what happened at `now` (milliseconds, never stepping back), and returns what is to be done.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Action> {
        self.now = self.now.max(now);
        match input {
            Input::Tick => self.tick(),
            Input::Connected(hello) => self.connected(hello),
            Input::Disconnected(node) => self.disconnected(node),
            Input::Frame(from, bytes) => self.frame(from, &bytes),
            Input::BatchDone(result) => self.batch_done(result),
            Input::ReadDone(ticket, result) => self.read_done(ticket, result),
            Input::Open(connection) => self.router.open(connection),
            Input::Closed(connection) => self.router.closed(connection, self.now),
            Input::Request {
                connection,
                ticket,
                work,
                manner,
            } => self.request(connection, ticket, work, manner),
        }
        self.route();
        self.start_batch();
        std::mem::take(&mut self.actions)
    }

    fn tick(&mut self) {
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        for id in ids {
            self.step(id, &mut Bodies::new(), |core, now, out| core.tick(now, out));
        }
        self.run_errands();
        self.tick_images();
        self.tick_space();
    }

    fn connected(&mut self, hello: Hello) {
        let node = hello.node;
        self.lost.remove(&node);
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
        let mut outputs = Vec::new();
        act(&mut group.consensus, self.now, &mut outputs);
        for output in outputs {
            self.output(id, output, bodies);
        }
    }

    fn output(&mut self, id: GroupId, output: Output, bodies: &mut Bodies) {
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
                    let body = body.unwrap_or_else(|| Arc::new(vec![0]));
                    self.append_entry(id, meta.slot, meta.ballot, body);
                }
            }
            Output::Chosen(slot) => {
                if let Some(group) = self.groups.get_mut(&id) {
                    group.chosen = group.chosen.max(slot);
                }
                self.apply(id);
            }
            Output::Read { ticket, result } => self.read_allowed(id, ticket, result),
            Output::Leadership => self.leadership(id),
            Output::NeedsImage(node) => self.images.wanted(id, node),
        }
    }

    /// Puts a record into the batch that is being collected. A new segment begins with what is needed to read from there.
    pub(super) fn append(
        &mut self,
        kind: Kind,
        group: GroupId,
        slot: u64,
        ballot: Ballot,
        payload: &[&[u8]],
    ) -> Option<crate::extents::Placed> {
        if self.failed.is_some() {
            return None;
        }
        let (me, formation, groups) = (&self.me, self.formation.as_ref(), &self.groups);
        let mut heads = || super::open::heads(me, formation, groups.values());
        match self
            .extents
            .append(kind, group, slot, ballot, payload, &mut heads)
        {
            Ok(placed) => Some(placed),
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    fn append_entry(&mut self, id: GroupId, slot: Slot, ballot: Ballot, body: Arc<Vec<u8>>) {
        let Some(placed) = self.append(Kind::Entry, id, slot.0, ballot, &[&body]) else {
            return;
        };
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        let entry = Entry {
            ballot,
            record: placed.place,
            payload: placed.payload,
            end: placed.lsn_end,
            body: Some(body),
        };
        group.durable = group.durable.min(slot.previous());
        let is_next = group.log.put(slot, entry);
        debug_assert!(is_next, "entries are appended in the order of slots");
    }

    fn send_message(&mut self, id: GroupId, to: NodeId, message: Message, after_sync: bool) {
        let mut bodies = Vec::new();
        if let Message::Accept { entries, .. } = &message {
            for meta in entries {
                match self.body(id, meta.slot, meta.ballot) {
                    Some(body) => bodies.push(body),
                    // The entry cannot be read: the message is as good as lost.
                    None => return,
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
        match after_sync && self.extents.synced() < end {
            true => self.after_sync.push_back((end, to, packet)),
            false => self.actions.push(Action::Send(to, packet)),
        }
    }

    /// The command of an entry, from memory or from disk.
    pub(super) fn body(&self, id: GroupId, slot: Slot, ballot: Ballot) -> Option<Arc<Vec<u8>>> {
        let entry = self.groups.get(&id)?.log.get(slot)?;
        if entry.ballot != ballot {
            return None;
        }
        if let Some(body) = &entry.body {
            return Some(body.clone());
        }
        let (header, payload) = self.reader.read_record(entry.record).ok()?;
        (header.group == id && header.slot == slot.0).then(|| Arc::new(payload))
    }

    fn start_batch(&mut self) {
        if self.is_syncing || self.failed.is_some() {
            return;
        }
        if let Some(batch) = self.extents.take_batch() {
            self.is_syncing = true;
            self.actions.push(Action::Batch(batch));
        }
    }

    fn batch_done(&mut self, result: Result<u64, Error>) {
        self.is_syncing = false;
        let end = match result {
            Ok(end) => end,
            Err(error) => return self.fail(error),
        };
        self.extents.batch_done(end);
        while let Some((_, to, packet)) = self.after_sync.pop_front_if(|(at, ..)| *at <= end) {
            self.actions.push(Action::Send(to, packet));
        }
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        for id in ids {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let durable = group.log.durable(end, group.durable);
            if durable > group.durable
                && let Some(ballot) = group.log.ballot_at(durable)
            {
                group.durable = durable;
                self.step(id, &mut Bodies::new(), |core, now, out| {
                    core.appended_durably(now, durable, ballot, out);
                });
                self.apply(id);
            }
        }
        self.moves_synced(end);
        self.images_synced(end);
    }

    /// A task of upkeep failed. What fails for good is seen by writes, too; the task is tried again.
    fn upkeep_failed(&mut self, refusal: &Refusal) {
        self.upkeep_failures += 1;
        self.last_upkeep_failure = refusal.to_string();
    }

    /// The disk failed: this replica steps back, for good.
    pub(super) fn fail(&mut self, error: Error) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error);
        self.after_sync.clear();
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        for id in ids {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let mut outputs = Vec::new();
            group.consensus.step_back(&mut outputs);
            for output in outputs {
                if !matches!(output, Output::Append(_) | Output::Vote { .. }) {
                    self.output(id, output, &mut Bodies::new());
                }
            }
        }
    }

    fn frame(&mut self, from: NodeId, bytes: &[u8]) {
        let Some(frame) = Frame::decode(bytes) else {
            return;
        };
        match frame {
            Frame::Form(formation) => self.form(from, formation),
            Frame::Hello(hello) => self.heard_hello(from, hello),
            _ if !self.is_member(from) => {}
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
                self.image_piece(from, group, image, piece, at, last, &bytes);
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

    fn message(&mut self, from: NodeId, id: GroupId, message: Message, bodies: Vec<Arc<Vec<u8>>>) {
        let Some(group) = self.groups.get(&id) else {
            return;
        };
        // A member is a node with the disk that it had when it became one: the answers of any other do not count. What a
        // leader or candidate says is taken also where this replica does not know yet that the node has another disk, or it
        // would never learn so; what they are worth is for their ballots and logs to say.
        let disk = self.peers.get(&from).map(|hello| hello.disk);
        let is_answer = matches!(
            message,
            Message::Promise { .. } | Message::Accepted { .. } | Message::Refused { .. }
        );
        let is_other = group
            .consensus
            .members()
            .get(from)
            .is_some_and(|member| Some(member.disk) != disk);
        if is_answer && is_other {
            return;
        }
        let mut by_slot = Bodies::new();
        if let Message::Accept { entries, .. } = &message {
            let fits = |(meta, body): (&crate::consensus::Meta, &Arc<Vec<u8>>)| {
                meta.bytes as usize == body.len()
            };
            if entries.len() != bodies.len() || !entries.iter().zip(&bodies).all(fits) {
                return;
            }
            by_slot = entries.iter().map(|meta| meta.slot).zip(bodies).collect();
        }
        self.step(id, &mut by_slot, |core, now, out| {
            core.receive(now, from, message, out)
        });
    }

    /// A request to the leader of a group.
    fn ask(&mut self, id: GroupId, origin: Origin, op: Op) {
        if let Err(refusal) = self.try_ask(id, origin, op) {
            self.answer(origin, Err(refusal));
        }
    }

    fn try_ask(&mut self, id: GroupId, origin: Origin, op: Op) -> Result<(), Refusal> {
        let Some(group) = self.groups.get_mut(&id) else {
            return Err(Refusal::NotLeader(None));
        };
        if !group.leads || self.failed.is_some() {
            let leader = group
                .consensus
                .leader()
                .filter(|leader| *leader != self.me.node);
            return Err(Refusal::NotLeader(leader));
        }
        match op {
            Op::Read {
                source,
                offset,
                length,
                allocation,
            } => {
                let ticket = self.ticket();
                let read = PendingRead {
                    origin,
                    source,
                    offset,
                    length,
                    allocation,
                };
                self.asked.insert(ticket, (id, read));
                self.step(id, &mut Bodies::new(), |core, now, out| {
                    core.read(now, ticket, out)
                });
            }
            Op::Write {
                by,
                volume,
                offset,
                data,
            } => {
                let length = data.len() as u64;
                let pending = self.pending(id, origin, by, volume, (offset, length), Some(data))?;
                self.queue(id, pending)?;
            }
            Op::Discard {
                by,
                volume,
                offset,
                length,
            } => {
                let pending = self.pending(id, origin, by, volume, (offset, length), None)?;
                self.queue(id, pending)?;
            }
            Op::Open(session) => {
                let command = crate::command::Command::OpenSession(session);
                self.propose_command(id, Some(origin), &command)?;
            }
            Op::Close(session) => {
                let command = crate::command::Command::CloseSession(session);
                self.propose_command(id, Some(origin), &command)?;
            }
            Op::Command(bytes) => match crate::command::Command::decode(&bytes) {
                Some((command, [])) => self.propose_command(id, Some(origin), &command)?,
                _ => return Err(Refusal::Failed("the command cannot be read".to_string())),
            },
            Op::Transfer(to) => {
                self.step(id, &mut Bodies::new(), |core, now, out| {
                    core.transfer(now, to, out)
                });
                self.answer(origin, Ok(Reply::Done));
            }
            Op::Member(change) => self.change_members(id, origin, change)?,
        }
        Ok(())
    }

    pub(super) fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn pending(
        &mut self,
        id: GroupId,
        origin: Origin,
        by: crate::command::Request,
        volume: crate::ids::VolumeId,
        (offset, length): (u64, u64),
        data: Option<Arc<Vec<u8>>>,
    ) -> Result<Pending, Refusal> {
        let block_size = self.map.block_size(id, volume).ok_or(Refusal::NoVolume)?;
        let block = u64::from(block_size);
        let end = offset.checked_add(length).ok_or(Refusal::OutOfRange)?;
        let blocks = offset / block..end.div_ceil(block);
        if blocks.is_empty() || blocks.end - blocks.start > u64::from(crate::command::MOST_BLOCKS) {
            return Err(Refusal::OutOfRange);
        }
        let data = data.map(|data| ((offset % block) as usize, data));
        let span = super::leader::Span { volume, blocks };
        Ok(Pending {
            origin,
            by,
            span,
            data,
            block_size,
        })
    }

    fn queue(&mut self, id: GroupId, pending: Pending) -> Result<(), Refusal> {
        let Some(group) = self.groups.get_mut(&id) else {
            return Err(Refusal::NotLeader(None));
        };
        if group.leader.queue(pending)? {
            self.run_queue(id);
        }
        Ok(())
    }

    /// Makes commands of the writes that need not wait.
    pub(super) fn run_queue(&mut self, id: GroupId) {
        while let Some(pending) = self
            .groups
            .get_mut(&id)
            .and_then(|group| group.leader.runnable())
        {
            if pending.is_partial() {
                let ticket = self.ticket();
                let block = u64::from(pending.block_size);
                let blocks = &pending.span.blocks;
                let work = super::input::ReadWork {
                    group: id,
                    kind: super::input::ReadKind::Bytes {
                        source: Source::Volume(pending.span.volume),
                        offset: blocks.start * block,
                        length: ((blocks.end - blocks.start) * block) as u32,
                    },
                };
                if let Some(group) = self.groups.get_mut(&id) {
                    group.leader.merge(ticket, pending);
                }
                self.start_read(ticket, ReadFor::Merge(id), work);
            } else {
                let data = pending.data.as_ref().map(|(_, data)| data.clone());
                self.propose_write(id, pending, data.as_ref().map_or(&[][..], |data| data));
            }
        }
    }

    fn propose_write(&mut self, id: GroupId, pending: Pending, data: &[u8]) {
        let body = Arc::new(super::leader::command(&pending, data));
        match self.propose(id, body, None) {
            Ok(slot) => {
                if let Some(group) = self.groups.get_mut(&id) {
                    group.leader.proposed(slot, &pending);
                }
            }
            Err(refusal) => {
                if let Some(group) = self.groups.get_mut(&id) {
                    group.leader.dropped(&pending);
                }
                self.answer(pending.origin, Err(refusal));
            }
        }
    }

    pub(super) fn propose_command(
        &mut self,
        id: GroupId,
        origin: Option<Origin>,
        command: &crate::command::Command,
    ) -> Result<(), Refusal> {
        let mut body = Vec::new();
        command.encode(&mut body);
        let members = match command {
            crate::command::Command::Members(members) => Some(members.clone()),
            _ => None,
        };
        let slot = self.propose(id, Arc::new(body), members)?;
        if let Some(group) = self.groups.get_mut(&id) {
            group.leader.proposed_other(slot, origin);
        }
        Ok(())
    }

    fn propose(
        &mut self,
        id: GroupId,
        body: Arc<Vec<u8>>,
        members: Option<Arc<crate::members::Members>>,
    ) -> Result<Slot, Refusal> {
        let Some(group) = self.groups.get_mut(&id) else {
            return Err(Refusal::NotLeader(None));
        };
        let mut outputs = Vec::new();
        let proposed = group
            .consensus
            .propose(self.now, body.len() as u32, members, &mut outputs);
        let slot = match proposed {
            Ok(slot) => slot,
            Err(error) => return Err(refused(error)),
        };
        let mut bodies = Bodies::from([(slot, body)]);
        for output in outputs {
            self.output(id, output, &mut bodies);
        }
        Ok(slot)
    }

    fn read_allowed(&mut self, id: GroupId, ticket: u64, result: Result<Slot, Option<NodeId>>) {
        let Some((_, read)) = self.asked.remove(&ticket) else {
            return;
        };
        match result {
            Err(leader) => {
                let leader = leader.filter(|leader| *leader != self.me.node);
                self.answer(read.origin, Err(Refusal::NotLeader(leader)));
            }
            Ok(slot) => {
                let Some(group) = self.groups.get_mut(&id) else {
                    return;
                };
                match group.applied >= slot {
                    true => self.begin_read(id, read),
                    false => group.reads.push_back((slot, read)),
                }
            }
        }
    }

    pub(super) fn begin_read(&mut self, id: GroupId, read: PendingRead) {
        let PendingRead {
            origin,
            source,
            offset,
            length,
            allocation,
        } = read;
        let kind = match allocation {
            true => super::input::ReadKind::Allocation {
                source,
                offset,
                length,
            },
            false => super::input::ReadKind::Bytes {
                source,
                offset,
                length,
            },
        };
        let ticket = self.ticket();
        let work = super::input::ReadWork { group: id, kind };
        self.start_read(ticket, ReadFor::Origin(origin), work);
    }

    pub(super) fn start_read(&mut self, ticket: u64, whom: ReadFor, work: super::input::ReadWork) {
        self.actions.push(Action::Read(ticket, work.clone()));
        self.running.insert(
            ticket,
            RunningRead {
                whom,
                work,
                tries: 0,
            },
        );
    }

    fn read_done(&mut self, ticket: u64, result: Result<ReadResult, ReadFailure>) {
        let Some(read) = self.running.remove(&ticket) else {
            return;
        };
        if let Err(ReadFailure::Rot {
            layer,
            block,
            checksum,
            place,
        }) = &result
            && !matches!(read.whom, ReadFor::Fetch(..))
        {
            let wanted = super::heal::Wanted {
                group: read.work.group,
                layer: *layer,
                block: *block,
                checksum: *checksum,
                place: *place,
            };
            return self.heal(ticket, read, wanted);
        }
        let result = match result {
            Ok(result) => Ok(result),
            Err(ReadFailure::NoVolume) => Err(Refusal::NoVolume),
            Err(ReadFailure::Rot { .. }) => Err(Refusal::Damaged),
            Err(ReadFailure::Failed(error)) => Err(Refusal::Failed(error.to_string())),
        };
        self.read_ended(ticket, read, result);
    }

    pub(super) fn read_ended(
        &mut self,
        ticket: u64,
        read: RunningRead,
        result: Result<ReadResult, Refusal>,
    ) {
        let reply = |result| match result {
            ReadResult::Bytes(bytes) => Reply::Data(bytes),
            ReadResult::Runs(runs) => Reply::Runs(runs),
            _ => Reply::Done,
        };
        match read.whom {
            ReadFor::Origin(origin) => self.answer(origin, result.map(reply)),
            ReadFor::Local(connection, ticket) => {
                let result = result.map(reply);
                self.actions.push(Action::Answer {
                    connection,
                    ticket,
                    result,
                });
            }
            ReadFor::Fetch(node, id) => {
                let data = match result {
                    Ok(ReadResult::Bytes(bytes)) => Some(bytes),
                    _ => None,
                };
                self.actions
                    .push(Action::Send(node, Frame::Fetched { id, data }.encode()));
            }
            ReadFor::Merge(id) => self.merged(id, ticket, result),
            ReadFor::Upkeep => {
                self.upkeep_done(&read.work.kind, result.is_err());
                match (result, &read.work.kind) {
                    (Ok(ReadResult::Live(live, next)), ReadKind::Live { segment, .. }) => {
                        self.copy(*segment, live, next);
                    }
                    (
                        Ok(ReadResult::Scrubbed {
                            damaged,
                            checked,
                            last,
                        }),
                        _,
                    ) => {
                        self.scrubbed(damaged, checked, last);
                    }
                    (Ok(_), _) => {}
                    (Err(refusal), _) => self.upkeep_failed(&refusal),
                }
            }
            ReadFor::Piece(node, number) => {
                let piece = match result {
                    Ok(ReadResult::Piece(bytes, after)) => Some((bytes, after)),
                    _ => None,
                };
                self.piece_read(node, read.work.group, number, piece);
            }
        }
    }

    fn merged(&mut self, id: GroupId, ticket: u64, result: Result<ReadResult, Refusal>) {
        // The leadership may have ended since; then the write was given up.
        let pending = self
            .groups
            .get_mut(&id)
            .and_then(|group| group.leader.merged(ticket));
        let Some(pending) = pending else { return };
        match (result, &pending.data) {
            (Ok(ReadResult::Bytes(mut bytes)), Some((start, data))) => {
                if let Some(part) = bytes.get_mut(*start..*start + data.len()) {
                    part.copy_from_slice(data);
                }
                self.propose_write(id, pending, &bytes);
            }
            (result, _) => {
                if let Some(group) = self.groups.get_mut(&id) {
                    group.leader.dropped(&pending);
                }
                let refusal = result.err().unwrap_or(Refusal::Damaged);
                self.answer(pending.origin, Err(refusal));
            }
        }
        self.run_queue(id);
    }

    /// Leadership of the group, or what is known of it, has changed.
    fn leadership(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        let leads = group.consensus.is_leader() && self.failed.is_none();
        if leads && !group.leads {
            // Its first entry is the last one now: what was chosen before lies before it.
            group.ready_at = group.consensus.last().0;
        }
        if !leads || !group.leads {
            let given_up = group.leader.give_up();
            let reads = group.reads.drain(..).map(|(_, read)| (read.origin, false));
            let all: Vec<(Origin, bool)> = given_up.into_iter().chain(reads).collect();
            group.leads = leads && group.applied >= group.ready_at;
            let leader = group.consensus.leader();
            let leader = leader.filter(|leader| *leader != self.me.node);
            for (origin, may_happen) in all {
                let refusal = match may_happen {
                    true => Refusal::NoQuorum,
                    false => Refusal::NotLeader(leader),
                };
                self.answer(origin, Err(refusal));
            }
        }
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

    fn follow(&mut self, followed: Vec<Followed>) {
        for followed in followed {
            match followed {
                Followed::Answer(connection, ticket, result) => {
                    self.actions.push(Action::Answer {
                        connection,
                        ticket,
                        result,
                    });
                }
                Followed::Errand(key, result) => self.errand_done(key, result),
                Followed::End(connection) => self.actions.push(Action::End(connection)),
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
                match to == me {
                    true => self.ask(group, Origin::Local(id), op),
                    false => {
                        let packet = Frame::Ask { id, group, op }.encode();
                        self.actions.push(Action::Send(to, packet));
                    }
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

    /// Reads what this node has, piece by piece of one group each: only pieces of one group are given here.
    fn read_local(
        &mut self,
        connection: ConnectionId,
        ticket: u64,
        source: Source,
        (offset, length): (u64, u32),
    ) {
        let groups = self
            .formation
            .as_ref()
            .map_or(1, |formation| formation.groups);
        let Some(shape) = self.map.system().shape(source) else {
            let result = Err(Refusal::NoVolume);
            return self.actions.push(Action::Answer {
                connection,
                ticket,
                result,
            });
        };
        let group = group_at(shape.placement, offset, groups);
        let kind = super::input::ReadKind::Bytes {
            source,
            offset,
            length,
        };
        let work = super::input::ReadWork { group, kind };
        let number = self.ticket();
        self.start_read(number, ReadFor::Local(connection, ticket), work);
    }
}

fn refused(error: crate::consensus::ProposeError) -> Refusal {
    match error {
        crate::consensus::ProposeError::NotLeader { leader } => Refusal::NotLeader(leader),
        crate::consensus::ProposeError::Busy => Refusal::Busy,
        #[allow(unreachable_patterns)]
        other => Refusal::Failed(format!("{other:?}")),
    }
}
