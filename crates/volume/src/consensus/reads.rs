//! Reads that see everything that was acknowledged: by lease, or by a round of signs of life that a majority answers.
//!
//! A lease begins when the round was sent that a majority answered, and ends before the first of that majority may vote for
//! another, by a clock that runs too slow by the stated bound. There is none while leadership is handed over.

use std::collections::{BTreeMap, VecDeque};

use super::core::{Core, Output, State, Time};
use crate::ids::Slot;

/// Rounds, and the reads that wait for them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Reads {
    round: u64,
    /// When each round was sent that is not answered by a majority.
    sent: VecDeque<(u64, Time)>,
    /// When the last round was sent that is.
    answered: Option<Time>,
    /// By the round that they wait for, reads.
    waiting: VecDeque<(u64, u64)>,
}

/// More rounds than these are not remembered; those before them give no lease.
const MOST_ROUNDS: usize = 64;

impl Reads {
    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// Begins a round.
    pub(super) fn begin(&mut self, now: Time) {
        self.round += 1;
        self.sent.push_back((self.round, now));
        if self.sent.len() > MOST_ROUNDS {
            self.sent.pop_front();
        }
    }

    pub(super) fn tickets(&self) -> Vec<u64> {
        self.waiting.iter().map(|(_, ticket)| *ticket).collect()
    }

    /// A majority has answered rounds up to this one.
    fn answered(&mut self, round: u64) {
        while let Some((number, at)) = self.sent.front().copied().filter(|(n, _)| *n <= round) {
            debug_assert!(number <= round);
            self.answered = Some(at);
            self.sent.pop_front();
        }
    }
}

impl Core {
    /// Asks whether this replica may answer a read; an output with the ticket follows.
    pub fn read(&mut self, now: Time, ticket: u64, out: &mut Vec<Output>) {
        let (chosen, leader) = (
            self.chosen,
            self.leader.filter(|leader| *leader != self.node),
        );
        if self.has_lease(now) {
            return out.push(Output::Read {
                ticket,
                result: Ok(chosen),
            });
        }
        let Some(leading) = self.leading() else {
            return out.push(Output::Read {
                ticket,
                result: Err(leader),
            });
        };
        // A round that was sent before does not say that this replica leads now.
        let round = leading.reads.round + 1;
        leading.reads.waiting.push_back((round, ticket));
        self.begin_round(now, out);
    }

    fn has_lease(&self, now: Time) -> bool {
        let State::Leader(leading) = &self.state else {
            return false;
        };
        let slowest = 100 - u64::from(self.settings.drift_percent.min(100));
        let length = self.settings.election * slowest / 100;
        let is_ready = self.chosen >= leading.first && !leading.is_giving_up;
        let began = leading
            .reads
            .answered
            .filter(|_| self.settings.lease && is_ready);
        began.is_some_and(|began| now < began + length.saturating_sub(1))
    }

    /// Lets reads go whose rounds a majority has answered.
    pub(super) fn settle_reads(&mut self, _now: Time, out: &mut Vec<Output>) {
        let (node, chosen) = (self.node, self.chosen);
        let State::Leader(leading) = &self.state else {
            return;
        };
        let mut rounds = BTreeMap::from([(node, leading.reads.round)]);
        let counted = leading
            .members
            .iter()
            .filter(|(_, progress)| !progress.is_damaged);
        rounds.extend(counted.map(|(node, progress)| (*node, progress.round)));
        let Some(round) = self.majority_of(&rounds) else {
            return;
        };
        let Some(leading) = self.leading() else {
            return;
        };
        leading.reads.answered(round);
        // What was chosen before is known only with the first entry of this ballot.
        if chosen < leading.first {
            return;
        }
        while let Some((_, ticket)) = leading.reads.waiting.pop_front_if(|(at, _)| *at <= round) {
            out.push(Output::Read {
                ticket,
                result: Ok::<Slot, _>(chosen),
            });
        }
    }
}
