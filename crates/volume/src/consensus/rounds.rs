//! Rounds of signs of life, and the reads that wait for them.

use std::collections::VecDeque;

use super::types::Time;

/// Rounds, and the reads that wait for them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Rounds {
    pub(super) round: u64,
    /// When each round was sent that is not answered by a majority.
    sent: VecDeque<(u64, Time)>,
    /// When the last round was sent that is.
    pub(super) answered: Option<Time>,
    /// By the round that they wait for, reads.
    pub(super) waiting: VecDeque<(u64, u64)>,
}

/// More rounds than these are not remembered; those before them give no lease.
const MOST_ROUNDS: usize = 64;

impl Rounds {
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

    /// A round was sent that no majority has answered.
    pub(super) fn is_under_way(&self) -> bool {
        !self.sent.is_empty()
    }

    pub(super) fn tickets(&self) -> Vec<u64> {
        self.waiting.iter().map(|(_, ticket)| *ticket).collect()
    }

    /// A majority has answered rounds up to this one.
    pub(super) fn has_answered(&mut self, round: u64) {
        while let Some((number, at)) = self.sent.front().copied().filter(|(n, _)| *n <= round) {
            debug_assert!(number <= round);
            self.answered = Some(at);
            self.sent.pop_front();
        }
    }
}
