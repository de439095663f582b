//! Reads that see everything that was acknowledged: by lease, or by a round of signs of life that a
//! majority answers. Reads that come while a round is under way share the next one, which begins
//! when that is answered, or with the next sign of life.
//!
//! A lease begins when the round was sent that a majority answered, and ends before the first of
//! that majority may vote for another, by a clock that runs too slow by the stated bound. There is
//! none from when leadership is handed over: a leader that is not replaced then stands for the next
//! ballot, where leases hold again.

use std::collections::BTreeMap;

use super::core::{Core, State};
use super::types::{Output, Time};
use crate::ids::Slot;

impl Core {
    /// Asks whether this replica may answer a read; an output with the ticket follows, at once or
    /// behind a round that [`Core::send_proposed`] begins.
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
    }

    /// Begins the round that reads wait for, unless one is under way: then they wait for its end,
    /// and share the next one.
    pub(super) fn begin_reads(&mut self, now: Time, out: &mut Vec<Output>) {
        let is_due = self.leading().is_some_and(|leading| {
            let reads = &leading.reads;
            let last = reads.waiting.back();
            last.is_some_and(|(round, _)| *round > reads.round) && !reads.is_under_way()
        });
        if is_due {
            self.begin_round(now, out);
        }
    }

    /// When the last round began that a majority has answered; none where this replica does not
    /// lead.
    pub fn confirmed(&self) -> Option<Time> {
        match &self.state {
            State::Leader(leading) => leading.reads.answered,
            _ => None,
        }
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
    pub(super) fn settle_reads(&mut self, now: Time, out: &mut Vec<Output>) {
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
        leading.reads.has_answered(round);
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
        self.begin_reads(now, out);
    }
}
