//! Large answers that are not in order of recency. The entries of the driving index are read once
//! and sorted by key (on disk if they do not fit in memory, [`esker_lsm::sort`]), so that the
//! lookups go through the data front to back, in large batches (Luo & Carey section 3.2). A record
//! whose attribute has several values in the range is looked up once.
//!
//! An answer borrows its memory once: the sorted keys take half of it, the keys of a chunk and the
//! records of a batch a quarter each.

use std::ops::ControlFlow;

use esker_lsm::coding::{ByteList, Misplaced, Own};
use esker_lsm::sort::{Sorted, Sorter};
use esker_lsm::{Account, Cost, Seq, Slice};
use esker_model::Key;
use esker_model::query::Driver;
use esker_model::schema::KeyType;

use super::answer::RecentAnswer;
use super::combine::WholeLists;
use super::explain::{Explain, Steps};
use super::input::ViewQuery;
use super::run::Run;
use super::scan_matching::ScanMatching;
use super::stages::{Admission, AnswerContent, BulkOrder, Fetch, Needs, TakeCurrent, TakeScanned};
use crate::error::Result;
use crate::maintenance::Validity;
use crate::record;
use crate::store::View;
use esker_model::Record;

/// Receives the records of an answer. A break or an error ends the query.
pub(super) type VisitRecord<'v> = dyn FnMut(Record) -> Result<ControlFlow<()>> + 'v;

/// The use of the records of an answer.
pub(super) enum Sink<'v> {
    /// Passes them to the caller.
    Visit(&'v mut VisitRecord<'v>),
    /// Counts them.
    Count,
}

impl Sink<'_> {
    /// The content of the answer.
    fn content(&self) -> AnswerContent {
        match self {
            Sink::Visit(_) => AnswerContent::Records,
            Sink::Count => AnswerContent::Keys,
        }
    }
}

/// The memory of a key of a chunk, beside its bytes.
const KEY_BYTES: usize = size_of::<&[u8]>() + size_of::<(usize, Seq)>();

/// Passes the records that answer a query to `visit`, up to the limit, until that breaks.
///
/// # Errors
/// If the condition does not fit the dataset; any read error.
pub(super) fn visit(
    mut query: ViewQuery,
    order: BulkOrder,
    visit: &mut VisitRecord<'_>,
) -> Result<Explain> {
    query.request.keys_only = false;
    Ok(visit_run(Run::new(query)?, order, visit)?.explain())
}

/// As [`visit`], for a query that begins at the first record.
pub(super) fn visit_run(run: Run, order: BulkOrder, visit: &mut VisitRecord<'_>) -> Result<Run> {
    debug_assert!(run.context.after.is_none(), "pages are in order of recency");
    if run.exhausted {
        return Ok(run);
    }
    Bulk::new(run, order, Sink::Visit(visit)).run()
}

/// An answer in bulk.
pub(super) struct Bulk<'v> {
    pub(super) run: Run,
    pub(super) order: BulkOrder,
    pub(super) delivery: Delivery<'v>,
    /// True if candidates are validated by the primary-key index before their records are fetched.
    pub(super) probes_keys: bool,
}

impl<'v> Bulk<'v> {
    /// An answer that delivers up to as many records as the run still needs.
    pub(super) fn new(run: Run, order: BulkOrder, sink: Sink<'v>) -> Bulk<'v> {
        Bulk {
            order,
            delivery: Delivery {
                key_type: run.context.view.layout.shape.key_type,
                remaining: run.remaining,
                is_broken_off: false,
                answers: 0,
                sink,
            },
            probes_keys: run.context.probes_keys,
            run,
        }
    }

    fn run(self) -> Result<Run> {
        if self.run.context.plan.driver == Driver::Scan {
            return self.by_scan();
        }
        let is_any = self.order == BulkOrder::Any;
        // A limited answer in any order takes the newest records, which need the fewest reads.
        if is_any && self.run.remaining.is_some() {
            return self.by_recency();
        }
        if self.run.context.whole_lists()?.is_some() {
            self.by_index()
        } else if is_any {
            // The records come with the index entries: to sort them by key saves no reads.
            self.by_recency()
        } else {
            self.by_sorted_records()
        }
    }

    /// Finds the records by the entries that stand-alone indexes have in the driver's ranges.
    pub(super) fn by_index(mut self) -> Result<Run> {
        let driving = self.run.context.driving_index();
        let brings = driving.is_some_and(|driving| driving.attribute.brings_records());
        if brings && self.order == BulkOrder::Any {
            return self.run_from_index();
        }
        let loan = (self.run.context.view.dataset.store).borrow(Account::Queries);
        let share = loan.bytes() / 4;
        let sorted = self.sort_entries(2 * share)?;
        self.take_sorted(sorted, share)?;
        Ok(self.finish())
    }

    /// Finds the records as an answer in order of recency does.
    fn by_recency(mut self) -> Result<Run> {
        let mut answer = RecentAnswer::new(self.run);
        match &mut self.delivery.sink {
            Sink::Visit(visit) => {
                for record in &mut answer {
                    if visit(record?)?.is_break() {
                        break;
                    }
                }
            }
            Sink::Count => while answer.step()?.is_some() {},
        }
        Ok(answer.run)
    }

    /// Finds the records by a scan.
    pub(super) fn by_scan(mut self) -> Result<Run> {
        if !self.delivery.is_done() {
            let context = &self.run.context;
            let scan = ScanMatching {
                view: &context.view,
                compiled: &context.compiled,
                order: self.order,
                limit: self.delivery.remaining,
                content: self.delivery.sink.content(),
                cost: &context.costs.data,
                body_cost: &context.costs.bodies,
            };
            let scanned = scan.run(&mut self.delivery)?;
            self.run.steps.candidates += scanned;
            self.run.steps.scanned += scanned;
        }
        Ok(self.finish())
    }

    /// Finds the records by key, in an index whose entries come with the records: as an answer in
    /// order of recency, whose keys are then sorted.
    fn by_sorted_records(mut self) -> Result<Run> {
        let loan = (self.run.context.view.dataset.store).borrow(Account::Queries);
        let share = loan.bytes() / 4;
        let mut sorter = self.sorter(2 * share);
        self.run.remaining = None;
        let mut answer = RecentAnswer::new(self.run);
        for record in &mut answer {
            let record = record?;
            sorter.add(record.key().as_bytes(), record.seq())?;
        }
        self.run = answer.run;
        self.run.steps.answers = 0;
        self.take_sorted(sorter.finish()?, share)?;
        Ok(self.finish())
    }

    /// The run, with the counts of the answer.
    pub(super) fn finish(mut self) -> Run {
        self.run.steps.answers += self.delivery.answers;
        self.run.remaining = self.delivery.remaining;
        self.run.exhausted = true;
        self.run
    }

    /// A sorter of keys that holds up to `memory` bytes.
    fn sorter(&self, memory: usize) -> Sorter {
        let group = &self.run.context.view.dataset.store.group;
        Sorter::new(group.options().fs.clone(), group.dir(), memory)
    }

    /// The keys of the index entries in the driver's ranges, sorted.
    fn sort_entries(&mut self, memory: usize) -> Result<Sorted> {
        let mut sorter = self.sorter(memory);
        let Run { context, steps, .. } = &mut self.run;
        let lists = context.whole_lists()?.ok_or_else(|| Misplaced::here())?;
        // The memory for the keys of a chunk, which is not used before the lists are read.
        let reader = WholeLists::new(context, memory / 2);
        let outcome = reader.run(&lists, steps, &mut |key, seq| Ok(sorter.add(key, seq)?))?;
        context.all_answered &= outcome.is_exact;
        self.run.lists_read = outcome.lists_read;
        Ok(sorter.finish()?)
    }

    /// Takes sorted candidates through the stages.
    fn take_sorted(&mut self, mut sorted: Sorted, share: usize) -> Result<()> {
        let Run { context, steps, .. } = &mut self.run;
        let mut options = context.lookup;
        options.batch_bytes = options.batch_bytes.min(share);
        let admission = context.admission();
        let fetch = Fetch {
            view: &context.view,
            components: &context.components,
            all_current: self.probes_keys || context.validity.is_exact(),
            options,
            cost: &context.costs.data,
            needs: Needs::of(admission, self.delivery.sink.content()),
            body_cost: &context.costs.bodies,
        };
        let mut chunk = Chunk::default();
        while !self.delivery.is_done() && chunk.fill(&mut sorted, share)? {
            steps.obsolete += chunk.drop_noted(&context.view)?;
            if self.probes_keys {
                steps.probed += chunk.seqs.len() as u64;
                steps.obsolete += chunk.validate(&context.validity, &context.costs.keys)?;
            }
            let keys = chunk.keys();
            let mut receiver = ChunkReceiver {
                admission,
                delivery: &mut self.delivery,
                steps,
                order: self.order,
                keys: &keys,
                seqs: &chunk.seqs,
                held: Vec::new(),
            };
            let fetched = fetch.run(&keys, &chunk.seqs, &mut receiver)?;
            fetched.count_in(steps);
        }
        Ok(())
    }
}

/// The last stage of answers in bulk: passes the records on, or counts them, up to the limit.
pub(super) struct Delivery<'a> {
    key_type: KeyType,
    /// The number of records still wanted; `None` for all.
    remaining: Option<usize>,
    /// True once the receiver of the records has broken the query off.
    is_broken_off: bool,
    /// The number of records delivered.
    answers: u64,
    sink: Sink<'a>,
}

impl Delivery<'_> {
    /// True if the limit is reached, or the receiver of the records has broken the query off.
    pub(super) fn is_done(&self) -> bool {
        self.is_broken_off || self.remaining == Some(0)
    }

    /// Delivers a record that answers the query, unless [`Delivery::is_done`].
    pub(super) fn deliver(
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
            self.is_broken_off = visit(record::returned(key, seq, value())?)?.is_break();
        }
        Ok(())
    }

    /// A break once [`Delivery::is_done`].
    pub(super) fn flow(&self) -> ControlFlow<()> {
        if self.is_done() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl TakeScanned for Delivery<'_> {
    fn take(
        &mut self,
        key: &[u8],
        seq: Seq,
        record: &mut dyn FnMut() -> Slice,
    ) -> Result<ControlFlow<()>> {
        self.deliver(key, seq, record)?;
        Ok(self.flow())
    }
}

/// Receives the current records of a chunk of candidates, and delivers those that answer the query.
struct ChunkReceiver<'t, 'a> {
    admission: Admission<'t>,
    delivery: &'t mut Delivery<'a>,
    steps: &'t mut Steps,
    order: BulkOrder,
    keys: &'t [&'t [u8]],
    seqs: &'t [Seq],
    /// The records of a batch and the indexes of their candidates, held if the answer is by key.
    held: Vec<(usize, Slice)>,
}

impl TakeCurrent for ChunkReceiver<'_, '_> {
    fn take(&mut self, at: usize, record: Slice) -> Result<()> {
        if self.delivery.is_done() || !self.admission.admits(&record, self.steps)? {
            return Ok(());
        }
        if self.order == BulkOrder::Key {
            self.held.push((at, record.compact()));
            return Ok(());
        }
        let (key, seq) = (self.keys.item(at)?, *self.seqs.item(at)?);
        self.delivery.deliver(key, seq, || record)
    }

    fn end_batch(&mut self) -> Result<ControlFlow<()>> {
        self.held.sort_unstable_by_key(|(at, _)| *at);
        for (at, value) in self.held.drain(..) {
            let (key, seq) = (self.keys.item(at)?, *self.seqs.item(at)?);
            self.delivery.deliver(key, seq, || value)?;
        }
        Ok(self.delivery.flow())
    }
}

/// Candidates that are looked up together, by key: a number for each key.
#[derive(Default)]
struct Chunk {
    keys: ByteList,
    seqs: Vec<Seq>,
}

impl Chunk {
    /// Replaces the candidates by about `share` bytes of the next ones; false if none are left.
    fn fill(&mut self, sorted: &mut Sorted, share: usize) -> Result<bool> {
        self.keys.clear();
        self.seqs.clear();
        while self.keys.bytes() + self.keys.len() * KEY_BYTES <= share {
            let Some((key, seq)) = sorted.next()? else {
                break;
            };
            self.keys.push(key);
            self.seqs.push(seq);
        }
        Ok(!self.seqs.is_empty())
    }

    /// Drops candidates with newer writes of their keys; returns how many.
    fn validate(&mut self, validity: &Validity, cost: &Cost) -> Result<u64> {
        validity.prepare(self.seqs.len() as u64, cost)?;
        self.drop_where(&mut |key, seq| validity.is_superseded(seq, key, cost))
    }

    /// Drops candidates that earlier queries have noted as obsolete; returns how many.
    fn drop_noted(&mut self, view: &View) -> Result<u64> {
        match view.dataset.state.findings.notes() {
            Some(notes) => self.drop_where(&mut |_, seq| Ok(notes.is_obsolete(seq, view.seq()))),
            None => Ok(0),
        }
    }

    /// Drops the candidates for which `test` is true; returns how many.
    fn drop_where(&mut self, test: &mut dyn FnMut(&[u8], Seq) -> Result<bool>) -> Result<u64> {
        debug_assert_eq!(self.keys.len(), self.seqs.len(), "a number for each key");
        let before = self.seqs.len();
        let all = std::mem::take(self);
        for (key, seq) in all.keys.iter().zip(all.seqs) {
            if !test(key, seq)? {
                self.keys.push(key);
                self.seqs.push(seq);
            }
        }
        Ok((before - self.seqs.len()) as u64)
    }

    fn keys(&self) -> Vec<&[u8]> {
        self.keys.iter().collect()
    }
}
