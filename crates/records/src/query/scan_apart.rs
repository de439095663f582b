//! Scans of a dataset whose bodies are stored apart, for answers that need them.
//!
//! The heads show which records are current, and decide the conditions as far as they can. If few
//! heads remain, the scan looks their bodies up. If many remain, a second pass reads all records
//! in location order, and skips those that are not in a set of the wanted writes.

use std::ops::ControlFlow;

use esker_lsm::coding::Own;
use esker_lsm::{Cost, LookupOptions, Seq, SeqSet, Slice};
use esker_model::record::RecordRef;

use super::key_cursor::KeyCursor;
use super::stages::{Admission, Needs, TakeScanned, Verdict};
use crate::bodies::{self, Ahead, Bodies, Item};
use crate::error::Result;
use crate::store::{View, hides};

/// A scan of a dataset whose bodies are stored apart.
pub(super) struct ScanApart<'a> {
    pub(super) view: &'a View,
    pub(super) admission: Admission<'a>,
    pub(super) needs: Needs<'a>,
    pub(super) cost: &'a Cost,
    /// The cost of reading bodies.
    pub(super) body_cost: &'a Cost,
}

/// The number of bytes that a sequential pass reads at the cost of one lookup.
const BYTES_PER_LOOKUP: u64 = 8 << 10;

/// The largest number of heads that are held for lookups.
const MOST_HELD: u64 = 16 << 10;

/// The number of bodies that are looked up first.
const LOOKUPS: usize = 256;

impl ScanApart<'_> {
    /// True if a record may answer the query. A head that cannot decide the conditions may answer
    /// unless it has expired.
    fn may_answer(&self, stored: &[u8]) -> Result<bool> {
        match self.needs {
            Needs::All if RecordRef::lacks_body(stored) => {
                Ok(!hides(self.admission.snapshot, stored))
            }
            _ => Ok(self.admission.decide(stored)? == Verdict::Admitted),
        }
    }

    /// Passes a record that may answer to `to`, if it does answer.
    fn offer(
        &self,
        key: &[u8],
        seq: Seq,
        record: &mut dyn FnMut() -> Slice,
        to: &mut dyn TakeScanned,
    ) -> Result<ControlFlow<()>> {
        let answers = match self.needs {
            Needs::All => self.admission.decide(&record())? == Verdict::Admitted,
            _ => true,
        };
        if answers && to.wants(seq) {
            to.take(key, seq, record)
        } else {
            Ok(ControlFlow::Continue(()))
        }
    }

    /// Passes the records that answer to `to`, by key. Returns the number of entries scanned.
    pub(super) fn by_key(&self, to: &mut dyn TakeScanned) -> Result<u64> {
        let (layout, snapshot) = (&self.view.layout, &self.view.snapshot);
        let keys = &self.admission.compiled.keys;
        let mut cursor = KeyCursor::new(keys, snapshot, layout.data)?;
        let mut scanned = 0;
        let mut broke = false;
        let mut ahead = Ahead::new();
        while cursor.valid() && !broke {
            scanned += 1;
            if to.wants(cursor.seq()) && self.may_answer(cursor.value())? {
                ahead.push(cursor.key(), cursor.seq(), cursor.value_slice());
            }
            cursor.next()?;
            if ahead.is_full() || !cursor.valid() {
                ahead.fill(layout, snapshot, self.body_cost)?;
                while let (false, Some(item)) = (broke, ahead.pop()) {
                    let record = &mut || item.stored.clone();
                    broke = self.offer(&item.key, item.seq, record, to)?.is_break();
                }
            }
        }
        self.cost.absorb(&cursor.cost());
        Ok(scanned)
    }

    /// As [`ScanApart::by_key`], but in another order: whole records first, then the others, each
    /// batch of them, or all, in location order.
    pub(super) fn in_any_order(&self, to: &mut dyn TakeScanned) -> Result<u64> {
        let (layout, snapshot) = (&self.view.layout, &self.view.snapshot);
        let mut bodies = Bodies::new(layout, snapshot)?;
        let worth = (bodies.total_bytes() / BYTES_PER_LOOKUP).min(MOST_HELD) as usize;
        let mut few = Vec::new();
        let mut many = SeqSet::default();
        let keys = &self.admission.compiled.keys;
        let mut cursor = KeyCursor::new(keys, snapshot, layout.data)?;
        let mut scanned = 0;
        let mut broke = false;
        while cursor.valid() && !broke {
            scanned += 1;
            let (key, seq) = (cursor.key(), cursor.seq());
            if to.wants(seq) && self.may_answer(cursor.value())? {
                if !RecordRef::lacks_body(cursor.value()) {
                    broke = to.take(key, seq, &mut || cursor.value_slice())?.is_break();
                } else if few.len() < worth && many.is_empty() {
                    few.push(Item::new(key, seq, cursor.value_slice().compact()));
                } else {
                    many.extend(few.drain(..).map(|item| item.seq));
                    many.insert(seq);
                }
            }
            cursor.next()?;
        }
        self.cost.absorb(&cursor.cost());
        if broke {
            return Ok(scanned);
        }
        if many.is_empty() {
            self.look_up(&few, &mut bodies, to)?;
            return Ok(scanned);
        }
        let visit = &mut |key: &[u8], seq, record: &mut dyn FnMut() -> Slice| {
            self.offer(key, seq, record, to)
        };
        bodies::pass(layout, snapshot, &many, self.body_cost, visit)?;
        Ok(scanned)
    }

    /// Looks the bodies of some heads up, and passes the records that answer to `to` until it
    /// breaks. In growing batches, so that few are read in vain, and neighbours are read together.
    fn look_up(
        &self,
        heads: &[Item],
        bodies: &mut Bodies<'_>,
        to: &mut dyn TakeScanned,
    ) -> Result<()> {
        let mut rest = heads;
        let mut most = LOOKUPS;
        let mut broke = false;
        while !rest.is_empty() && !broke {
            let batch;
            (batch, rest) = rest.split_at(most.min(rest.len()));
            most *= 2;
            for (at, item) in batch.iter().enumerate() {
                bodies.add(at, &item.key, item.seq, &item.stored)?;
            }
            let take = &mut |at: usize, record: Slice| {
                if !broke {
                    let item = batch.item(at)?;
                    let record = &mut || record.clone();
                    broke = self.offer(&item.key, item.seq, record, to)?.is_break();
                }
                Ok(())
            };
            bodies.read(LookupOptions::default(), self.body_cost, take)?;
        }
        Ok(())
    }
}
