//! Scans of a dataset that is stored by location, for answers that need more than stubs.
//!
//! The stubs show which records are current, and decide the conditions as far as they can. If few
//! stubs remain, the scan looks their records up. If many remain, a second pass reads all records
//! in location order, and skips those that are not in a set of the wanted writes.

use std::ops::ControlFlow;

use esker_lsm::{Cost, Cursor, Kind, LookupOptions, Seq, SeqSet, Slice};
use esker_model::record::RecordRef;
use esker_model::schema::Value;

use super::key_cursor::{KeyCursor, READAHEAD};
use super::stages::{Admission, Joins, TakeScanned, Verdict};
use crate::catalog::Attribute;
use crate::error::{Error, Result};
use crate::index::stands_for_record;
use crate::store::{Ahead, Item, Stubs, View, hides};

/// A scan of a dataset that is stored by location.
pub(super) struct ScanByPlace<'a> {
    pub(super) view: &'a View,
    pub(super) admission: Admission<'a>,
    pub(super) joins: Joins<'a>,
    pub(super) cost: &'a Cost,
    /// The cost of reads in the location tree.
    pub(super) place_cost: &'a Cost,
}

/// The number of bytes that a sequential pass reads at the cost of one lookup.
const BYTES_PER_LOOKUP: u64 = 8 << 10;

/// The largest number of stubs that are held for lookups.
const MOST_HELD: u64 = 16 << 10;

impl ScanByPlace<'_> {
    /// True if a record may answer the query. A stub that cannot decide the conditions may answer
    /// unless it has expired.
    fn may_answer(&self, stored: &[u8]) -> Result<bool> {
        match self.joins {
            Joins::All if RecordRef::is_stub(stored) => Ok(!hides(self.admission.snapshot, stored)),
            _ => Ok(self.admission.decide(stored)? == Verdict::Admitted),
        }
    }

    /// Passes the record of a stub that may answer to `to`, if it does answer.
    fn offer(
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

    /// Passes the records that answer to `to`, by key. Returns the number of entries scanned.
    pub(super) fn by_key(&self, to: &mut dyn TakeScanned) -> Result<u64> {
        let (layout, snapshot) = (&self.view.layout, &self.view.snapshot);
        let keys = &self.admission.compiled.keys;
        let mut cursor = KeyCursor::new(keys, snapshot, layout.data)?;
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
                    broke = self.offer((&item.key, item.seq), record, to)?.is_break();
                }
            }
        }
        self.cost.absorb(&cursor.cost());
        Ok(scanned)
    }

    /// As [`ScanByPlace::by_key`], but in another order: records stored in full first, then the
    /// records of stubs in location order.
    pub(super) fn in_any_order(&self, to: &mut dyn TakeScanned) -> Result<u64> {
        let (layout, snapshot) = (&self.view.layout, &self.view.snapshot);
        let Some(mut stubs) = Stubs::new(layout, snapshot)? else {
            return Ok(0);
        };
        let worth = (stubs.bytes_of_records() / BYTES_PER_LOOKUP).min(MOST_HELD) as usize;
        let (mut few, mut many): (Vec<Item>, SeqSet) = Default::default();
        let keys = &self.admission.compiled.keys;
        let mut cursor = KeyCursor::new(keys, snapshot, layout.data)?;
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
                        broke = self.offer((&item.key, item.seq), record, to)?.is_break();
                    }
                    Ok(())
                },
            )?;
            return Ok(scanned);
        }
        self.pass(stubs.attribute(), &many, to)?;
        Ok(scanned)
    }

    /// Passes the records of the writes in `wanted` to `to`, in location order.
    fn pass(&self, attribute: &Attribute, wanted: &SeqSet, to: &mut dyn TakeScanned) -> Result<()> {
        let tree = attribute.index_tree()?;
        let mut cursor = self.view.snapshot.entries(tree, READAHEAD);
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
                if self.offer((key, cursor.seq()), record, to)?.is_break() {
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
