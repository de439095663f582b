//! Large answers without an order of recency. The index entries of the driving index are gone through once and
//! sorted by key (on disk where memory does not do, [`lsm::sort`]), so that the lookups go through the
//! data front to back, in large batches (Luo & Carey section 3.2). Nothing waits for a page, and a
//! record whose attribute has several values in the range is looked up once.

use std::ops::ControlFlow;

use lsm::sort::{Sorted, Sorter};
use lsm::{Account, Cursor, Expected, Seq, Slice, Snapshot};
use model::Key;

use super::answer::{Answer, parse};
use super::explain::{Explain, Steps};
use super::plan::Driver;
use super::predicate::Predicates;
use super::{Query, scan};
use crate::catalog::{Attribute, Layout};
use crate::error::{Error, Result};
use crate::index::{self, Lookup};
use crate::maintenance::Validity;
use crate::record::Record;
use crate::store::hides;

/// In which order [`visit`](crate::Query::visit) gives records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkOrder {
    /// As they are found: the least work.
    Any,
    /// By primary key, ascending.
    Key,
}

/// Is given the records.
pub(super) type Visit<'v> = dyn FnMut(Record) -> ControlFlow<()> + 'v;

/// An index of fewer index entries than this in the range is read block by block.
const READAHEAD_FACTS: u64 = 10_000;

/// What a key of a chunk takes beside its bytes.
const KEY_BYTES: usize = size_of::<&[u8]>() + size_of::<(usize, Seq)>();

pub(super) fn visit(query: Query, order: BulkOrder, visit: &mut Visit<'_>) -> Result<Explain> {
    if query.after.is_some() {
        return Err(Error::bad_input("only answers by recency have pages"));
    }
    let mut answer = query.run()?;
    if !answer.exhausted {
        answer.visit_in_bulk(order, visit)?;
    }
    Ok(answer.explain())
}

impl Answer {
    fn visit_in_bulk(&mut self, order: BulkOrder, visit: &mut Visit<'_>) -> Result<()> {
        let layout = self.snapshot.layout.clone();
        if self.plan.driver == Driver::Scan {
            return self.visit_scan(&layout, visit);
        }
        // The first few in any order: there is no better way to find few than by recency.
        if order == BulkOrder::Any && self.remaining.is_some() {
            return self.visit_by_recency(visit);
        }
        let single = self.plan.driver.single();
        let driver = single.and_then(|at| self.predicates.declared.get(at));
        let attribute = driver.and_then(|driver| layout.attributes.get(driver.attribute));
        // The sorted keys have half of it, the keys of a chunk and the records of a batch a quarter each.
        let loan = self.snapshot.dataset.shared.borrow(Account::Queries);
        let share = loan.bytes() / 4;
        let sorted = match (single, attribute) {
            (Some(at), Some(attribute)) if attribute.kind.is_standalone() => {
                self.sort_entries(&layout, at, attribute, 2 * share)?
            }
            // The records are found with the index entries, or the index entries of several ranges may be the same.
            _ if order == BulkOrder::Any => return self.visit_by_recency(visit),
            _ => self.sort_records(2 * share)?,
        };
        self.visit_sorted(&layout, single, sorted, share, order, visit)
    }

    fn visit_by_recency(&mut self, visit: &mut Visit<'_>) -> Result<()> {
        for record in self {
            if visit(record?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn visit_scan(&mut self, layout: &Layout, visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = self.snapshot.snapshot.cursor(layout.data, scan::READAHEAD);
        cursor.seek_first()?;
        let mut sieve = self.sieve(layout, None, visit);
        while cursor.valid() && !sieve.is_done() {
            sieve.steps.candidates += 1;
            if sieve.admits(cursor.value())? {
                sieve.give(cursor.key(), cursor.seq(), cursor.value_slice())?;
            }
            cursor.next()?;
        }
        self.data_cost.absorb(&cursor.cost());
        self.exhausted = true;
        Ok(())
    }

    fn sorter(&self, memory: usize) -> Sorter {
        let group = &self.snapshot.dataset.shared.group;
        Sorter::new(group.options().fs.clone(), group.dir(), memory)
    }

    /// The keys of the index entries in the driver's range.
    fn sort_entries(
        &mut self,
        layout: &Layout,
        driver: usize,
        attribute: &Attribute,
        memory: usize,
    ) -> Result<Sorted> {
        let mut sorter = self.sorter(memory);
        let declared = self.predicates.declared.get(driver);
        let Some(range) = declared.and_then(|predicate| predicate.sought_range()) else {
            return Ok(sorter.finish()?);
        };
        let snapshot = &self.snapshot.snapshot;
        let lookup = Lookup {
            layout,
            snapshot,
            data_cost: &self.data_cost,
            index_cost: &self.index_cost,
        };
        let many = match index::of(attribute.kind) {
            Some(index) => index.estimate(&lookup, attribute, range)? >= READAHEAD_FACTS,
            None => false,
        };
        let readahead = if many { scan::READAHEAD } else { 0 };
        let (mut index_entries, mut over) = (0, 0);
        let validity = &self.validity;
        let mut take = |_: &[u8], key: &[u8], seq| {
            index_entries += 1;
            if validity.is_over(seq) {
                over += 1;
                return Ok(());
            }
            Ok(sorter.add(key, seq)?)
        };
        let cost = &self.index_cost;
        index::each_fact(snapshot, attribute, Some(range), readahead, cost, &mut take)?;
        self.steps.candidates += index_entries;
        self.steps.superseded += over;
        self.steps.rounds += 1;
        Ok(sorter.finish()?)
    }

    /// The keys of all matching records, of an index whose index entries are not apart from the records.
    fn sort_records(&mut self, memory: usize) -> Result<Sorted> {
        let mut sorter = self.sorter(memory);
        let limit = self.remaining.take();
        for record in self.by_ref() {
            let record = record?;
            sorter.add(record.key().as_bytes(), record.seq())?;
        }
        self.remaining = limit;
        self.steps.answers = 0;
        Ok(sorter.finish()?)
    }

    /// Looks up the keys, and gives the records that are current and meet the other conditions.
    fn visit_sorted(
        &mut self,
        layout: &Layout,
        driver: Option<usize>,
        mut sorted: Sorted,
        share: usize,
        order: BulkOrder,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let mut options = self.lookup;
        options.batch_bytes = options.batch_bytes.min(share);
        let snapshot = self.snapshot.snapshot.clone();
        let components = snapshot.components(layout.data);
        let cost = snapshot.cost();
        let validity = self.asks.then(|| self.validity.clone());
        let known = self.knows_current();
        let keys_cost = snapshot.cost();
        let mut sieve = self.sieve(layout, driver, visit);
        let mut chunk = Chunk::default();
        while !sieve.is_done() && chunk.fill(&mut sorted, share)? {
            if let Some(validity) = &validity {
                sieve.steps.asked += chunk.seqs.len() as u64;
                sieve.steps.superseded += chunk.validate(validity, &keys_cost)?;
            }
            let keys = chunk.keys();
            let expected = match known {
                true => Expected::Exactly(&chunk.seqs),
                false => Expected::AtLeast(&chunk.seqs),
            };
            let mut lookup = snapshot.lookup(&components, &keys, expected, options, &cost);
            let (mut held, mut failed): (Vec<(usize, Slice)>, _) = (Vec::new(), Ok(()));
            while !sieve.is_done() {
                let mut current = 0;
                let batch = lookup.next_batch(&mut |at, found| {
                    // The write that made the index entry is the one that made the record.
                    if failed.is_err() || chunk.seqs.get(at) != Some(&found.seq) {
                        return;
                    }
                    current += 1;
                    let key = keys.get(at).copied().unwrap_or_default();
                    failed = match sieve.admits(&found.value) {
                        Ok(true) if order == BulkOrder::Key => {
                            held.push((at, found.value.compact()));
                            Ok(())
                        }
                        Ok(true) => sieve.give(key, found.seq, found.value),
                        Ok(false) => Ok(()),
                        Err(error) => Err(error),
                    };
                });
                let Some(positions) = batch? else { break };
                std::mem::replace(&mut failed, Ok(()))?;
                sieve.steps.fetched += positions.len() as u64;
                sieve.steps.superseded += positions.len() as u64 - current;
                sieve.steps.wasted += positions.len() as u64 - current;
                held.sort_unstable_by_key(|(at, _)| *at);
                for (at, value) in held.drain(..) {
                    if let (Some(key), Some(seq)) = (keys.get(at), chunk.seqs.get(at)) {
                        sieve.give(key, *seq, value)?;
                    }
                }
            }
        }
        self.data_cost.absorb(&cost);
        self.keys_cost.absorb(&keys_cost);
        self.exhausted = true;
        Ok(())
    }

    fn sieve<'a>(
        &'a mut self,
        layout: &'a Layout,
        driver: Option<usize>,
        visit: &'a mut Visit<'a>,
    ) -> Sieve<'a> {
        Sieve {
            snapshot: &self.snapshot.snapshot,
            all_answered: self.predicates.is_answered_by(&self.plan.driver),
            layout,
            driver,
            predicates: &self.predicates,
            steps: &mut self.steps,
            remaining: &mut self.remaining,
            visit,
        }
    }
}

/// The last steps of every current record: confirm, give.
struct Sieve<'a> {
    snapshot: &'a Snapshot,
    layout: &'a Layout,
    driver: Option<usize>,
    all_answered: bool,
    predicates: &'a Predicates,
    steps: &'a mut Steps,
    remaining: &'a mut Option<usize>,
    visit: &'a mut Visit<'a>,
}

impl Sieve<'_> {
    /// True when as many were given as are wanted.
    fn is_done(&self) -> bool {
        *self.remaining == Some(0)
    }

    /// True when a record has not expired and meets all conditions that the driver has not answered.
    fn admits(&mut self, value: &[u8]) -> Result<bool> {
        if hides(self.snapshot, value) {
            return Ok(false);
        }
        let admits = self.all_answered
            || (self.predicates).confirm(&parse(value)?, self.layout, self.driver);
        if !admits && self.driver.is_some() {
            self.steps.discarded += 1;
        }
        Ok(admits)
    }

    /// Gives a record, unless no more is wanted.
    fn give(&mut self, key: &[u8], seq: Seq, value: Slice) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        *self.remaining = self.remaining.map(|left| left - 1);
        self.steps.answers += 1;
        if (self.visit)(Record::new(
            Key::from_encoded(self.layout.stored.key_type, key.to_vec()),
            seq,
            value,
        )?)
        .is_break()
        {
            *self.remaining = Some(0);
        }
        Ok(())
    }
}

/// Keys that are looked up together, in order.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    seqs: Vec<Seq>,
}

impl Chunk {
    /// Takes the next keys, about `share` bytes of them; false when there are none.
    fn fill(&mut self, sorted: &mut Sorted, share: usize) -> Result<bool> {
        self.bytes.clear();
        self.ends.clear();
        self.seqs.clear();
        while self.bytes.len() + self.ends.len() * KEY_BYTES <= share {
            let Some((key, seq)) = sorted.next()? else {
                break;
            };
            self.bytes.extend_from_slice(key);
            self.ends.push(self.bytes.len());
            self.seqs.push(seq);
        }
        Ok(!self.seqs.is_empty())
    }

    /// Drops candidates that have newer writes; returns how many.
    fn validate(&mut self, validity: &Validity, cost: &lsm::Cost) -> Result<u64> {
        validity.prepare(self.seqs.len() as u64, cost)?;
        let before = self.seqs.len();
        let (bytes, ends, seqs) = (
            std::mem::take(&mut self.bytes),
            std::mem::take(&mut self.ends),
            std::mem::take(&mut self.seqs),
        );
        let mut start = 0;
        for (end, seq) in ends.into_iter().zip(seqs) {
            let key = bytes.get(start..end).unwrap_or_default();
            start = end;
            if !validity.is_superseded(seq, key, cost)? {
                self.bytes.extend_from_slice(key);
                self.ends.push(self.bytes.len());
                self.seqs.push(seq);
            }
        }
        Ok((before - self.seqs.len()) as u64)
    }

    fn keys(&self) -> Vec<&[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let each = starts.zip(&self.ends);
        each.map(|(start, end)| self.bytes.get(start..*end).unwrap_or_default())
            .collect()
    }
}
