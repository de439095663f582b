//! Which client has a connection, and when sessions without one end.
//!
//! **Invariant.** A session is read and written by the holder of its [`Claim`] alone.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::kept::StoredSession;

/// All sessions: with a connection, stored, or both.
#[derive(Default)]
pub(super) struct Sessions {
    slots: Mutex<HashMap<String, Slot>>,
}

struct Slot {
    /// The user whose session it is. Another one may neither have it nor end its connection.
    user: String,
    turn: Arc<Semaphore>,
    /// Asks the holder to end.
    holder: Option<Arc<Notify>>,
    /// Claims that are held or waited for.
    claims: usize,
    away: Option<Away>,
}

/// A stored session without a connection. Times are milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Away {
    /// When it ends; `None` is never.
    pub(super) ends: Option<u64>,
    /// When its will is published.
    pub(super) will: Option<u64>,
}

impl Away {
    /// Of a session whose connection ended at this time.
    pub(super) fn of(session: &StoredSession, left: u64) -> Away {
        let after = |seconds: u32| left.saturating_add(u64::from(seconds) * 1000);
        let ends = (session.expiry != u32::MAX).then(|| after(session.expiry));
        let will = session.will.as_ref().map(|will| after(will.delay));
        Away {
            ends,
            // The will is published at the end of the session at the latest.
            will: will.map(|will| ends.map_or(will, |ends| will.min(ends))),
        }
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        self.ends.is_some_and(|ends| ends <= now)
    }

    pub(super) fn is_will_due(&self, now: u64) -> bool {
        self.will.is_some_and(|will| will <= now)
    }
}

impl Slot {
    fn new(user: &str) -> Slot {
        Slot {
            user: user.to_string(),
            turn: Arc::new(Semaphore::new(1)),
            holder: None,
            claims: 0,
            away: None,
        }
    }
}

/// The right to read and write a session, until it is dropped.
pub(super) struct Claim {
    sessions: Arc<Sessions>,
    client: String,
    /// Notified when another connection wants the session.
    pub(super) wanted: Arc<Notify>,
    turn: Option<OwnedSemaphorePermit>,
    is_held: bool,
    /// What was known of the stored session. It holds again unless [`Claim::done`] was called.
    former: Option<Away>,
}

impl Claim {
    /// The holder has written, or removed, the session.
    pub(super) fn done(&mut self) {
        self.former = None;
    }

    /// What was due is tried again at this time.
    pub(super) fn again(&mut self, time: u64) {
        if let Some(former) = &mut self.former {
            former.ends = former.ends.map(|ends| ends.max(time));
            former.will = former.will.map(|will| will.max(time));
        }
    }
}

impl Sessions {
    pub(super) fn len(&self) -> usize {
        self.slots.lock().len()
    }

    pub(super) fn is_known(&self, client: &str) -> bool {
        self.slots.lock().contains_key(client)
    }

    fn new_claim(self: &Arc<Sessions>, client: &str) -> Claim {
        Claim {
            sessions: self.clone(),
            client: client.to_string(),
            wanted: Arc::new(Notify::new()),
            turn: None,
            is_held: false,
            former: None,
        }
    }

    /// Asks the connection that has the session to end, and waits for it. `None` if the session is
    /// another user's.
    pub(super) async fn claim(self: &Arc<Sessions>, client: &str, user: &str) -> Option<Claim> {
        let mut claim = self.new_claim(client);
        let turn = {
            let mut slots = self.slots.lock();
            let slot = slots
                .entry(client.to_string())
                .or_insert_with(|| Slot::new(user));
            slot.claims += 1;
            if slot.user != user {
                None
            } else {
                if let Some(holder) = &slot.holder {
                    holder.notify_one();
                }
                Some(slot.turn.clone())
            }
        };
        // It is never closed.
        claim.turn = turn?.acquire_owned().await.ok();
        self.hold(&mut claim);
        Some(claim)
    }

    /// The right to a session that has no connection, and that none waits for.
    pub(super) fn claim_idle(self: &Arc<Sessions>, client: &str) -> Option<Claim> {
        let mut claim = self.new_claim(client);
        {
            let mut slots = self.slots.lock();
            let slot = slots.get_mut(client).filter(|slot| slot.claims == 0);
            if let Some(slot) = slot {
                claim.turn = slot.turn.clone().try_acquire_owned().ok();
            }
            // Dropping a claim ends one.
            if let Some(slot) = slots.get_mut(client) {
                slot.claims += 1;
            }
        }
        claim.turn.as_ref()?;
        self.hold(&mut claim);
        Some(claim)
    }

    /// The claim has its turn.
    fn hold(&self, claim: &mut Claim) {
        claim.is_held = true;
        if let Some(slot) = self.slots.lock().get_mut(&claim.client) {
            slot.holder = Some(claim.wanted.clone());
            claim.former = slot.away.take();
            if slot.claims > 1 {
                claim.wanted.notify_one();
            }
        }
    }

    /// The stored session, which is this user's, has no connection.
    pub(super) fn set_away(&self, client: &str, user: &str, away: Away) {
        let mut slots = self.slots.lock();
        let slot = slots
            .entry(client.to_string())
            .or_insert_with(|| Slot::new(user));
        slot.away = Some(away);
    }

    /// The sessions for which it is time to do something.
    pub(super) fn due(&self, now: u64) -> Vec<String> {
        let slots = self.slots.lock();
        let due = slots.iter().filter(|(_, slot)| {
            slot.claims == 0
                && (slot.away).is_some_and(|away| away.is_over(now) || away.is_will_due(now))
        });
        due.map(|(client, _)| client.clone()).collect()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut slots = self.sessions.slots.lock();
        if let Some(slot) = slots.get_mut(&self.client) {
            slot.claims = slot.claims.saturating_sub(1);
            if self.is_held {
                slot.holder = None;
                slot.away = slot.away.or(self.former);
            }
            if slot.claims == 0 && slot.away.is_none() {
                slots.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_connection_gets_the_session_once_the_former_has_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let sessions = Arc::new(Sessions::default());
            let first = sessions.claim("c", "ann").await.unwrap();
            assert!(sessions.claim("c", "bob").await.is_none());
            assert!(sessions.claim_idle("c").is_none());
            let (other, of_other) = (sessions.clone(), Arc::new(Notify::new()));
            let done = of_other.clone();
            let second = tokio::spawn(async move {
                let _claim = other.claim("c", "ann").await.unwrap();
                done.notify_one();
            });
            first.wanted.notified().await;
            assert!(!second.is_finished());
            drop(first);
            of_other.notified().await;
            second.await.unwrap();
            assert_eq!(sessions.len(), 0);
            assert!(sessions.claim_idle("c").is_none());
        });
    }

    #[test]
    fn sessions_end_and_wills_are_published_in_time() {
        let sessions = Arc::new(Sessions::default());
        let away = |ends, will| Away { ends, will };
        sessions.set_away("ends", "ann", away(Some(10), None));
        sessions.set_away("wills", "ann", away(Some(100), Some(20)));
        sessions.set_away("stays", "ann", away(None, None));
        assert_eq!(sessions.due(9), Vec::<String>::new());
        assert_eq!(sessions.due(10), ["ends"]);
        let mut due = sessions.due(20);
        due.sort();
        assert_eq!(due, ["ends", "wills"]);
        assert!(sessions.is_known("stays"));
    }
}
