//! Large answers from the tree in which records are stored by place.
//!
//! An area is read once, and the records come with the index entries. Where the strategy does not know which are current, keys or
//! stubs are looked up, a share of the memory at a time. Without an index stubs tell which records are current, and what they can of
//! the conditions; a second pass goes through the records as they lie, with a bit for each that is wanted.

use std::ops::ControlFlow;

use esker_lsm::{Account, Cost, Cursor, Kind, LookupOptions, Seq, SeqSet, Slice};
use esker_model::record::RecordRef;
use esker_model::schema::Value;

use super::answer::Answer;
use super::bulk::{Give, Sink};
use super::explain::Steps;
use super::scan::READAHEAD;
use super::stages::{Admission, Fetch, Joins, TakeScanned, Verdict};
use crate::catalog::Attribute;
use crate::error::{Error, Result};
use crate::index::{self, APART, Candidate, Looks, Lookup, stands_for_record};
use crate::store::{Ahead, Item, Stubs, View, hides};

/// A scan of a dataset that is stored by place, for answers that need more than stubs.
pub(super) struct Scan<'a> {
    pub(super) snapshot: &'a View,
    pub(super) admission: Admission<'a>,
    pub(super) joins: Joins<'a>,
    pub(super) cost: &'a Cost,
    /// Of what is read at its place.
    pub(super) place_cost: &'a Cost,
}

/// A pass over so many bytes of records costs as much as the lookup of one of them.
const BYTES_PER_LOOKUP: u64 = 8 << 10;

/// The most stubs that are held for lookups.
const MOST_HELD: u64 = 16 << 10;

impl Scan<'_> {
    /// True when a stub may answer: it does where it tells, and otherwise where it has not expired.
    fn may_answer(&self, stored: &[u8]) -> Result<bool> {
        match self.joins {
            Joins::All if RecordRef::is_stub(stored) => Ok(!hides(self.admission.snapshot, stored)),
            _ => Ok(self.admission.decide(stored)? == Verdict::Admitted),
        }
    }

    /// Gives the record of a stub that may answer, if it does.
    fn give(
        &self,
        (key, seq): (&[u8], Seq),
        record: &mut dyn FnMut() -> Slice,
        to: &mut dyn TakeScanned,
    ) -> Result<ControlFlow<()>> {
        let answers = match self.joins {
            Joins::All => self.admission.decide(&record())? == Verdict::Admitted,
            _ => true,
        };
        match answers && to.wants(seq) {
            true => to.take(key, seq, record),
            false => Ok(ControlFlow::Continue(())),
        }
    }

    /// Gives the records that answer, by key. Returns how many were looked at.
    pub(super) fn by_key(&self, to: &mut dyn TakeScanned) -> Result<u64> {
        let (layout, snapshot) = (&self.snapshot.layout, &self.snapshot.snapshot);
        let keys = &self.admission.predicates.keys;
        let mut cursor = keys.cursor(snapshot, layout.data)?;
        let (mut scanned, mut broke, mut ahead) = (0, false, Ahead::new());
        while cursor.valid() && !broke {
            scanned += 1;
            if to.wants(cursor.seq()) && self.may_answer(cursor.value())? {
                ahead.push(cursor.key(), cursor.seq(), cursor.value_slice());
            }
            cursor.next()?;
            if ahead.is_full() || !cursor.valid() {
                ahead.fill(layout, snapshot, self.place_cost)?;
                while let (false, Some(item)) = (broke, ahead.pop()) {
                    let record = &mut || item.stored.clone();
                    broke = self.give((&item.key, item.seq), record, to)?.is_break();
                }
            }
        }
        self.cost.absorb(&cursor.cost());
        Ok(scanned)
    }

    /// The same in the order of place, and those without a place first.
    pub(super) fn in_any_order(&self, to: &mut dyn TakeScanned) -> Result<u64> {
        let (layout, snapshot) = (&self.snapshot.layout, &self.snapshot.snapshot);
        let Some(mut stubs) = Stubs::new(layout, snapshot)? else {
            return Ok(0);
        };
        let worth = (stubs.bytes_of_records() / BYTES_PER_LOOKUP).min(MOST_HELD) as usize;
        let (mut few, mut many): (Vec<Item>, SeqSet) = Default::default();
        let keys = &self.admission.predicates.keys;
        let mut cursor = keys.cursor(snapshot, layout.data)?;
        let (mut scanned, mut broke) = (0, false);
        while cursor.valid() && !broke {
            scanned += 1;
            let (key, seq) = (cursor.key(), cursor.seq());
            if to.wants(seq) && self.may_answer(cursor.value())? {
                let is_stub = RecordRef::is_stub(cursor.value());
                match is_stub {
                    true if few.len() < worth && many.is_empty() => {
                        few.push(Item::new(key, seq, cursor.value_slice().compact()));
                    }
                    true => {
                        many.extend(few.drain(..).map(|item| item.seq));
                        many.insert(seq);
                    }
                    false => broke = to.take(key, seq, &mut || cursor.value_slice())?.is_break(),
                }
            }
            cursor.next()?;
        }
        self.cost.absorb(&cursor.cost());
        if broke {
            return Ok(scanned);
        }
        if many.is_empty() {
            for (at, item) in few.iter().enumerate() {
                stubs.add(at, (&item.key, item.seq), &item.stored)?;
            }
            stubs.read(
                LookupOptions::default(),
                self.place_cost,
                &mut |at, record| {
                    if let (false, Some(item)) = (broke, few.get(at)) {
                        let record = &mut || record.clone();
                        broke = self.give((&item.key, item.seq), record, to)?.is_break();
                    }
                    Ok(())
                },
            )?;
            return Ok(scanned);
        }
        self.pass(stubs.attribute(), &many, to)?;
        Ok(scanned)
    }

    /// Gives the records of some writes, as they lie.
    fn pass(&self, attribute: &Attribute, wanted: &SeqSet, to: &mut dyn TakeScanned) -> Result<()> {
        let tree = attribute.index_tree()?;
        let mut cursor = self.snapshot.snapshot.entries(tree, READAHEAD);
        cursor.seek_first()?;
        let mut left = wanted.len();
        while cursor.valid() && left > 0 {
            if cursor.kind() == Kind::Put && wanted.contains(cursor.seq()) {
                let split = Value::split(attribute.ty, cursor.key());
                let malformed = || Error::damaged("the tree of records by location: malformed key");
                let (value, key) = split.ok_or_else(malformed)?;
                if !stands_for_record(attribute, (value, cursor.value()), |_| true)? {
                    cursor.next()?;
                    continue;
                }
                left -= 1;
                let record = &mut || cursor.value_slice();
                if self.give((key, cursor.seq()), record, to)?.is_break() {
                    left = 0;
                    break;
                }
            }
            cursor.next()?;
        }
        self.place_cost.absorb(&cursor.cost());
        match left {
            0 => Ok(()),
            left => Err(Error::damaged(format!(
                "{left} records are not stored at the location of their points at {}",
                attribute.path
            ))),
        }
    }
}

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
            looks: Looks::default(),
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
