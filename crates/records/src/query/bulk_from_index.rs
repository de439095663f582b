//! Large answers from an index whose entries have the records (the clustered index).
//!
//! An area is read once, and the records come with the index entries. If the maintenance strategy
//! does not show which entries are current, the candidates are collected up to a share of the
//! memory, and their keys looked up together.

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{Account, Seq, Slice};

use super::bulk::{Bulk, Delivery};
use super::explain::Steps;
use super::run::{Context, DrivingIndex, Run};
use super::stages::{Admission, Fetch, Needs};
use crate::error::Result;
use crate::index::{self, Candidate, Origin, WalkEnd};

impl Bulk<'_> {
    /// Delivers the records in the range of the driving index, in no particular order.
    ///
    /// # Errors
    /// Any read error.
    pub(super) fn run_from_index(mut self) -> Result<Run> {
        let Run { context, steps, .. } = &mut self.run;
        let driving = context.driving_index();
        let DrivingIndex { attribute, range } = driving.ok_or_else(|| Misplaced::here())?;
        let loan = context.view.dataset.store.borrow(Account::Queries);
        let max_waiting_bytes = loan.bytes() / 2;
        steps.rounds += 1;
        let mut receiver = EntryReceiver {
            context,
            admission: context.admission(),
            probes_keys: self.probes_keys,
            all_current: context.validity.is_exact() && !self.probes_keys,
            max_waiting_bytes,
            delivery: &mut self.delivery,
            steps,
            waiting: Vec::new(),
            waiting_bytes: 0,
        };
        let mut take = |key: &[u8], seq: Seq, stored: &[u8]| {
            receiver.take(key, seq, stored)?;
            if receiver.delivery.is_done() {
                Err(WalkEnd::Broken)
            } else {
                Ok(())
            }
        };
        match index::each_record_in_area(&context.indexes(), attribute, range, &mut take) {
            Ok(()) => receiver.take_waiting()?,
            Err(WalkEnd::Broken) => {}
            Err(WalkEnd::Failed(error)) => return Err(error),
        }
        Ok(self.finish())
    }
}

/// Passes records that come with their index entries through the stages.
struct EntryReceiver<'a, 'v> {
    context: &'a Context,
    admission: Admission<'a>,
    /// True if candidates are validated by the primary-key index.
    probes_keys: bool,
    /// True if entries that are not in the obsolete set are current.
    all_current: bool,
    /// The largest size of candidates that wait together, and of heads that are looked up together.
    max_waiting_bytes: usize,
    delivery: &'a mut Delivery<'v>,
    steps: &'a mut Steps,
    /// Candidates that may be obsolete.
    waiting: Vec<Candidate>,
    /// Their bytes.
    waiting_bytes: usize,
}

impl EntryReceiver<'_, '_> {
    /// Takes the next entry and its record.
    fn take(&mut self, key: &[u8], seq: Seq, stored: &[u8]) -> Result<()> {
        self.steps.candidates += 1;
        if self.context.validity.is_obsolete(seq) {
            self.steps.obsolete += 1;
            return Ok(());
        }
        if self.all_current {
            if self.admission.admits(stored, self.steps)? {
                self.delivery.deliver(key, seq, || Slice::from(stored))?;
            }
            return Ok(());
        }
        self.waiting_bytes += key.len() + stored.len() + size_of::<Candidate>();
        self.waiting.push(Candidate {
            seq,
            key: key.to_vec(),
            record: Some((Slice::from(stored), Origin::IndexEntry)),
        });
        if self.waiting_bytes >= self.max_waiting_bytes {
            self.take_waiting()?;
        }
        Ok(())
    }

    /// Delivers the waiting records that are current.
    fn take_waiting(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        debug_assert!(!self.all_current, "current candidates do not wait");
        let context = self.context;
        self.waiting_bytes = 0;
        let mut waiting = std::mem::take(&mut self.waiting);
        let before = waiting.len();
        context.view.drop_noted(&mut waiting);
        if self.probes_keys {
            let total = waiting.len() as u64;
            self.steps.probed += total;
            context
                .validity
                .retain(&mut waiting, total, &context.costs.keys)?;
        }
        self.steps.obsolete += (before - waiting.len()) as u64;
        if self.probes_keys {
            return waiting
                .into_iter()
                .try_for_each(|candidate| self.deliver(candidate));
        }
        waiting.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let mut is_current = vec![false; waiting.len()];
        let keys: Vec<&[u8]> = waiting.iter().map(|c| c.key.as_slice()).collect();
        let seqs: Vec<Seq> = waiting.iter().map(|candidate| candidate.seq).collect();
        let mut options = context.lookup;
        options.batch_bytes = options.batch_bytes.min(self.max_waiting_bytes);
        let fetch = Fetch {
            view: &context.view,
            components: &context.components,
            all_current: false,
            options,
            cost: &context.costs.data,
            needs: Needs::None,
            body_cost: &context.costs.bodies,
        };
        let fetched = fetch.run(&keys, &seqs, &mut |at: usize, _: Slice| {
            *is_current.own_mut(at) = true;
        })?;
        fetched.count_in(self.steps);
        let current = waiting.into_iter().zip(is_current);
        for (candidate, _) in current.filter(|(_, is_current)| *is_current) {
            self.deliver(candidate)?;
        }
        Ok(())
    }

    /// Delivers the record of a current candidate, if it answers the query.
    fn deliver(&mut self, candidate: Candidate) -> Result<()> {
        let (record, _) = candidate.record.ok_or_else(|| Misplaced::here())?;
        if self.delivery.is_done() || !self.admission.admits(&record, self.steps)? {
            return Ok(());
        }
        self.delivery
            .deliver(&candidate.key, candidate.seq, || record)
    }
}
