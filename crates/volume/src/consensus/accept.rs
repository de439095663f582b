//! What a follower does with a leader's entries.

use super::core::Core;
use super::message::{Message, Meta};
use super::types::{Damage, Output};
use crate::ids::{Ballot, NodeId, Slot};

impl Core {
    /// Takes entries of the leader.
    pub(super) fn accept(
        &mut self,
        from: NodeId,
        previous: (Slot, Ballot),
        entries: Vec<Meta>,
        chosen: Slot,
        round: u64,
        out: &mut Vec<Output>,
    ) {
        let base = self.log.base().0;
        let follows = |(at, meta): (usize, &Meta)| meta.slot.0 == previous.0.0 + at as u64 + 1;
        if !entries.iter().enumerate().all(follows) {
            return;
        }
        if previous.0 <= self.chosen
            && self
                .log
                .ballot_at(previous.0)
                .is_some_and(|of| of != previous.1)
        {
            debug_assert!(false, "slot {} is chosen and differs", previous.0);
            return;
        }
        // What lies before the base is chosen, so it is the leader's, too.
        let is_known = previous.0 < base || self.log.ballot_at(previous.0) == Some(previous.1);
        if !is_known {
            let hint = self.hint(previous.0);
            let message = Message::Refused {
                ballot: self.ballot,
                hint,
                round,
                damaged: self.damage.is_some(),
            };
            return out.push(Output::Send {
                to: from,
                message,
                after_sync: true,
            });
        }
        let through = Slot(previous.0.0 + entries.len() as u64).max(base);
        let differs =
            |meta: &&Meta| meta.slot > base && self.log.ballot_at(meta.slot) != Some(meta.ballot);
        if let Some(first) = entries.iter().find(differs).map(|meta| meta.slot) {
            // What was lost is not replaced, but restored.
            if first <= self.chosen && self.log.ballot_at(first).is_some() {
                debug_assert!(false, "slot {first} is chosen and would be replaced");
                return;
            }
            self.log.truncate(first);
            self.durable = self.durable.min(first.previous());
            let new: Vec<Meta> = entries
                .into_iter()
                .filter(|meta| meta.slot >= first)
                .collect();
            new.iter().for_each(|meta| {
                let is_next = self.log.push(meta.clone());
                debug_assert!(is_next, "entries follow each other");
            });
            out.push(Output::Append(new));
        }
        if self.is_mended(through, chosen) {
            self.damage = None;
            out.push(Output::Mended);
        }
        let damaged = self.damage.is_some();
        let message = Message::Accepted {
            ballot: self.ballot,
            through,
            round,
            damaged,
        };
        out.push(Output::Send {
            to: from,
            message,
            after_sync: true,
        });
        let chosen = chosen.min(through);
        if chosen > self.chosen {
            self.chosen = chosen;
            out.push(Output::Chosen(chosen));
        }
    }

    /// Notes what the leader had when it was heard first, where this replica does not know what it
    /// lost.
    pub(super) fn note_last(&mut self, last: Slot) {
        let is_noted = self.mended_at.is_some_and(|(of, _)| of == self.ballot);
        if self.damage == Some(Damage::Unknown) && !is_noted {
            self.mended_at = Some((self.ballot, last.next()));
        }
    }

    /// True where the log has what was lost, now that it is the leader's up to `through`.
    fn is_mended(&self, through: Slot, chosen: Slot) -> bool {
        match (self.damage, self.mended_at) {
            (Some(Damage::Through(lost)), _) => through >= lost.max(chosen),
            // An entry behind all that the leader had was chosen without this replica, when the
            // loss had happened: no leader can exist that has less, or needs a promise that was
            // lost.
            (Some(Damage::Unknown), Some((_, behind))) => chosen >= behind && through >= chosen,
            _ => false,
        }
    }

    /// A slot up to which the log may be the leader's, which has another entry at `slot`, or this
    /// log has none.
    fn hint(&self, slot: Slot) -> Slot {
        let last = self.log.last().0;
        if last < slot {
            return last;
        }
        // All entries of the ballot that differs may be wrong.
        let wrong = self.log.ballot_at(slot);
        let mut at = slot;
        while at > self.chosen && self.log.ballot_at(at) == wrong {
            at = at.previous();
        }
        at.max(self.chosen)
    }
}
