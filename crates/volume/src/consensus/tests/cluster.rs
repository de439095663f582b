//! Random runs of a few replicas: messages are lost, doubled, delayed and reordered, links break,
//! nodes crash and lose what was not synced, clocks run apart, members change, logs are cut,
//! accepted entries rot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::consensus::{Core, Damage, Message, Meta, Output, Settings, Start};
use crate::ids::{Ballot, DiskId, NodeId, Slot};
use crate::members::{Member, Members, Role};

/// What a node has on disk.
#[derive(Clone, Default)]
struct Disk {
    ballot: Ballot,
    vote: Option<NodeId>,
    base: (Slot, Ballot),
    base_members: Arc<Members>,
    log: Vec<Meta>,
    chosen: Slot,
}

enum Write {
    Vote(Ballot, Option<NodeId>),
    Append(Vec<Meta>),
}

impl Disk {
    fn apply(&mut self, write: &Write) {
        match write {
            Write::Vote(ballot, vote) => (self.ballot, self.vote) = (*ballot, *vote),
            Write::Append(metas) => {
                let keep = (metas[0].slot.0 - self.base.0.0 - 1) as usize;
                self.log.truncate(keep);
                self.log.extend(metas.iter().cloned());
            }
        }
    }
}

struct Node {
    core: Option<Core>,
    disk: Disk,
    /// Written, not synced.
    pending: Vec<Write>,
    /// Messages that wait for a sync, by how many writes must be synced.
    after_sync: VecDeque<(usize, NodeId, Message)>,
    synced: usize,
    written: usize,
    sync_at: u64,
    /// Percent of the true speed.
    speed: u64,
    known_chosen: Slot,
    damaged_through: Option<Slot>,
    /// It knows up to where.
    is_known: bool,
}

/// An image under way: as of when it was begun.
struct SentImage {
    at: u64,
    from: NodeId,
    to: NodeId,
    /// Its last slot, with ballot and members.
    state: (Slot, Ballot, Arc<Members>),
}

struct World {
    rng: fastrand::Rng,
    now: u64,
    nodes: BTreeMap<NodeId, Node>,
    network: Vec<(u64, NodeId, NodeId, Message)>,
    cut: BTreeSet<(NodeId, NodeId)>,
    loss: u64,
    chosen: BTreeMap<Slot, Ballot>,
    members_at: BTreeMap<Slot, Arc<Members>>,
    leaders: BTreeMap<Ballot, NodeId>,
    reads: BTreeMap<u64, Slot>,
    next_read: u64,
    settled: u64,
    images: Vec<SentImage>,
    settings: Settings,
    /// A change to two voters was proposed.
    was_small: bool,
}

fn members(nodes: impl IntoIterator<Item = (u32, Role)>) -> Arc<Members> {
    let member = |(node, role)| Member {
        node: NodeId(node),
        disk: DiskId(u64::from(node)),
        address: String::new(),
        role,
    };
    Arc::new(Members::new(nodes.into_iter().map(member)))
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        let voters = if seed % 4 == 3 { 5 } else { 3 };
        let first = members((1..=voters).map(|node| (node, Role::Voter)));
        let settings = Settings {
            window_bytes: 40,
            message_bytes: 12,
            lease: rng.bool(),
            ..Settings::default()
        };
        let mut world = World {
            now: 1000,
            nodes: BTreeMap::new(),
            network: Vec::new(),
            cut: BTreeSet::new(),
            loss: 0,
            chosen: BTreeMap::new(),
            members_at: BTreeMap::from([(Slot(0), first.clone())]),
            leaders: BTreeMap::new(),
            reads: BTreeMap::new(),
            next_read: 0,
            settled: 0,
            images: Vec::new(),
            settings,
            was_small: false,
            rng,
        };
        for node in 1..=voters + 1 {
            let disk = Disk {
                base_members: first.clone(),
                ..Disk::default()
            };
            let speed = 96 + world.rng.u64(0..=8);
            let node_state = Node {
                core: None,
                disk,
                pending: Vec::new(),
                after_sync: VecDeque::new(),
                synced: 0,
                written: 0,
                sync_at: 0,
                speed,
                known_chosen: Slot(0),
                damaged_through: None,
                is_known: true,
            };
            world.nodes.insert(NodeId(node), node_state);
            world.start(NodeId(node));
        }
        world
    }

    fn any(&mut self) -> NodeId {
        NodeId(self.rng.u32(1..=self.nodes.len() as u32))
    }

    fn local(&self, node: NodeId) -> u64 {
        self.now * self.nodes[&node].speed / 100
    }

    fn start(&mut self, id: NodeId) {
        let (now, seed) = (self.local(id), self.rng.u64(..));
        let settings = self.settings.clone();
        let node = self.nodes.get_mut(&id).unwrap();
        let start = Start {
            node: id,
            disk: DiskId(u64::from(id.0)),
            ballot: node.disk.ballot,
            vote: node.disk.vote,
            base: node.disk.base,
            log: node.disk.log.clone(),
            chosen: node.disk.chosen.max(node.disk.base.0),
            members: node.disk.base_members.clone(),
            damage: node.damaged_through.map(|lost| {
                if node.is_known {
                    Damage::Through(lost)
                } else {
                    Damage::Unknown
                }
            }),
            now,
            seed,
        };
        node.known_chosen = start.chosen;
        node.core = Some(Core::new(settings, start));
    }

    fn crash(&mut self, id: NodeId) {
        let keep = self.rng.usize(0..=self.nodes[&id].pending.len());
        // A group survives the damage of a minority, so of one of three and of none of two.
        let mut nodes = self.nodes.values();
        let may_rot = nodes.all(|node| node.damaged_through.is_none()) && !self.was_small;
        let rots = may_rot && self.rng.bool();
        let at = self.rng.u64(..);
        let node = self.nodes.get_mut(&id).unwrap();
        node.core = None;
        let pending = std::mem::take(&mut node.pending);
        // What was written and not synced survives in part.
        pending
            .iter()
            .take(keep)
            .for_each(|write| node.disk.apply(write));
        node.after_sync.clear();
        (node.synced, node.written) = (0, 0);
        let behind: Vec<Slot> = node.disk.log.iter().map(|meta| meta.slot).collect();
        let behind: Vec<Slot> = behind
            .into_iter()
            .filter(|s| *s > node.disk.chosen)
            .collect();
        if rots && !behind.is_empty() {
            let from = behind[at as usize % behind.len()];
            let last = behind[behind.len() - 1];
            node.disk.log.retain(|meta| meta.slot < from);
            node.damaged_through = Some(last);
            node.is_known = at & 1 << 63 == 0;
            if !node.is_known {
                // Its promises are lost, too. Links begin anew.
                let left = node.disk.log.last();
                node.disk.ballot = left.map_or(node.disk.base.1, |meta| meta.ballot);
                node.disk.vote = None;
                self.network.retain(|(_, _, to, _)| *to != id);
            }
        }
    }

    fn act(&mut self, id: NodeId, act: impl FnOnce(&mut Core, u64, &mut Vec<Output>)) {
        let now = self.local(id);
        let Some(core) = self.nodes.get_mut(&id).unwrap().core.as_mut() else {
            return;
        };
        let mut out = Vec::new();
        act(core, now, &mut out);
        for output in out {
            self.output(id, output);
        }
        self.look(id);
    }

    fn write(&mut self, id: NodeId, write: Write) {
        let slow = if self.rng.u8(0..10) == 0 { 300 } else { 15 };
        let delay = self.rng.u64(0..slow);
        let now = self.now;
        let node = self.nodes.get_mut(&id).unwrap();
        if node.pending.is_empty() {
            node.sync_at = now + delay;
        }
        node.pending.push(write);
        node.written += 1;
    }

    fn output(&mut self, id: NodeId, output: Output) {
        match output {
            Output::Send {
                to,
                message,
                after_sync,
            } => {
                let node = self.nodes.get_mut(&id).unwrap();
                if after_sync && node.synced < node.written {
                    node.after_sync.push_back((node.written, to, message))
                } else {
                    self.send(id, to, message)
                }
            }
            Output::Vote { ballot, vote } => self.write(id, Write::Vote(ballot, vote)),
            Output::Append(metas) => self.write(id, Write::Append(metas)),
            Output::Chosen(slot) => self.chosen(id, slot),
            Output::Read { ticket, result } => {
                let at_least = self.reads.remove(&ticket).unwrap();
                if let Ok(slot) = result {
                    assert!(slot >= at_least, "a read at {slot} misses {at_least}");
                }
            }
            Output::Leadership | Output::Mended => {}
            Output::NeedsImage(to) => {
                self.begin_image(id, to);
            }
        }
    }

    fn chosen(&mut self, id: NodeId, slot: Slot) {
        let node = self.nodes.get_mut(&id).unwrap();
        let core = node.core.as_ref().unwrap();
        let mut at = node.known_chosen.next();
        while at <= slot {
            if let Some(meta) = core.meta(at) {
                let known = *self.chosen.entry(at).or_insert(meta.ballot);
                assert_eq!(
                    known, meta.ballot,
                    "slot {at} was chosen with another ballot"
                );
                if let Some(members) = &meta.members {
                    self.members_at.insert(at, members.clone());
                }
            }
            at = at.next();
        }
        node.known_chosen = node.known_chosen.max(slot);
        self.is_durable(id, slot);
    }

    /// What a leader takes for chosen is on the disks of a majority, or was before it rotted there.
    fn is_durable(&self, id: NodeId, slot: Slot) {
        let core = self.nodes[&id].core.as_ref().unwrap();
        let Some(ballot) = core.meta(slot).map(|meta| meta.ballot) else {
            return;
        };
        if !core.is_leader() {
            return;
        }
        let has = |node: &NodeId| {
            let node = &self.nodes[node];
            let mut log = node.disk.log.iter();
            log.any(|meta| (meta.slot, meta.ballot) == (slot, ballot))
                || node.disk.base.0 >= slot
                || node.damaged_through.is_some_and(|lost| lost >= slot)
        };
        let have = core.members().voters().filter(has).count();
        let needed = core.members().majority();
        assert!(
            have >= needed,
            "slot {slot} is on {have} disks, not {needed}"
        );
    }

    fn look(&mut self, id: NodeId) {
        let Some(core) = &self.nodes[&id].core else {
            return;
        };
        if core.is_leader() {
            let leader = *self.leaders.entry(core.ballot()).or_insert(id);
            assert_eq!(leader, id, "two leaders of ballot {}", core.ballot());
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message) {
        let copies = match self.rng.u64(0..100) {
            lot if lot < self.loss => 0,
            lot if lot < self.loss + self.loss / 2 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let slow = if self.loss > 0 && self.rng.u8(0..20) == 0 {
                700
            } else {
                20
            };
            let at = self.now + self.rng.u64(0..slow);
            self.network.push((at, from, to, message.clone()));
        }
    }

    fn sync(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        let writes = std::mem::take(&mut node.pending);
        writes.iter().for_each(|write| node.disk.apply(write));
        node.synced = node.written;
        let mut free = Vec::new();
        while node
            .after_sync
            .front()
            .is_some_and(|(at, ..)| *at <= node.synced)
        {
            free.extend(node.after_sync.pop_front());
        }
        let last = node.disk.log.last().map(|meta| (meta.slot, meta.ballot));
        // After a restart a replica may know what is chosen, as of some time before.
        if self.rng.u8(0..4) == 0 {
            let last = last.map_or(node.disk.base.0, |(slot, _)| slot);
            node.disk.chosen = node.disk.chosen.max(node.known_chosen.min(last));
        }
        free.into_iter()
            .for_each(|(_, to, message)| self.send(id, to, message));
        if let Some((slot, ballot)) = last {
            self.act(id, |core, now, out| {
                core.appended_durably(now, slot, ballot, out)
            });
        }
        let node = self.nodes.get_mut(&id).unwrap();
        if node.core.as_ref().is_some_and(|core| !core.is_damaged()) {
            node.damaged_through = None;
        }
    }

    fn begin_image(&mut self, from: NodeId, to: NodeId) {
        let slot = self.nodes[&from].known_chosen;
        let core = self.nodes[&from].core.as_ref();
        let ballot = core.and_then(|core| {
            if core.base().0 == slot {
                Some(core.base().1)
            } else {
                core.meta(slot).map(|meta| meta.ballot)
            }
        });
        let Some(ballot) = ballot else {
            return self.act(from, |core, _, _| core.image_failed(to));
        };
        let members = self.members_as_of(slot);
        let slow = if self.rng.u8(0..4) == 0 { 2000 } else { 100 };
        let at = self.now + self.rng.u64(0..slow);
        let state = (slot, ballot, members);
        self.images.push(SentImage {
            at,
            from,
            to,
            state,
        });
    }

    fn members_as_of(&self, slot: Slot) -> Arc<Members> {
        let (_, members) = self.members_at.range(..=slot).next_back().unwrap();
        members.clone()
    }

    fn image(&mut self, image: SentImage) {
        let (from, to, (slot, ballot, members)) = (image.from, image.to, image.state);
        let target = self.nodes.get_mut(&to).unwrap();
        let core = target.core.as_ref();
        // The state may be behind what is known to be chosen, the log may be ahead of both.
        let is_new = core.is_some_and(|core| core.base().0 < slot);
        if is_new && target.pending.is_empty() {
            let disk = &mut target.disk;
            let has = |meta: &Meta| (meta.slot, meta.ballot) == (slot, ballot);
            match disk.log.iter().position(has) {
                Some(at) => drop(disk.log.drain(..=at)),
                None => disk.log.clear(),
            }
            disk.base = (slot, ballot);
            disk.base_members = members.clone();
            disk.chosen = disk.chosen.max(slot);
            self.act(to, |core, now, out| {
                core.image_installed(now, (slot, ballot), members, out)
            });
            let node = &self.nodes[&to];
            let last = node.disk.log.last();
            let last = last.map_or(node.disk.base, |meta| (meta.slot, meta.ballot));
            assert_eq!(node.core.as_ref().unwrap().last(), last);
        }
        self.act(from, |core, _, _| core.image_sent(to, slot));
    }

    fn step(&mut self) {
        self.now += self.rng.u64(1..=8);
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in &ids {
            let node = &self.nodes[id];
            if node.core.is_some() && !node.pending.is_empty() && node.sync_at <= self.now {
                self.sync(*id);
            }
            self.act(*id, |core, now, out| core.tick(now, out));
        }
        let due: Vec<usize> = (0..self.network.len())
            .filter(|at| self.network[*at].0 <= self.now)
            .collect();
        for at in due.into_iter().rev() {
            let (_, from, to, message) = self.network.swap_remove(at);
            if !self.cut.contains(&(from, to)) {
                self.act(to, |core, now, out| core.receive(now, from, message, out));
            }
        }
        let all = self.images.drain(..);
        let (due, later): (Vec<SentImage>, _) = all.partition(|image| image.at <= self.now);
        self.images = later;
        due.into_iter().for_each(|image| self.image(image));
    }

    fn leaders(&self) -> Vec<NodeId> {
        let leads = |node: &Node| node.core.as_ref().is_some_and(Core::is_leader);
        self.nodes
            .iter()
            .filter(|(_, node)| leads(node))
            .map(|(id, _)| *id)
            .collect()
    }

    fn propose(&mut self) {
        for id in self.leaders() {
            // Some are sent with the next ones, or with a sign of life.
            let (bytes, is_sent) = (self.rng.u32(1..20), self.rng.u32(..4) > 0);
            self.act(id, |core, now, out| {
                drop(core.propose(now, bytes, None, out));
                if is_sent {
                    core.send_proposed(now, out);
                }
            });
        }
    }

    fn change_members(&mut self) {
        for id in self.leaders() {
            let core = self.nodes[&id].core.as_ref().unwrap();
            let mut new = Members::clone(core.members());
            let node = self.any();
            let known = new.get(node).cloned();
            match known {
                None => new.put(
                    members([(node.0, Role::Learner)])
                        .get(node)
                        .unwrap()
                        .clone(),
                ),
                Some(member) if member.role == Role::Learner => {
                    new.put(Member {
                        role: Role::Voter,
                        ..member
                    });
                }
                Some(_) if self.may_shrink(&new) => new.remove(node),
                Some(_) => continue,
            }
            let new = Arc::new(new);
            self.act(id, |core, now, out| {
                drop(core.propose(now, 5, Some(new), out));
                core.send_proposed(now, out);
            });
        }
    }

    fn may_shrink(&mut self, members: &Members) -> bool {
        let mut nodes = self.nodes.values();
        let is_whole = nodes.all(|node| node.damaged_through.is_none());
        let voters = members.voters().count();
        let may = voters > if is_whole { 2 } else { 3 };
        self.was_small |= may && voters == 3;
        may
    }

    fn read(&mut self) {
        let all = self.leaders();
        all.into_iter().for_each(|id| self.read_at(id));
        let id = self.any();
        self.read_at(id);
    }

    fn read_at(&mut self, id: NodeId) {
        if self.nodes[&id].core.is_none() {
            return;
        }
        // Whatever some replica knows to be chosen may have been acknowledged.
        let at_least = self.chosen.keys().next_back().copied().unwrap_or_default();
        self.next_read += 1;
        let ticket = self.next_read;
        self.reads.insert(ticket, at_least);
        // Some wait for a round that something else begins.
        let is_sent = self.rng.u32(..4) > 0;
        self.act(id, |core, now, out| {
            core.read(now, ticket, out);
            if is_sent {
                core.send_proposed(now, out);
            }
        });
    }

    /// A leader crashes, or hears nothing, or is not heard, and does not know it.
    fn trouble_leader(&mut self, other: NodeId) {
        let leaders = self.leaders();
        let Some(leader) = self.rng.choice(leaders) else {
            return;
        };
        let kind = self.rng.u8(0..4);
        if kind == 0 {
            return self.crash(leader);
        }
        let others: Vec<NodeId> = self.nodes.keys().copied().collect();
        for node in others.into_iter().filter(|node| *node != leader) {
            if kind != 1 && (kind != 3 || node != other) {
                self.cut.insert((leader, node));
            }
            if kind != 2 {
                self.cut.insert((node, leader));
            }
        }
    }

    fn event(&mut self) {
        let (a, b) = (self.any(), self.any());
        let lot = self.rng.u32(0..100);
        // Between troubles there is time for elections and work.
        let is_trouble = (45..49).contains(&lot) || (54..62).contains(&lot) || lot >= 82;
        if is_trouble && self.rng.u8(0..6) > 0 {
            return;
        }
        match lot {
            0..30 => self.propose(),
            30..45 => self.read(),
            45..49 => drop(self.cut.insert((a, b))),
            49..54 => self.cut.clear(),
            54..56 => {
                let all: Vec<NodeId> = self.nodes.keys().copied().collect();
                for other in all.into_iter().filter(|other| *other != a) {
                    self.cut.insert((a, other));
                    self.cut.insert((other, a));
                }
            }
            56..62 => {
                if self.nodes[&a].core.is_some() {
                    self.crash(a)
                } else {
                    self.start(a)
                }
            }
            82..87 => self.trouble_leader(a),
            62..66 if self.nodes[&a].core.is_none() => self.start(a),
            66..70 => self.loss = [0, 0, 5, 20][self.rng.usize(0..4)],
            70..74 => self.change_members(),
            74..77 => {
                for id in self.leaders() {
                    self.act(id, |core, now, out| core.transfer(now, b, out));
                }
            }
            77..82 => {
                // The log is cut up to what is durable as state.
                let node = self.nodes.get_mut(&a).unwrap();
                let upto = Slot(self.rng.u64(0..=node.disk.chosen.0));
                if node.core.is_some() && node.pending.is_empty() && upto > node.disk.base.0 {
                    let (_, members) = self.members_at.range(..=upto).next_back().unwrap();
                    let members = members.clone();
                    let keep = (upto.0 - node.disk.base.0.0) as usize;
                    let ballot = node.disk.log[keep - 1].ballot;
                    node.disk.log.drain(..keep);
                    node.disk.base = (upto, ballot);
                    node.disk.base_members = members;
                    self.act(a, |core, _, _| core.cut(upto));
                }
            }
            _ => {}
        }
    }

    /// Everything works again: the group leads, and what is proposed is chosen by all voters.
    fn settle(&mut self) {
        self.cut.clear();
        self.loss = 0;
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            if self.nodes[&id].core.is_none() {
                self.start(id);
            }
        }
        let before = self.chosen.keys().next_back().copied().unwrap_or_default();
        for _ in 0..4000 {
            self.step();
            if self.rng.u8(0..10) == 0 {
                self.propose();
            }
            let last = self.chosen.keys().next_back().copied().unwrap_or_default();
            let now = self.members_at.last_key_value().unwrap().1.clone();
            let has = |node| self.nodes[&node].known_chosen > before.next();
            if last > before.next() && now.voters().all(has) {
                self.settled += 1;
                return;
            }
        }
        let state: Vec<String> = self
            .nodes
            .iter()
            .map(|(id, node)| {
                format!(
                    "{id}: {:?}",
                    node.core.as_ref().map(|core| {
                        (
                            core.role(),
                            core.leader(),
                            core.ballot(),
                            core.chosen(),
                            core.last(),
                            core.base(),
                            core.is_damaged(),
                            core.members().voters().collect::<Vec<_>>(),
                        )
                    })
                )
            })
            .collect();
        panic!("no progress after healing:\n{}", state.join("\n"));
    }
}

#[test]
fn whatever_happens_replicas_agree_and_go_on_when_they_can() {
    let mut most = (0, 0);
    for seed in esker_sim::seeds(esker_sim::by_tier(40, 150)) {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for round in 0..4 {
                for _ in 0..3000 {
                    world.step();
                    if world.rng.u8(0..3) == 0 {
                        world.event();
                    }
                }
                if round % 2 == 1 {
                    world.settle();
                }
            }
            (world.chosen.len(), world.leaders.len())
        });
        match run {
            Ok((chosen, leaders)) => most = (most.0.max(chosen), most.1.max(leaders)),
            Err(panic) => {
                eprintln!("seed {seed} failed");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(
        most.0 > 200 && most.1 > 5,
        "the runs do little: {most:?} at most"
    );
}
