//! Requests that entered at this node: cut into parts of one group each, kept until the group's
//! leader has answered, asked again when the leader changes, and put together. Sessions of
//! connections are opened in a group before its first write, and ended in all groups when the
//! connection ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::cutting::{Piece, Pieces, cut};
use super::input::{ConnectionId, Manner, Work};
use super::whole::{Kind, Whole};
use crate::command::Request;
use crate::consensus::Time;
use crate::ids::{GroupId, NodeId, SessionId};
use crate::system::Shape;
use crate::wire::{Op, Refusal, Reply};

/// How long a part waits for an answer before it is sent again.
const ASK_AGAIN: Time = 1_000;
/// How long a part waits after a refusal that may pass.
const PAUSE: Time = 10;
/// A write waits while its number is so far above the lowest one that is not answered: the groups'
/// windows of numbers are larger.
const WINDOW: u64 = 512;

/// Who gets the answer of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    /// A user's request; the offset of the part within it.
    Request {
        connection: ConnectionId,
        ticket: u64,
        at: u64,
    },
    /// The connection waits until its session is open in the group.
    Opening(ConnectionId),
    /// The node itself: errands are asked until they are done.
    Errand(u64),
}

/// A part of a request.
struct Part {
    whom: For,
    group: GroupId,
    op: Op,
    /// When it has waited for a leader as long as it may.
    deadline: Option<Time>,
    direct: bool,
    /// To which node it was sent, and when.
    sent: Option<(NodeId, Time)>,
    /// False until it was sent once: it is, also at its deadline, where there is a leader.
    was_sent: bool,
    /// Not before this time.
    not_before: Time,
    /// False while the session is being opened in the group.
    is_open: bool,
}

/// What is to be done with a part now.
enum Next {
    Send(NodeId),
    Wait,
    Refuse(Refusal),
}

impl Part {
    fn is_late(&self, now: Time) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// What is to be done now that the group has this leader, at the node `me`.
    fn next(&self, now: Time, leader: Option<NodeId>, me: NodeId) -> Next {
        let is_leader = |(to, at): (NodeId, Time)| leader == Some(to) && at + ASK_AGAIN > now;
        if self.sent.is_some_and(is_leader) {
            // The leader is at it.
            return Next::Wait;
        }
        if !self.is_open {
            // Also one that may not wait does so for a leader to open its session.
            let patience = leader.map_or(0, |_| ASK_AGAIN);
            let is_late = self.is_late(now.saturating_sub(patience));
            return if is_late {
                Next::Refuse(Refusal::NoQuorum)
            } else {
                Next::Wait
            };
        }
        let may_be_sent = self.not_before <= now && !(self.was_sent && self.is_late(now));
        match leader {
            _ if self.direct && leader != Some(me) => Next::Refuse(Refusal::NotLeader(leader)),
            Some(to) if may_be_sent => Next::Send(to),
            _ if self.is_late(now) => Next::Refuse(Refusal::NoQuorum),
            _ => Next::Wait,
        }
    }
}

/// A user's connection.
struct Connection {
    session: SessionId,
    next_number: u64,
    /// Numbers that are not answered.
    outstanding: BTreeSet<u64>,
    /// Groups in which the session is open.
    open: BTreeSet<GroupId>,
    /// Groups in which it is being opened, and the parts that wait for it.
    opening: BTreeMap<GroupId, Vec<u64>>,
    wholes: HashMap<u64, Whole>,
}

/// What follows from an answer.
pub(super) enum Followed {
    /// A request is answered.
    Answer(ConnectionId, u64, Result<Reply, Refusal>),
    /// An errand is done, or refused for good.
    Errand(u64, Result<Reply, Refusal>),
    /// The connection's session was forgotten.
    End(ConnectionId),
}

/// The requests of this node's users.
pub(super) struct Router {
    node: NodeId,
    life: u64,
    groups: u16,
    next_part: u64,
    parts: BTreeMap<u64, Part>,
    connections: BTreeMap<ConnectionId, Connection>,
    next_session: u64,
    /// The latest time that it has been called with.
    now: Time,
}

impl Router {
    pub(super) fn new(node: NodeId, life: u64) -> Router {
        Router {
            node,
            life,
            groups: 0,
            // An answer to a part of an earlier life may still come: no life has numbers of another
            // one.
            next_part: (life << 24).max(1),
            parts: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_session: 1,
            now: 0,
        }
    }

    /// The number of groups is known once the cluster is formed.
    pub(super) fn set_groups(&mut self, groups: u16) {
        self.groups = groups;
    }

    pub(super) fn open(&mut self, id: ConnectionId) {
        let session = self.new_session();
        let connection = Connection {
            session,
            next_number: 1,
            outstanding: BTreeSet::new(),
            open: BTreeSet::new(),
            opening: BTreeMap::new(),
            wholes: HashMap::new(),
        };
        self.connections.insert(id, connection);
    }

    fn new_session(&mut self) -> SessionId {
        let connection = self.next_session;
        self.next_session += 1;
        SessionId {
            node: self.node,
            life: self.life,
            connection,
        }
    }

    /// Ends the connection's session in every group that may know it. Answers that come later are
    /// ignored.
    pub(super) fn closed(&mut self, id: ConnectionId, now: Time) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        self.parts.retain(|_, part| match part.whom {
            For::Request { connection, .. } | For::Opening(connection) => connection != id,
            For::Errand(_) => true,
        });
        let opening: Vec<GroupId> = connection.opening.into_keys().collect();
        for group in connection.open.into_iter().chain(opening) {
            self.errand(0, group, Op::Close(connection.session), now);
        }
    }

    /// Asks the group's leader until it is done. `key` comes back with the answer.
    pub(super) fn errand(&mut self, key: u64, group: GroupId, op: Op, now: Time) {
        self.add(For::Errand(key), group, op, None, false, now);
    }

    fn add(
        &mut self,
        whom: For,
        group: GroupId,
        op: Op,
        deadline: Option<Time>,
        direct: bool,
        now: Time,
    ) -> u64 {
        let id = self.next_part;
        self.next_part += 1;
        let part = Part {
            whom,
            group,
            op,
            deadline,
            direct,
            sent: None,
            was_sent: false,
            not_before: now,
            is_open: true,
        };
        self.parts.insert(id, part);
        id
    }

    /// Takes a request on. `shape` is the volume's, or the snapshot's.
    pub(super) fn begin(
        &mut self,
        now: Time,
        connection: ConnectionId,
        ticket: u64,
        work: Work,
        manner: Manner,
        shape: Option<Shape>,
    ) -> Result<(), Refusal> {
        if !self.connections.contains_key(&connection) {
            return Err(Refusal::NoSession);
        }
        let (kind, length) = match &work {
            Work::Read { length, .. } | Work::ReadLocal { length, .. } => {
                (Kind::Bytes, *length as usize)
            }
            Work::Allocation { .. } => (Kind::Runs, 0),
            _ => (Kind::Other, 0),
        };
        let mut whole = Whole::new(kind, length, manner);
        let pieces = match cut(work, shape, self.groups)? {
            Pieces::All(pieces) => pieces,
            Pieces::Discard(rest) => {
                whole.follow(rest);
                Vec::new()
            }
        };
        if pieces.is_empty() && !whole.follows() {
            return Err(Refusal::Failed("a request for no bytes".to_string()));
        }
        self.now = self.now.max(now);
        if let Some(state) = self.connections.get_mut(&connection) {
            state.wholes.insert(ticket, whole);
        }
        for piece in pieces {
            self.ask_for(connection, ticket, piece, manner);
        }
        self.go_on(connection, ticket);
        Ok(())
    }

    /// Asks for the parts of a discard that there is room for.
    fn go_on(&mut self, connection: ConnectionId, ticket: u64) {
        while let Some(state) = self.connections.get_mut(&connection)
            && let Some(whole) = state.wholes.get_mut(&ticket)
            && let Some(piece) = whole.next(state.outstanding.len())
        {
            let manner = whole.manner;
            self.ask_for(connection, ticket, piece, manner);
        }
    }

    /// Adds a part of a request. It waits for a leader as long as the request may, from now on.
    fn ask_for(&mut self, connection: ConnectionId, ticket: u64, piece: Piece, manner: Manner) {
        let Piece { group, at, mut op } = piece;
        let deadline = Some(self.now.saturating_add(manner.wait));
        let mut waits = false;
        if let Some(by) = request_of(&mut op) {
            waits = self.number(connection, group, by, manner);
        }
        let whom = For::Request {
            connection,
            ticket,
            at,
        };
        let id = self.add(whom, group, op, deadline, manner.direct, self.now);
        let Some(state) = self.connections.get_mut(&connection) else {
            return;
        };
        if let Some(whole) = state.wholes.get_mut(&ticket) {
            whole.expect();
        }
        if waits {
            if let Some(part) = self.parts.get_mut(&id) {
                part.is_open = false;
            }
            if let Some(parts) = state.opening.get_mut(&group) {
                parts.push(id);
            }
        }
    }

    /// Gives a write its session and number. True where it waits until the session is open in the
    /// group.
    fn number(
        &mut self,
        id: ConnectionId,
        group: GroupId,
        by: &mut Request,
        manner: Manner,
    ) -> bool {
        let Some(state) = self.connections.get_mut(&id) else {
            return false;
        };
        by.session = state.session;
        by.number = state.next_number;
        state.next_number += 1;
        state.outstanding.insert(by.number);
        if state.open.contains(&group) {
            return false;
        }
        let session = state.session;
        if let std::collections::btree_map::Entry::Vacant(entry) = state.opening.entry(group) {
            entry.insert(Vec::new());
            let op = Op::Open(session);
            // Opening is of use for later requests, too: it has no deadline of its own unless it
            // may not wait.
            let (now, direct) = (self.now, manner.direct);
            let deadline = direct.then(|| now.saturating_add(manner.wait));
            self.add(For::Opening(id), group, op, deadline, direct, now);
        }
        true
    }

    /// The parts that are to be sent now, to the leader that `leader` names. Parts that waited too
    /// long are refused.
    pub(super) fn due(
        &mut self,
        now: Time,
        leader: &dyn Fn(GroupId) -> Option<NodeId>,
        followed: &mut Vec<Followed>,
    ) -> Vec<(u64, GroupId, NodeId, Op)> {
        self.now = self.now.max(now);
        let mut due = Vec::new();
        let mut late = Vec::new();
        for (id, part) in &mut self.parts {
            let leader = leader(part.group);
            let to = match part.next(now, leader, self.node) {
                Next::Send(to) => to,
                Next::Wait => continue,
                Next::Refuse(refusal) => {
                    late.push((*id, refusal));
                    continue;
                }
            };
            let mut op = part.op.clone();
            if let (Some(by), For::Request { connection, .. }) = (request_of(&mut op), part.whom) {
                let state = self.connections.get(&connection);
                // Numbers of a session before it say nothing of this one.
                let state = state.filter(|state| state.session == by.session);
                let least = state.and_then(|state| state.outstanding.first().copied());
                by.answered = least.unwrap_or(by.number);
                if by.number >= by.answered + WINDOW {
                    if part.is_late(now) {
                        late.push((*id, Refusal::NoQuorum));
                    }
                    continue;
                }
            }
            part.sent = Some((to, now));
            part.was_sent = true;
            due.push((*id, part.group, to, op));
        }
        for (id, refusal) in late {
            self.end(id, Err(refusal), followed);
        }
        due
    }

    /// The link to a node broke: what was sent there is sent again.
    pub(super) fn disconnected(&mut self, node: NodeId) {
        for part in self.parts.values_mut() {
            if part.sent.is_some_and(|(to, _)| to == node) {
                part.sent = None;
            }
        }
    }

    /// A leader answered, or this node's own group did.
    pub(super) fn answered(
        &mut self,
        now: Time,
        id: u64,
        result: Result<Reply, Refusal>,
        followed: &mut Vec<Followed>,
    ) {
        self.now = self.now.max(now);
        let Some(part) = self.parts.get_mut(&id) else {
            return;
        };
        if part.op.learns_from(&result) {
            (part.sent, part.was_sent) = (None, false);
            return;
        }
        let may_pass = matches!(
            result,
            Err(Refusal::NotLeader(_) | Refusal::Busy | Refusal::NoQuorum)
        );
        let is_errand = matches!(part.whom, For::Errand(_));
        if may_pass && (!part.direct || is_errand) {
            part.sent = None;
            part.not_before = now + PAUSE;
            return;
        }
        self.end(id, result, followed);
    }

    fn end(&mut self, id: u64, result: Result<Reply, Refusal>, followed: &mut Vec<Followed>) {
        let Some(mut part) = self.parts.remove(&id) else {
            return;
        };
        match part.whom {
            For::Errand(key) => followed.push(Followed::Errand(key, result)),
            For::Opening(connection) => self.opened(connection, part.group, result, followed),
            For::Request {
                connection,
                ticket,
                at,
            } => {
                let Some(state) = self.connections.get_mut(&connection) else {
                    return;
                };
                let mut may_happen = false;
                if let Some(by) = request_of(&mut part.op)
                    && by.session == state.session
                {
                    if result == Err(Refusal::NoSession) {
                        followed.push(Followed::End(connection));
                    }
                    may_happen = part.was_sent && matches!(result, Err(Refusal::NoQuorum));
                    if !may_happen {
                        state.outstanding.remove(&by.number);
                    }
                }
                if may_happen {
                    self.renew_session(connection, followed);
                }
                let Some(state) = self.connections.get_mut(&connection) else {
                    return;
                };
                let Some(whole) = state.wholes.get_mut(&ticket) else {
                    return;
                };
                if !whole.add(at, result) {
                    self.go_on(connection, ticket);
                } else if let Some(whole) = state.wholes.remove(&ticket) {
                    followed.push(Followed::Answer(connection, ticket, whole.result()));
                }
            }
        }
    }

    /// A write got no answer and may still happen: its number would hold the session's window back
    /// for ever. The session ends, so the write does not happen after that, and the connection goes
    /// on with another.
    fn renew_session(&mut self, id: ConnectionId, followed: &mut Vec<Followed>) {
        let session = self.new_session();
        let now = self.now;
        let Some(state) = self.connections.get_mut(&id) else {
            return;
        };
        let old = std::mem::replace(&mut state.session, session);
        state.outstanding.clear();
        let mut groups: Vec<GroupId> = std::mem::take(&mut state.open).into_iter().collect();
        let mut waiting = Vec::new();
        for (group, parts) in std::mem::take(&mut state.opening) {
            groups.push(group);
            waiting.extend(parts);
        }
        // The old session is not opened any more.
        self.parts
            .retain(|_, part| part.whom != For::Opening(id) || part.op != Op::Open(old));
        for group in groups {
            self.errand(0, group, Op::Close(old), now);
        }
        for part in waiting {
            self.end(part, Err(Refusal::NoQuorum), followed);
        }
    }

    fn opened(
        &mut self,
        id: ConnectionId,
        group: GroupId,
        result: Result<Reply, Refusal>,
        followed: &mut Vec<Followed>,
    ) {
        let Some(state) = self.connections.get_mut(&id) else {
            return;
        };
        let waiting = state.opening.remove(&group).unwrap_or_default();
        match result {
            Ok(_) => {
                state.open.insert(group);
                for id in waiting {
                    if let Some(part) = self.parts.get_mut(&id) {
                        part.is_open = true;
                    }
                }
            }
            Err(refusal) => {
                if refusal == Refusal::NoSession {
                    followed.push(Followed::End(id));
                }
                for id in waiting {
                    self.end(id, Err(refusal.clone()), followed);
                }
            }
        }
    }

    /// Parts of requests and errands that are not answered.
    #[cfg(test)]
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Requests of users that are not answered.
    pub(super) fn outstanding(&self) -> usize {
        self.connections
            .values()
            .map(|state| state.wholes.len())
            .sum()
    }
}

/// The request of an operation that happens once.
fn request_of(op: &mut Op) -> Option<&mut Request> {
    match op {
        Op::Write { by, .. } | Op::Discard { by, .. } | Op::Order { by, .. } => Some(by),
        _ => None,
    }
}
