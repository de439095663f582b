//! Large answers from the tree in which records are stored by place: an area is read once, and the records come with the index
//! entries. Where the strategy does not know which are current, keys or stubs are looked up, a share of the memory at a time.

use lsm::{Account, Seq, Slice};

use super::answer::Answer;
use super::bulk::{Give, Sink};
use super::explain::Steps;
use super::stages::{Admission, Fetch, Joins};
use crate::catalog::Attribute;
use crate::error::{Error, Result};
use crate::index::{self, APART, Candidate, Lookup};

impl Answer {
    /// Gives the records in the range of a condition on the clustered attribute: front to back, as they lie.
    pub(super) fn visit_by_place(
        &mut self,
        driver: usize,
        attribute: &Attribute,
        sink: Sink<'_>,
    ) -> Result<()> {
        let loan = self.snapshot.dataset.shared.borrow(Account::Queries);
        let share = loan.bytes() / 2;
        let layout = self.snapshot.layout.clone();
        let declared = self.predicates.declared.get(driver);
        let Some(range) = declared.and_then(|predicate| predicate.sought_range().cloned()) else {
            return Ok(());
        };
        let mut steps = std::mem::take(&mut self.steps);
        steps.rounds += 1;
        let known = self.knows_current() && !self.probes_keys;
        let mut placed = Placed {
            give: Give {
                key_type: layout.stored.key_type,
                remaining: self.remaining,
                answers: 0,
                sink,
            },
            steps: &mut steps,
            waiting: Vec::new(),
        };
        let (validity, snapshot) = (&self.validity, &self.snapshot.snapshot);
        let lookup = Lookup {
            layout: &layout,
            snapshot,
            data_cost: &self.data_cost,
            index_cost: &self.index_cost,
        };
        let admission = Admission::of(self);
        let (mut bytes, mut broke) = (0, false);
        let mut take = |key: &[u8], seq: Seq, stored: &[u8]| {
            placed.steps.candidates += 1;
            if validity.is_over(seq) {
                placed.steps.obsolete += 1;
                return Ok(());
            }
            if known {
                if admission.admits(stored, placed.steps)? {
                    placed.give.give(key, seq, || Slice::from(stored))?;
                }
            } else {
                bytes += key.len() + stored.len() + size_of::<Candidate>();
                placed.waiting.push(Candidate {
                    seq,
                    key: key.to_vec(),
                    record: Some((Slice::from(stored), APART)),
                });
                if bytes >= share {
                    bytes = 0;
                    self.settle(&mut placed, share)?;
                }
            }
            match placed.give.is_done() {
                false => Ok(()),
                true => {
                    broke = true;
                    Err(Error::bad_input("broken off"))
                }
            }
        };
        let walked = index::each_placed(&lookup, attribute, &range, &mut take);
        if !broke {
            walked?;
            self.settle(&mut placed, share)?;
        }
        let (remaining, answers) = (placed.give.remaining, placed.give.answers);
        steps.answers += answers;
        self.steps = steps;
        self.remaining = remaining;
        self.exhausted = true;
        Ok(())
    }

    /// Gives those of the records that wait which are current.
    fn settle(&self, placed: &mut Placed<'_, '_>, share: usize) -> Result<()> {
        let mut waiting = std::mem::take(&mut placed.waiting);
        let before = waiting.len();
        self.snapshot.leave_out_noted(&mut waiting);
        if self.probes_keys {
            placed.steps.probed += waiting.len() as u64;
            let total = waiting.len() as u64;
            self.validity.retain(&mut waiting, total, &self.keys_cost)?;
        }
        placed.steps.obsolete += (before - waiting.len()) as u64;
        let admission = Admission::of(self);
        let give = |candidate: &mut Candidate, placed: &mut Placed<'_, '_>| {
            let Some((record, _)) = candidate.record.take() else {
                return Ok(());
            };
            match placed.give.is_done() || !admission.admits(&record, placed.steps)? {
                true => Ok(()),
                false => placed.give.give(&candidate.key, candidate.seq, || record),
            }
        };
        if self.knows_current() {
            return waiting
                .iter_mut()
                .try_for_each(|candidate| give(candidate, placed));
        }
        waiting.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let mut current = vec![false; waiting.len()];
        let keys: Vec<&[u8]> = waiting.iter().map(|c| c.key.as_slice()).collect();
        let seqs: Vec<Seq> = waiting.iter().map(|candidate| candidate.seq).collect();
        let mut options = self.lookup;
        options.batch_bytes = options.batch_bytes.min(share);
        let fetch = Fetch {
            view: &self.snapshot,
            components: &self.components,
            known: false,
            options,
            cost: &self.data_cost,
            joins: Joins::None,
            place_cost: &self.place_cost,
        };
        let fetched = fetch.run(&keys, &seqs, &mut |at: usize, _: Slice| {
            if let Some(current) = current.get_mut(at) {
                *current = true;
            }
        })?;
        fetched.count_in(placed.steps);
        let current = waiting
            .iter_mut()
            .zip(current)
            .filter(|(_, current)| *current);
        for (candidate, _) in current {
            give(candidate, placed)?;
        }
        Ok(())
    }
}

/// What becomes of records that come with their index entries.
struct Placed<'a, 's> {
    give: Give<'a>,
    steps: &'s mut Steps,
    /// Of these it is not known yet which are current.
    waiting: Vec<Candidate>,
}
