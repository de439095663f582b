//! The sessions of a group: which requests have happened.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use esker_coding::{Reader, put_varint};

use super::outcome::{Outcome, Refusal};
use super::ranges::Ranges;
use crate::command::Request;
use crate::ids::{NodeId, SessionId, Slot};

/// The most sessions of a group. When more are opened, the oldest one is forgotten.
pub(super) const MOST_SESSIONS: usize = 1024;

/// The most numbers that a session remembers above the lowest one that is not answered.
pub(super) const MOST_NUMBERS: u64 = 1024;

/// The most lives of a node whose sessions count. When more are seen, the oldest one ends.
const MOST_LIVES: usize = 16;

/// The most ranges of opened sessions that are remembered of a life.
const MOST_RANGES: usize = 1024;

/// An open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    /// The slot in which it was opened.
    opened: Slot,
    /// All numbers below are answered.
    answered: u64,
    /// The numbers from there on that have happened.
    happened: Ranges,
}

impl Session {
    /// The session behind the request; an error where the request does nothing, and which outcome
    /// it has then.
    pub(super) fn with(&self, by: &Request) -> Result<Session, Outcome> {
        if self.happened.contains(by.number) {
            return Err(Outcome::Repeated);
        }
        let mut next = self.clone();
        next.answered = self.answered.max(by.answered);
        next.happened.remove_below(next.answered);
        if by.number < next.answered {
            return Err(Outcome::Refused(Refusal::Answered));
        }
        if next.happened.count() >= MOST_NUMBERS || !next.happened.insert(by.number) {
            return Err(Outcome::Refused(Refusal::WindowFull));
        }
        Ok(next)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.opened.0);
        put_varint(out, self.answered);
        self.happened.encode(out);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Option<Session> {
        Some(Session {
            opened: Slot(from.varint()?),
            answered: from.varint()?,
            happened: Ranges::decode(from)?,
        })
    }
}

/// What is known of all sessions that were ever opened, so that none is opened twice: what a closed
/// one sent may still arrive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Seen {
    /// By node, the first life whose sessions count.
    lives: BTreeMap<NodeId, u64>,
    /// By node and life, the connections whose sessions were opened.
    opened: BTreeMap<(NodeId, u64), Ranges>,
}

impl Seen {
    /// Notes a session. False where it was opened before, or its life has ended.
    fn open(&mut self, id: SessionId) -> bool {
        let has_ended = |first: &u64| id.life < *first;
        if self.lives.get(&id.node).is_some_and(has_ended) {
            return false;
        }
        let opened = self.opened.entry((id.node, id.life)).or_default();
        let is_new = opened.insert(id.connection);
        opened.join_lowest(MOST_RANGES);
        is_new
    }

    /// Ends the lives of a node before `first`. False where they had ended.
    fn end_lives(&mut self, node: NodeId, first: u64) -> bool {
        let known = self.lives.entry(node).or_default();
        if *known >= first {
            return false;
        }
        *known = first;
        self.opened
            .retain(|(of, life), _| *of != node || *life >= first);
        true
    }

    /// The first life of a node that counts, where there are more than the most.
    fn excess(&self, node: NodeId) -> Option<u64> {
        let lives = self.opened.range((node, 0)..=(node, u64::MAX));
        let lives: Vec<u64> = lives.map(|((_, life), _)| *life).collect();
        let excess = lives.len().checked_sub(MOST_LIVES)?;
        lives.get(excess).copied().filter(|_| excess > 0)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.lives.len() as u64);
        for (node, first) in &self.lives {
            put_varint(out, u64::from(node.0));
            put_varint(out, *first);
        }
        put_varint(out, self.opened.len() as u64);
        for ((node, life), connections) in &self.opened {
            put_varint(out, u64::from(node.0));
            put_varint(out, *life);
            connections.encode(out);
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Option<Seen> {
        let mut seen = Seen::default();
        for _ in 0..from.varint()? {
            let node = NodeId(u32::try_from(from.varint()?).ok()?);
            seen.lives.insert(node, from.varint()?);
        }
        for _ in 0..from.varint()? {
            let node = NodeId(u32::try_from(from.varint()?).ok()?);
            let life = from.varint()?;
            seen.opened.insert((node, life), Ranges::decode(from)?);
        }
        Some(seen)
    }
}

/// The sessions of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sessions {
    pub(super) open: BTreeMap<SessionId, Session>,
    pub(super) seen: Seen,
    /// The open sessions by the slot in which they were opened.
    order: BTreeSet<(Slot, SessionId)>,
}

/// Which sessions a command opened and closed.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) opened: Vec<SessionId>,
    pub(super) closed: Vec<SessionId>,
}

impl Sessions {
    /// Sessions as they were stored.
    pub(super) fn new(open: BTreeMap<SessionId, Session>, seen: Seen) -> Sessions {
        let order = open.iter().map(|(id, session)| (session.opened, *id));
        Sessions {
            order: order.collect(),
            open,
            seen,
        }
    }

    /// Opens a session; `None` where it has been closed or forgotten.
    pub(super) fn open(&mut self, id: SessionId, slot: Slot) -> Option<Change> {
        let mut change = Change::default();
        if self.open.contains_key(&id) {
            return Some(change);
        }
        if !self.seen.open(id) {
            return None;
        }
        if let Some(first) = self.seen.excess(id.node) {
            change = self.end_lives(id.node, first);
        }
        // A life that is older than all that count has ended at once.
        if !self.seen.opened.contains_key(&(id.node, id.life)) {
            return Some(change);
        }
        let session = Session {
            opened: slot,
            answered: 0,
            happened: Ranges::default(),
        };
        self.open.insert(id, session);
        self.order.insert((slot, id));
        change.opened.push(id);
        while self.open.len() > MOST_SESSIONS {
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            self.open.remove(&oldest);
            change.closed.push(oldest);
        }
        Some(change)
    }

    /// Closes a session. One that was never opened will not be opened either.
    pub(super) fn close(&mut self, id: SessionId) -> Change {
        self.seen.open(id);
        let mut change = Change::default();
        if let Some(session) = self.open.remove(&id) {
            self.order.remove(&(session.opened, id));
            change.closed.push(id);
        }
        change
    }

    /// Closes the sessions of a node's lives before `first`.
    pub(super) fn end_lives(&mut self, node: NodeId, first: u64) -> Change {
        self.seen.end_lives(node, first);
        let least = SessionId {
            node,
            life: 0,
            connection: 0,
        };
        let end = SessionId {
            life: first,
            ..least
        };
        let ended = (Bound::Included(least), Bound::Excluded(end));
        let closed: Vec<SessionId> = self.open.range(ended).map(|(id, _)| *id).collect();
        for id in &closed {
            if let Some(session) = self.open.remove(id) {
                self.order.remove(&(session.opened, *id));
            }
        }
        Change {
            opened: Vec::new(),
            closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(life: u64, connection: u64) -> SessionId {
        SessionId {
            node: NodeId(1),
            life,
            connection,
        }
    }

    fn request(session: SessionId, number: u64, answered: u64) -> Request {
        Request {
            session,
            number,
            answered,
        }
    }

    #[test]
    fn a_number_happens_once_and_not_when_it_was_answered() {
        let mut sessions = Sessions::default();
        sessions.open(id(1, 1), Slot(1)).unwrap();
        let session = sessions.open[&id(1, 1)].clone();
        let session = session.with(&request(id(1, 1), 7, 3)).unwrap();
        assert_eq!(
            session.with(&request(id(1, 1), 7, 3)),
            Err(Outcome::Repeated)
        );
        let late = Err(Outcome::Refused(Refusal::Answered));
        assert_eq!(session.with(&request(id(1, 1), 2, 0)), late);
        let next = session.with(&request(id(1, 1), 9, 8)).unwrap();
        assert_eq!(next.with(&request(id(1, 1), 7, 0)), late);
        let mut bytes = Vec::new();
        next.encode(&mut bytes);
        assert_eq!(Session::decode(&mut Reader::new(&bytes)), Some(next));
    }

    #[test]
    fn a_window_is_bounded() {
        let mut sessions = Sessions::default();
        sessions.open(id(1, 1), Slot(1)).unwrap();
        let mut session = sessions.open[&id(1, 1)].clone();
        for number in 1..=MOST_NUMBERS {
            session = session.with(&request(id(1, 1), 2 * number, 1)).unwrap();
        }
        let full = Err(Outcome::Refused(Refusal::WindowFull));
        assert_eq!(session.with(&request(id(1, 1), 5000, 1)), full);
        assert!(session.with(&request(id(1, 1), 5000, 3)).is_ok());
    }

    #[test]
    fn a_closed_or_forgotten_session_is_not_opened_again() {
        let mut sessions = Sessions::default();
        let most = MOST_SESSIONS as u64;
        for connection in 0..most + 2 {
            let change = sessions
                .open(id(3, connection), Slot(connection + 1))
                .unwrap();
            let forgotten = connection.checked_sub(most).map(|c| id(3, c));
            assert_eq!(change.closed, Vec::from_iter(forgotten));
        }
        assert_eq!(sessions.open.len(), MOST_SESSIONS);
        assert!(sessions.open(id(3, 0), Slot(9000)).is_none());
        assert_eq!(sessions.close(id(3, 2000)).closed, []);
        assert!(sessions.open(id(3, 2000), Slot(9001)).is_none());
        assert_eq!(sessions.end_lives(NodeId(1), 4).closed.len(), MOST_SESSIONS);
        assert!(sessions.open(id(3, 9999), Slot(9002)).is_none());
        assert!(sessions.open(id(4, 1), Slot(9003)).is_some());
        let mut bytes = Vec::new();
        sessions.seen.encode(&mut bytes);
        let seen = Seen::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(Sessions::new(sessions.open.clone(), seen), sessions);
    }

    #[test]
    fn lives_of_a_node_are_bounded() {
        let mut sessions = Sessions::default();
        for life in 1..40 {
            sessions.open(id(life, 1), Slot(life)).unwrap();
        }
        assert_eq!(sessions.open.len(), MOST_LIVES);
        assert!(sessions.open(id(23, 2), Slot(99)).is_none());
        assert!(sessions.open(id(24, 2), Slot(99)).is_some());
    }
}
