//! Scans of a dataset whose bodies are stored separately, for answers that need them.
//!
//! The heads show which records are current, and decide the conditions as far as they can. If few
//! heads remain, the scan holds them in borrowed memory, and looks their bodies up. If many remain,
//! or more than the loan has room for, a second scan reads all records in location order, and skips
//! those that are not in a set of the wanted writes.

use std::ops::ControlFlow;

use esker_lsm::coding::Own;
use esker_lsm::{Account, Cost, Loan, LookupOptions, Seq, SeqSet, Slice};
use esker_model::record::RecordRef;

use super::key_cursor::KeyCursor;
use super::stages::{Admission, Decision, TakeScanned};
use crate::bodies::{self, Bodies, ReadAhead, StoredRecord};
use crate::error::Result;
use crate::store::{View, has_expired};

/// A scan of a dataset whose bodies are stored separately.
pub(super) struct HeadScan<'a> {
    pub(super) view: &'a View,
    pub(super) admission: Admission<'a>,
    /// True if heads are enough to decide the conditions.
    pub(super) heads_decide: bool,
    /// The cost of reading heads.
    pub(super) cost: &'a Cost,
    /// The cost of reading bodies.
    pub(super) body_cost: &'a Cost,
}

/// The number of bytes that a sequential scan reads at the cost of one lookup.
const BYTES_PER_LOOKUP: u64 = 8 << 10;

/// The largest number of heads that are held for lookups. Above it, only their numbers are held,
/// and all records are scanned.
const MAX_HELD: u64 = 16 << 10;

/// The size of the first batch of lookups.
const FIRST_BATCH: usize = 256;

/// The memory of a held head beside its bytes: its place in a list, which may have as much in
/// reserve.
const HEAD_BYTES: usize = 2 * size_of::<StoredRecord>();

/// The heads that a scan holds for lookups, in borrowed memory.
struct HeldHeads<'a> {
    view: &'a View,
    /// The largest number of heads.
    most: usize,
    heads: Vec<StoredRecord>,
    /// The memory of the heads.
    bytes: usize,
    /// Borrowed with the first head.
    loan: Option<Loan>,
}

impl HeldHeads<'_> {
    /// Holds a head; false if there is no room for it.
    fn push(&mut self, key: &[u8], seq: Seq, head: Slice) -> bool {
        if self.heads.len() >= self.most {
            return false;
        }
        let store = &self.view.dataset.store;
        let loan = (self.loan).get_or_insert_with(|| store.borrow(Account::Queries));
        let bytes = self.bytes + key.len() + head.len() + HEAD_BYTES;
        if bytes > loan.bytes() {
            return false;
        }
        self.bytes = bytes;
        (self.heads).push(StoredRecord::new(key, seq, head.compact()));
        true
    }

    /// Adds the numbers of the heads to a set, and drops the heads and the loan.
    fn move_to(&mut self, set: &mut SeqSet) {
        set.extend(self.heads.drain(..).map(|head| head.seq));
        self.heads = Vec::new();
        self.loan = None;
    }

    /// Returns the memory that the heads do not need.
    fn shrink(&mut self) {
        if let Some(loan) = &mut self.loan {
            loan.shrink(self.bytes);
        }
    }
}

impl HeadScan<'_> {
    /// True if a record may answer the query. A head that cannot decide the conditions may answer
    /// unless it has expired.
    fn may_answer(&self, stored: &[u8]) -> Result<bool> {
        if self.heads_decide || !RecordRef::lacks_body(stored) {
            return Ok(self.admission.decide(stored)? == Decision::Admitted);
        }
        Ok(!has_expired(self.admission.snapshot, stored))
    }

    /// Passes a record whose head may answer to `receiver`, if the record answers the query.
    fn offer(
        &self,
        key: &[u8],
        seq: Seq,
        record: &mut dyn FnMut() -> Slice,
        receiver: &mut dyn TakeScanned,
    ) -> Result<ControlFlow<()>> {
        let answers = self.heads_decide || self.admission.decide(&record())? == Decision::Admitted;
        if answers && receiver.wants(seq) {
            receiver.take(key, seq, record)
        } else {
            Ok(ControlFlow::Continue(()))
        }
    }

    /// Passes the records that answer to `receiver`, by key. Returns the number of entries scanned.
    pub(super) fn by_key(&self, receiver: &mut dyn TakeScanned) -> Result<u64> {
        let (layout, snapshot) = (&self.view.layout, &self.view.snapshot);
        let keys = &self.admission.compiled.keys;
        let mut cursor = KeyCursor::new(keys, snapshot, layout.data)?;
        let mut scanned = 0;
        let mut has_ended = false;
        let mut ahead = ReadAhead::new();
        while cursor.valid() && !has_ended {
            scanned += 1;
            if receiver.wants(cursor.seq()) && self.may_answer(cursor.value())? {
                ahead.push(cursor.key(), cursor.seq(), cursor.value_slice());
            }
            cursor.next()?;
            if ahead.is_full() || !cursor.valid() {
                ahead.fill(layout, snapshot, self.body_cost)?;
                while !has_ended && let Some(head) = ahead.pop() {
                    let record = &mut || head.stored.clone();
                    has_ended = self
                        .offer(&head.key, head.seq, record, receiver)?
                        .is_break();
                }
            }
        }
        self.cost.absorb(&cursor.cost());
        Ok(scanned)
    }

    /// As [`HeadScan::by_key`], in no particular order. Passes on the records that have their
    /// bodies while it scans the heads. Then it reads the other bodies: by lookups in batches, or,
    /// if they are many, by one scan of the location tree.
    pub(super) fn in_any_order(&self, receiver: &mut dyn TakeScanned) -> Result<u64> {
        let (layout, snapshot) = (&self.view.layout, &self.view.snapshot);
        let mut bodies = Bodies::new(layout, snapshot)?;
        let mut to_look_up = HeldHeads {
            view: self.view,
            most: (bodies.total_bytes() / BYTES_PER_LOOKUP).min(MAX_HELD) as usize,
            heads: Vec::new(),
            bytes: 0,
            loan: None,
        };
        let mut to_scan_for = SeqSet::default();
        let keys = &self.admission.compiled.keys;
        let mut cursor = KeyCursor::new(keys, snapshot, layout.data)?;
        let mut scanned = 0;
        let mut has_ended = false;
        while cursor.valid() && !has_ended {
            scanned += 1;
            let (key, seq) = (cursor.key(), cursor.seq());
            if receiver.wants(seq) && self.may_answer(cursor.value())? {
                if !RecordRef::lacks_body(cursor.value()) {
                    has_ended = receiver
                        .take(key, seq, &mut || cursor.value_slice())?
                        .is_break();
                } else if !to_scan_for.is_empty()
                    || !to_look_up.push(key, seq, cursor.value_slice())
                {
                    to_look_up.move_to(&mut to_scan_for);
                    to_scan_for.insert(seq);
                }
                debug_assert!(to_look_up.heads.is_empty() || to_scan_for.is_empty());
            }
            cursor.next()?;
        }
        self.cost.absorb(&cursor.cost());
        if has_ended {
            return Ok(scanned);
        }
        if to_scan_for.is_empty() {
            to_look_up.shrink();
            self.look_up(&to_look_up.heads, &mut bodies, receiver)?;
            return Ok(scanned);
        }
        let visit = &mut |key: &[u8], seq, record: &mut dyn FnMut() -> Slice| {
            self.offer(key, seq, record, receiver)
        };
        bodies::scan_by_location(layout, snapshot, &to_scan_for, self.body_cost, visit)?;
        Ok(scanned)
    }

    /// Looks up the bodies of heads and passes the records that answer to `receiver`, until it
    /// breaks.
    /// Batches double: small ones first, because a receiver that breaks early wastes the rest of
    /// its batch; then large ones, because neighbours share blocks.
    fn look_up(
        &self,
        heads: &[StoredRecord],
        bodies: &mut Bodies<'_>,
        receiver: &mut dyn TakeScanned,
    ) -> Result<()> {
        let mut rest = heads;
        let mut batch_size = FIRST_BATCH;
        let mut has_ended = false;
        while !rest.is_empty() && !has_ended {
            let batch;
            (batch, rest) = rest.split_at(batch_size.min(rest.len()));
            batch_size *= 2;
            for (at, head) in batch.iter().enumerate() {
                bodies.add(at, &head.key, head.seq, &head.stored)?;
            }
            let take = &mut |at: usize, record: Slice| {
                if !has_ended {
                    let head = batch.item(at)?;
                    let record = &mut || record.clone();
                    has_ended = self
                        .offer(&head.key, head.seq, record, receiver)?
                        .is_break();
                }
                Ok(())
            };
            bodies.read(LookupOptions::default(), self.body_cost, take)?;
        }
        Ok(())
    }
}
