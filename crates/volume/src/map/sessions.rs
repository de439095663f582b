//! The sessions of a group: which requests have happened.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use esker_coding::{Reader, put_varint};

use super::outcome::{Outcome, Refusal};
use super::ranges::Ranges;
use crate::command::Request;
use crate::ids::{NodeId, SessionId, Slot};

/// The most sessions of a group: more than the connections that a cluster of seven members takes
/// (256 of NBD and 256 of clients each). When more are opened, the one that was used least recently
/// is forgotten. Each takes about 300 bytes of memory in each group that it writes to.
pub(super) const MOST_SESSIONS: usize = 4096;

/// The most numbers that a session remembers above the lowest one that is not answered.
pub(super) const MOST_NUMBERS: u64 = 1024;

/// The most lives of a node whose sessions count. When more are seen, the oldest one ends.
const MOST_LIVES: usize = 16;

/// The most ranges of opened sessions that are remembered of a life.
const MOST_RANGES: usize = 1024;

/// An open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    /// The slot of its last request that was accepted; before the first one, that in which it was
    /// opened.
    used: Slot,
    /// All numbers below are answered.
    answered: u64,
    /// The numbers from there on that have happened.
    happened: Ranges,
}

impl Session {
    /// The session behind the request of this slot; an error where the request does nothing, and
    /// which outcome it has then.
    pub(super) fn with(&self, by: &Request, slot: Slot) -> Result<Session, Outcome> {
        if self.happened.contains(by.number) {
            return Err(Outcome::Repeated);
        }
        let mut next = self.clone();
        next.used = slot;
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
        put_varint(out, self.used.0);
        put_varint(out, self.answered);
        self.happened.encode(out);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Option<Session> {
        Some(Session {
            used: Slot(from.varint()?),
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
}

/// Which sessions a command opens and closes, and what is known of all sessions then.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Change {
    pub(super) opened: BTreeMap<SessionId, Session>,
    pub(super) closed: Vec<SessionId>,
    pub(super) seen: Seen,
}

impl Sessions {
    /// What opening a session changes; `None` where it has been closed or forgotten.
    pub(super) fn open(&self, id: SessionId, slot: Slot) -> Option<Change> {
        let mut seen = self.seen.clone();
        if self.open.contains_key(&id) {
            return Some(Change {
                seen,
                ..Change::default()
            });
        }
        if !seen.open(id) {
            return None;
        }
        let mut closed = Vec::new();
        if let Some(first) = seen.excess(id.node) {
            seen.end_lives(id.node, first);
            closed = self.before(id.node, first);
        }
        let mut opened = BTreeMap::new();
        // A life that is older than all that count has ended at once.
        if seen.opened.contains_key(&(id.node, id.life)) {
            let session = Session {
                used: slot,
                answered: 0,
                happened: Ranges::default(),
            };
            opened.insert(id, session);
            closed.extend(self.forgotten(&closed));
        }
        Some(Change {
            opened,
            closed,
            seen,
        })
    }

    /// The session that was used least recently, where one more would be too many after `closed`
    /// are closed.
    fn forgotten(&self, closed: &[SessionId]) -> Option<SessionId> {
        if self.open.len() < closed.len() + MOST_SESSIONS {
            return None;
        }
        let closed: BTreeSet<&SessionId> = closed.iter().collect();
        let left = self.open.iter().filter(|(id, _)| !closed.contains(id));
        let least = left.min_by_key(|(id, session)| (session.used, **id));
        least.map(|(id, _)| *id)
    }

    /// What closing a session changes. One that was never opened will not be opened either.
    pub(super) fn close(&self, id: SessionId) -> Change {
        let mut seen = self.seen.clone();
        seen.open(id);
        Change {
            opened: BTreeMap::new(),
            closed: Vec::from_iter(self.open.contains_key(&id).then_some(id)),
            seen,
        }
    }

    /// What closing the sessions of a node's lives before `first` changes.
    pub(super) fn end_lives(&self, node: NodeId, first: u64) -> Change {
        let mut seen = self.seen.clone();
        seen.end_lives(node, first);
        Change {
            opened: BTreeMap::new(),
            closed: self.before(node, first),
            seen,
        }
    }

    /// The open sessions of a node's lives before `first`.
    fn before(&self, node: NodeId, first: u64) -> Vec<SessionId> {
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
        self.open.range(ended).map(|(id, _)| *id).collect()
    }

    /// Carries a change out.
    pub(super) fn apply(&mut self, change: Change) {
        for id in &change.closed {
            self.open.remove(id);
        }
        self.open.extend(change.opened);
        self.seen = change.seen;
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

    /// Opens a session, and returns those that are closed by that.
    fn open(sessions: &mut Sessions, id: SessionId, slot: u64) -> Option<Vec<SessionId>> {
        let change = sessions.open(id, Slot(slot))?;
        let closed = change.closed.clone();
        sessions.apply(change);
        Some(closed)
    }

    /// An accepted request of an open session.
    fn ask(sessions: &mut Sessions, id: SessionId, number: u64, slot: u64) {
        let by = request(id, number, number);
        let next = sessions.open[&id].with(&by, Slot(slot)).unwrap();
        sessions.open.insert(id, next);
    }

    #[test]
    fn a_number_happens_once_and_not_when_it_was_answered() {
        let mut sessions = Sessions::default();
        open(&mut sessions, id(1, 1), 1).unwrap();
        let session = sessions.open[&id(1, 1)].clone();
        let session = session.with(&request(id(1, 1), 7, 3), Slot(2)).unwrap();
        assert_eq!(
            session.with(&request(id(1, 1), 7, 3), Slot(2)),
            Err(Outcome::Repeated)
        );
        let late = Err(Outcome::Refused(Refusal::Answered));
        assert_eq!(session.with(&request(id(1, 1), 2, 0), Slot(2)), late);
        let next = session.with(&request(id(1, 1), 9, 8), Slot(2)).unwrap();
        assert_eq!(next.with(&request(id(1, 1), 7, 0), Slot(2)), late);
        let mut bytes = Vec::new();
        next.encode(&mut bytes);
        assert_eq!(Session::decode(&mut Reader::new(&bytes)), Some(next));
    }

    #[test]
    fn a_window_is_bounded() {
        let mut sessions = Sessions::default();
        open(&mut sessions, id(1, 1), 1).unwrap();
        let mut session = sessions.open[&id(1, 1)].clone();
        for number in 1..=MOST_NUMBERS {
            session = session
                .with(&request(id(1, 1), 2 * number, 1), Slot(2))
                .unwrap();
        }
        let full = Err(Outcome::Refused(Refusal::WindowFull));
        assert_eq!(session.with(&request(id(1, 1), 5000, 1), Slot(2)), full);
        assert!(session.with(&request(id(1, 1), 5000, 3), Slot(2)).is_ok());
    }

    #[test]
    fn a_closed_or_forgotten_session_is_not_opened_again() {
        let mut sessions = Sessions::default();
        let most = MOST_SESSIONS as u64;
        for connection in 0..most + 2 {
            let closed = open(&mut sessions, id(3, connection), connection + 1).unwrap();
            let forgotten = connection.checked_sub(most).map(|c| id(3, c));
            assert_eq!(closed, Vec::from_iter(forgotten));
        }
        assert_eq!(sessions.open.len(), MOST_SESSIONS);
        assert!(open(&mut sessions, id(3, 0), 9000).is_none());
        let change = sessions.close(id(3, 9000));
        assert_eq!(change.closed, []);
        sessions.apply(change);
        assert!(open(&mut sessions, id(3, 9000), 9001).is_none());
        let change = sessions.end_lives(NodeId(1), 4);
        assert_eq!(change.closed.len(), MOST_SESSIONS);
        sessions.apply(change);
        assert!(open(&mut sessions, id(3, 9999), 9002).is_none());
        assert_eq!(open(&mut sessions, id(4, 1), 9003), Some(vec![]));
        let mut bytes = Vec::new();
        sessions.seen.encode(&mut bytes);
        assert_eq!(Seen::decode(&mut Reader::new(&bytes)), Some(sessions.seen));
    }

    #[test]
    fn the_session_that_was_used_least_recently_is_forgotten() {
        let mut sessions = Sessions::default();
        let most = MOST_SESSIONS as u64;
        for connection in 0..most {
            open(&mut sessions, id(1, connection), connection + 1).unwrap();
        }
        // The oldest ones are in use: but for one they stay.
        for connection in [0, 1, 3] {
            ask(&mut sessions, id(1, connection), 1, most + 10 - connection);
        }
        let closed = (0..2).map(|n| open(&mut sessions, id(1, most + n), most + 20 + n));
        let closed: Vec<_> = closed.flatten().flatten().collect();
        assert_eq!(closed, [id(1, 2), id(1, 4)]);
        // Among those in use, too. A request that is refused or repeated is no use.
        for connection in 5..most {
            ask(&mut sessions, id(1, connection), 1, most + 30 + connection);
        }
        let repeated = sessions.open[&id(1, 3)].with(&request(id(1, 3), 1, 1), Slot(3 * most));
        assert_eq!(repeated, Err(Outcome::Repeated));
        assert_eq!(
            open(&mut sessions, id(1, most + 3), 4 * most),
            Some(vec![id(1, 3)])
        );
        assert_eq!(sessions.open.len(), MOST_SESSIONS);
    }

    #[test]
    fn a_life_that_ends_makes_room() {
        let mut sessions = Sessions::default();
        let lives = MOST_LIVES as u64;
        for life in 1..=lives {
            open(&mut sessions, id(life, 1), life).unwrap();
        }
        let left = MOST_SESSIONS as u64 - lives;
        for connection in 2..left + 2 {
            open(&mut sessions, id(lives, connection), lives + connection).unwrap();
        }
        // The least recently used one is of the life that ends.
        let closed = open(&mut sessions, id(lives + 1, 1), 9000);
        assert_eq!(closed, Some(vec![id(1, 1)]));
        assert_eq!(sessions.open.len(), MOST_SESSIONS);
    }

    #[test]
    fn lives_of_a_node_are_bounded() {
        let mut sessions = Sessions::default();
        for life in 1..40 {
            open(&mut sessions, id(life, 1), life).unwrap();
        }
        assert_eq!(sessions.open.len(), MOST_LIVES);
        assert!(open(&mut sessions, id(23, 2), 99).is_none());
        assert!(open(&mut sessions, id(24, 2), 99).is_some());
    }
}
