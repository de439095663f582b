//! Large answers without an order of recency. The index entries of the driving index are gone through once and
//! sorted by key (on disk where memory does not do, [`esker_lsm::sort`]), so that the lookups go through the
//! data front to back, in large batches (Luo & Carey section 3.2). Nothing waits for a page, and a
//! record whose attribute has several values in the range is looked up once.

use std::ops::ControlFlow;

use esker_lsm::sort::{Sorted, Sorter};
use esker_lsm::{Account, Cost, Seq, Slice};
use esker_model::Key;
use esker_model::schema::KeyType;

use super::answer::Answer;
use super::explain::{Explain, Steps};
use super::plan::Driver;
use super::stages::{self, Admission, Fetch, Joins, TakeCurrent, TakeScanned};
use super::{Query, scan};
use crate::catalog::Attribute;
use crate::error::{Error, Result};
use crate::index::{self, Looks, Lookup};
use crate::maintenance::Validity;
use crate::record::Record;
use crate::store::View;

/// The order in which [`visit`](crate::Query::visit) returns records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BulkOrder {
    /// In no particular order: the fastest.
    Any,
    /// By primary key, ascending.
    Key,
}

/// Is given the records.
pub(super) type Visit<'v> = dyn FnMut(Record) -> ControlFlow<()> + 'v;

/// What becomes of the answers.
pub(super) enum Sink<'v> {
    Visit(&'v mut Visit<'v>),
    /// Nothing: they are counted.
    Count,
}

/// An index of fewer index entries than this in the range is read block by block.
const READAHEAD_FACTS: u64 = 10_000;

/// What a key of a chunk takes beside its bytes.
const KEY_BYTES: usize = size_of::<&[u8]>() + size_of::<(usize, Seq)>();

pub(super) fn visit(query: Query, order: BulkOrder, visit: &mut Visit<'_>) -> Result<Explain> {
    if query.after.is_some() {
        return Err(Error::bad_input(
            "only the orders newest and oldest have pages",
        ));
    }
    let mut answer = query.run()?;
    if !answer.exhausted {
        answer.visit_in_bulk(order, Sink::Visit(visit))?;
    }
    Ok(answer.explain())
}

impl Answer {
    fn visit_in_bulk(&mut self, order: BulkOrder, sink: Sink<'_>) -> Result<()> {
        let layout = self.snapshot.layout.clone();
        if self.plan.driver == Driver::Scan {
            return self.visit_scan(order, sink);
        }
        // The first few in any order: there is no better way to find few than by recency.
        if order == BulkOrder::Any && self.remaining.is_some() {
            return self.visit_by_recency(sink);
        }
        let single = self.plan.driver.single();
        let driver = single.and_then(|at| self.predicates.declared.get(at));
        let attribute = driver.and_then(|driver| layout.attributes.get(driver.attribute));
        match (single, attribute) {
            (Some(at), Some(attribute)) if attribute.kind.is_standalone() => {
                self.visit_index((at, attribute), order, sink)
            }
            // The records are found with the index entries, or the index entries of several ranges may be the same.
            _ if order == BulkOrder::Any => self.visit_by_recency(sink),
            _ => {
                let loan = self.snapshot.dataset.shared.borrow(Account::Queries);
                let share = loan.bytes() / 4;
                let sorted = self.sort_records(2 * share)?;
                self.visit_sorted(sorted, share, order, sink)
            }
        }
    }

    /// Gives the records that a stand-alone index has in the range of a condition.
    pub(super) fn visit_index(
        &mut self,
        (driver, attribute): (usize, &Attribute),
        order: BulkOrder,
        sink: Sink<'_>,
    ) -> Result<()> {
        if index::brings_records(attribute.kind) && order == BulkOrder::Any {
            return self.visit_by_place(driver, attribute, sink);
        }
        // The sorted keys have half of it, the keys of a chunk and the records of a batch a quarter each.
        let loan = self.snapshot.dataset.shared.borrow(Account::Queries);
        let share = loan.bytes() / 4;
        let sorted = self.sort_entries(driver, attribute, 2 * share)?;
        self.visit_sorted(sorted, share, order, sink)
    }

    fn visit_by_recency(&mut self, sink: Sink<'_>) -> Result<()> {
        match sink {
            Sink::Visit(visit) => {
                for record in self {
                    if visit(record?).is_break() {
                        break;
                    }
                }
            }
            Sink::Count => while self.step()?.is_some() {},
        }
        Ok(())
    }

    /// Gives the records that meet the conditions, without an index.
    pub(super) fn visit_scan(&mut self, order: BulkOrder, sink: Sink<'_>) -> Result<()> {
        let mut give = Give {
            key_type: self.snapshot.layout.stored.key_type,
            remaining: self.remaining,
            answers: 0,
            sink,
        };
        if !give.is_done() {
            let (snapshot, predicates) = (&self.snapshot, &self.predicates);
            let given_out = matches!(give.sink, Sink::Visit(_));
            let costs = (&self.data_cost, &self.place_cost);
            let scanned =
                stages::scan_matching(snapshot, predicates, (order, given_out), costs, &mut give)?;
            self.steps.candidates += scanned;
            self.steps.scanned += scanned;
        }
        self.steps.answers += give.answers;
        self.remaining = give.remaining;
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
        driver: usize,
        attribute: &Attribute,
        memory: usize,
    ) -> Result<Sorted> {
        let layout = &*self.snapshot.layout;
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
            looks: Looks::default(),
        };
        let many = match index::of(attribute.kind) {
            // Areas are read block by block.
            Some(index) if index.is_of_points() && !range.regions.is_empty() => false,
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
        index::each_fact(&lookup, attribute, Some(range), readahead, &mut take)?;
        self.steps.candidates += index_entries;
        self.steps.obsolete += over;
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

    /// Takes sorted candidates through the stages.
    fn visit_sorted(
        &mut self,
        mut sorted: Sorted,
        share: usize,
        order: BulkOrder,
        sink: Sink<'_>,
    ) -> Result<()> {
        let mut options = self.lookup;
        options.batch_bytes = options.batch_bytes.min(share);
        let mut steps = std::mem::take(&mut self.steps);
        let fetch = Fetch {
            view: &self.snapshot,
            components: &self.components,
            known: self.knows_current(),
            options,
            cost: &self.data_cost,
            joins: Joins::of(Admission::of(self), matches!(sink, Sink::Visit(_))),
            place_cost: &self.place_cost,
        };
        let admission = Admission::of(self);
        let mut give = Give {
            key_type: self.snapshot.layout.stored.key_type,
            remaining: self.remaining,
            answers: 0,
            sink,
        };
        let mut chunk = Chunk::default();
        let mut run = || -> Result<()> {
            while !give.is_done() && chunk.fill(&mut sorted, share)? {
                steps.obsolete += chunk.leave_out_noted(&self.snapshot)?;
                if self.probes_keys {
                    steps.probed += chunk.seqs.len() as u64;
                    steps.obsolete += chunk.validate(&self.validity, &self.keys_cost)?;
                }
                let keys = chunk.keys();
                let mut taking = Taking {
                    admission,
                    give: &mut give,
                    steps: &mut steps,
                    order,
                    keys: &keys,
                    seqs: &chunk.seqs,
                    held: Vec::new(),
                };
                let fetched = fetch.run(&keys, &chunk.seqs, &mut taking)?;
                fetched.count_in(&mut steps);
            }
            Ok(())
        };
        let result = run();
        steps.answers += give.answers;
        let remaining = give.remaining;
        self.steps = steps;
        self.remaining = remaining;
        self.exhausted = true;
        result
    }
}

/// The last stage of answers in bulk: gives them, or counts them, unless no more is wanted.
pub(super) struct Give<'a> {
    pub(super) key_type: KeyType,
    /// How many more are wanted.
    pub(super) remaining: Option<usize>,
    pub(super) answers: u64,
    pub(super) sink: Sink<'a>,
}

impl Give<'_> {
    /// True when as many were given as are wanted.
    pub(super) fn is_done(&self) -> bool {
        self.remaining == Some(0)
    }

    pub(super) fn give(
        &mut self,
        key: &[u8],
        seq: Seq,
        value: impl FnOnce() -> Slice,
    ) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        self.remaining = self.remaining.map(|left| left - 1);
        self.answers += 1;
        if let Sink::Visit(visit) = &mut self.sink {
            let key = Key::from_encoded(self.key_type, key.to_vec());
            if visit(Record::new(key, seq, value())?).is_break() {
                self.remaining = Some(0);
            }
        }
        Ok(())
    }

    fn goes_on(&self) -> ControlFlow<()> {
        match self.is_done() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

impl TakeScanned for Give<'_> {
    fn take(
        &mut self,
        key: &[u8],
        seq: Seq,
        record: &mut dyn FnMut() -> Slice,
    ) -> Result<ControlFlow<()>> {
        self.give(key, seq, record)?;
        Ok(self.goes_on())
    }
}

/// Takes the records of a chunk of candidates.
struct Taking<'t, 'a> {
    admission: Admission<'t>,
    give: &'t mut Give<'a>,
    steps: &'t mut Steps,
    order: BulkOrder,
    keys: &'t [&'t [u8]],
    seqs: &'t [Seq],
    /// The records of a batch, where they are to be in order.
    held: Vec<(usize, Slice)>,
}

impl TakeCurrent for Taking<'_, '_> {
    fn take(&mut self, at: usize, record: Slice) -> Result<()> {
        if self.give.is_done() || !self.admission.admits(&record, self.steps)? {
            return Ok(());
        }
        if self.order == BulkOrder::Key {
            self.held.push((at, record.compact()));
            return Ok(());
        }
        match (self.keys.get(at), self.seqs.get(at)) {
            (Some(key), Some(seq)) => self.give.give(key, *seq, || record),
            _ => Ok(()),
        }
    }

    fn end_batch(&mut self) -> Result<ControlFlow<()>> {
        self.held.sort_unstable_by_key(|(at, _)| *at);
        for (at, value) in self.held.drain(..) {
            if let (Some(key), Some(seq)) = (self.keys.get(at), self.seqs.get(at)) {
                self.give.give(key, *seq, || value)?;
            }
        }
        Ok(self.give.goes_on())
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
    fn validate(&mut self, validity: &Validity, cost: &Cost) -> Result<u64> {
        validity.prepare(self.seqs.len() as u64, cost)?;
        self.drop_those(&mut |key, seq| validity.is_superseded(seq, key, cost))
    }

    /// Drops candidates that are known to be obsolete by queries before; returns how many.
    fn leave_out_noted(&mut self, view: &View) -> Result<u64> {
        match view.dataset.current.online.noted() {
            Some(noted) => self.drop_those(&mut |_, seq| Ok(noted.is_over(seq, view.seq()))),
            None => Ok(0),
        }
    }

    fn drop_those(&mut self, test: &mut dyn FnMut(&[u8], Seq) -> Result<bool>) -> Result<u64> {
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
            if !test(key, seq)? {
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
