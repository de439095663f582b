//! Large answers from an index whose entries bring the records along.
//!
//! An area is read once, and the records come with the index entries. If the maintenance strategy
//! does not show which entries are current, their keys are looked up, a share of the memory at a
//! time.

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{Account, Seq, Slice};

use super::bulk::{Bulk, Give};
use super::explain::Steps;
use super::run::{Context, Run};
use super::stages::{Admission, Fetch, Needs};
use crate::error::{Error, Result};
use crate::index::{self, Candidate, Origin};

impl Bulk<'_> {
    /// Takes the records in the range of a condition on the attribute, in the order of its index.
    pub(super) fn run_from_index(mut self) -> Result<Run> {
        let Run { context, steps, .. } = &mut self.run;
        let (attribute, range) = context.driving_index().ok_or_else(Misplaced::here)?;
        let loan = context.view.dataset.shared.borrow(Account::Queries);
        let share = loan.bytes() / 2;
        steps.rounds += 1;
        let known = context.validity.is_exact() && !self.probes_keys;
        let mut placed = Placed {
            context,
            admission: context.admission(),
            probes_keys: self.probes_keys,
            share,
            give: &mut self.give,
            steps,
            waiting: Vec::new(),
        };
        let (mut bytes, mut broke) = (0, false);
        let mut take = |key: &[u8], seq: Seq, stored: &[u8]| {
            placed.steps.candidates += 1;
            if context.validity.is_obsolete(seq) {
                placed.steps.obsolete += 1;
                return Ok(());
            }
            if known {
                if placed.admission.admits(stored, placed.steps)? {
                    placed.give.give(key, seq, || Slice::from(stored))?;
                }
            } else {
                bytes += key.len() + stored.len() + size_of::<Candidate>();
                placed.waiting.push(Candidate {
                    seq,
                    key: key.to_vec(),
                    record: Some((Slice::from(stored), Origin::IndexEntry)),
                });
                if bytes >= share {
                    bytes = 0;
                    placed.take_waiting()?;
                }
            }
            if placed.give.is_done() {
                broke = true;
                Err(Error::bad_input("broken off"))
            } else {
                Ok(())
            }
        };
        let walked = index::each_record_in_area(&context.indexes(), attribute, range, &mut take);
        if !broke {
            walked?;
            placed.take_waiting()?;
        }
        Ok(self.finish())
    }
}

/// Takes records that come with their index entries through the stages.
struct Placed<'a, 'v> {
    context: &'a Context,
    admission: Admission<'a>,
    probes_keys: bool,
    /// Bytes of heads that may be looked up together.
    share: usize,
    give: &'a mut Give<'v>,
    steps: &'a mut Steps,
    /// Candidates that may be obsolete.
    waiting: Vec<Candidate>,
}

impl Placed<'_, '_> {
    /// Passes on those of the waiting records that are current.
    fn take_waiting(&mut self) -> Result<()> {
        let context = self.context;
        let mut waiting = std::mem::take(&mut self.waiting);
        let before = waiting.len();
        context.view.leave_out_noted(&mut waiting);
        if self.probes_keys {
            let total = waiting.len() as u64;
            self.steps.probed += total;
            context
                .validity
                .retain(&mut waiting, total, &context.costs.keys)?;
        }
        self.steps.obsolete += (before - waiting.len()) as u64;
        if self.probes_keys || context.validity.is_exact() {
            return waiting
                .into_iter()
                .try_for_each(|candidate| self.give(candidate));
        }
        waiting.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let mut current = vec![false; waiting.len()];
        let keys: Vec<&[u8]> = waiting.iter().map(|c| c.key.as_slice()).collect();
        let seqs: Vec<Seq> = waiting.iter().map(|candidate| candidate.seq).collect();
        let mut options = context.lookup;
        options.batch_bytes = options.batch_bytes.min(self.share);
        let fetch = Fetch {
            view: &context.view,
            components: &context.components,
            known: false,
            options,
            cost: &context.costs.data,
            needs: Needs::None,
            body_cost: &context.costs.bodies,
        };
        let fetched = fetch.run(&keys, &seqs, &mut |at: usize, _: Slice| {
            *current.own_mut(at) = true;
        })?;
        fetched.count_in(self.steps);
        let current = waiting
            .into_iter()
            .zip(current)
            .filter(|(_, current)| *current);
        for (candidate, _) in current {
            self.give(candidate)?;
        }
        Ok(())
    }

    /// Passes the record of a current candidate on, if it answers the query.
    fn give(&mut self, candidate: Candidate) -> Result<()> {
        let (record, _) = candidate.record.ok_or_else(Misplaced::here)?;
        if self.give.is_done() || !self.admission.admits(&record, self.steps)? {
            return Ok(());
        }
        self.give.give(&candidate.key, candidate.seq, || record)
    }
}
