//! The answer of a query in order of recency, found page by page. A page of candidates is read from
//! the source, then their records are fetched, as many together as the memory allows; both numbers
//! begin small, and grow while the answer is iterated.
//!
//! **Invariant.** The pages are disjoint and in order: all candidates of a page come before those
//! of the next one.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use esker_lsm::coding::Misplaced;
use esker_lsm::{Account, Loan, Seq, Slice};
use esker_model::query::Driver;

use super::PageToken;
use super::combine;
use super::explain::Explain;
use super::fetch::{FetchedPage, PageFetch, Size};
use super::run::{Context, Run};
use super::scan_matching::ScanMatching;
use super::stages::{AnswerContent, BulkOrder, TakeScanned};
use crate::error::Result;
use crate::index::{BestCandidates, Candidate, Origin, Recency, Window};
use esker_model::Record;

/// The most candidates that are requested at a time.
const MAX_CANDIDATES: usize = 256 << 10;

/// The most candidates of a query with a limit whose records are fetched together.
const MAX_LIMITED_FETCH: usize = 1024;

/// The number of candidates whose records are fetched first, when their size is unknown.
const FIRST_FETCH: usize = 64;

/// The most entries of a base that are read for each wanted record, if other lists rule most of
/// them out.
const MAX_ENTRIES_PER_RECORD: u64 = 64;

/// A record that answers the query.
pub(super) struct Ready {
    pub(super) seq: Seq,
    pub(super) key: Vec<u8>,
    /// The stored record, unless the answer is of keys.
    pub(super) value: Option<Slice>,
}

/// The memory budget of a page.
struct PageBudget {
    /// The number of candidates that are fetched together.
    fetch: usize,
    /// The largest number of record bytes in memory at a time.
    record_bytes: usize,
    /// Memory borrowed for a page that may be large.
    loan: Option<Loan>,
}

/// Matching records in order, found during iteration.
pub(super) struct RecentAnswer {
    pub(super) run: Run,
    page: PageBudget,
    /// The write number of the last candidate that the source returned.
    after: Option<Seq>,
    /// The write number of the last record that was returned.
    returned: Option<Seq>,
    /// True if the candidates come from a scan: they are current, live, and satisfy the conditions.
    scanned: bool,
    failed: bool,
    /// The candidates of the page that are not fetched yet.
    pending: VecDeque<Candidate>,
    /// The records that were found and not returned yet.
    ready: VecDeque<Ready>,
}

impl RecentAnswer {
    /// An answer that reads its candidates from the driver.
    pub(super) fn new(run: Run) -> RecentAnswer {
        let after = run.context.after;
        RecentAnswer {
            page: PageBudget::small(&run.context),
            run,
            after,
            returned: after,
            scanned: false,
            failed: false,
            pending: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }

    /// An answer from `candidates`, in their order. They must be all candidates of the driver.
    pub(super) fn of_candidates(run: Run, candidates: Vec<Candidate>) -> RecentAnswer {
        let mut answer = RecentAnswer::new(run);
        answer.run.steps.rounds += 1;
        answer.run.steps.candidates += candidates.len() as u64;
        answer.run.exhausted = true;
        answer.pending = candidates.into();
        answer
    }

    /// The position in the answer: a request with it continues from here. `None` before the first
    /// record.
    pub(super) fn token(&self) -> Option<PageToken> {
        self.returned.map(PageToken::Write)
    }

    /// The steps of the query so far and their cost.
    pub(super) fn explain(&self) -> Explain {
        self.run.explain()
    }

    /// Reads the next candidates from the source.
    fn refill(&mut self) -> Result<()> {
        let Run {
            context,
            steps,
            remaining,
            exhausted,
            ..
        } = &mut self.run;
        let want = wanted_candidates(context, *remaining, steps.rounds);
        let combined = context.plan.driver.combined();
        let bytes = self.page.borrow(context, want);
        let mut best = BestCandidates::new(Window {
            order: context.request.order.recency(),
            after: self.after,
            want: want.clamp(1, MAX_CANDIDATES),
            // The entries of the same writes in other lists take memory beside the window.
            bytes: if combined.is_some() {
                bytes / 4
            } else {
                bytes / 2
            },
        })
        .without(context.validity.obsolete());
        if context.plan.driver == Driver::Scan {
            steps.scanned += scan(context, &mut best, want)?;
            self.scanned = true;
        } else {
            for at in context.plan.driver.constraints() {
                combine::offer(context, *at, &mut best)?;
            }
        }
        steps.obsolete += best.skipped();
        steps.candidates += best.skipped();
        let (mut candidates, more) = best.finish();
        steps.rounds += 1;
        steps.candidates += candidates.len() as u64;
        *exhausted = !more || candidates.is_empty();
        self.after = candidates.last().map(|last| last.seq).or(self.after);
        if let Some(combined) = combined {
            combine::rule_out(context, combined, &mut candidates, steps)?;
        }
        self.page.shrink_to(&candidates);
        self.pending = candidates.into();
        Ok(())
    }

    /// Takes the next candidates through the stages.
    fn advance(&mut self) -> Result<()> {
        let context = &self.run.context;
        let all_current = self.scanned || context.shows_current();
        let is_decided = self.scanned || context.all_answered && all_current;
        if context.request.keys_only && is_decided {
            // Candidates without records are in memory already: all are taken together.
            let mut chunk = self.validate_next(usize::MAX)?;
            if let Some(expired) = &self.run.context.expired {
                chunk.retain(|candidate| !expired.contains(candidate.seq));
            }
            self.ready.extend(chunk.into_iter().map(|candidate| Ready {
                seq: candidate.seq,
                key: candidate.key,
                value: None,
            }));
            return Ok(());
        }
        let mut chunk = self.validate_next(self.page.fetch)?;
        let Run {
            context,
            steps,
            remaining,
            ..
        } = &mut self.run;
        let mut admission = context.admission();
        admission.all_answered |= self.scanned;
        let fetch = PageFetch {
            context,
            admission,
            all_current,
            max_bytes: self.page.record_bytes,
        };
        let FetchedPage { records, size } = fetch.run(&mut chunk, steps)?;
        debug_assert_eq!(
            records.len(),
            chunk.len(),
            "a record, or none, for each candidate"
        );
        for (candidate, record) in chunk.into_iter().zip(records) {
            // Obsolete candidates have no record.
            let Some(value) = record else { continue };
            if admission.admits(&value, steps)? {
                self.ready.push_back(Ready {
                    seq: candidate.seq,
                    key: candidate.key,
                    value: (!context.request.keys_only).then_some(value),
                });
            }
        }
        self.page.adapt(context, *remaining, size);
        Ok(())
    }

    /// Stage 2 for the next candidates, at most `most`: those that are not known to be obsolete.
    fn validate_next(&mut self, most: usize) -> Result<Vec<Candidate>> {
        let Run {
            context,
            steps,
            remaining,
            ..
        } = &mut self.run;
        let wanted = remaining.map_or(most, |left| left.clamp(1, most));
        let take = wanted.min(self.pending.len());
        let mut chunk: Vec<Candidate> = self.pending.drain(..take).collect();
        context.view.drop_noted(&mut chunk);
        steps.obsolete += (take - chunk.len()) as u64;
        if context.probes_keys {
            let total = (chunk.len() + self.pending.len()) as u64;
            let before = chunk.len();
            context
                .validity
                .retain(&mut chunk, total, &context.costs.keys)?;
            steps.probed += before as u64;
            steps.obsolete += (before - chunk.len()) as u64;
        }
        Ok(chunk)
    }

    /// The next record or key; `None` at the end, or when the limit is reached.
    ///
    /// # Errors
    /// Any read error.
    pub(super) fn step(&mut self) -> Result<Option<Ready>> {
        loop {
            if self.run.remaining == Some(0) {
                self.page.loan = None;
                return Ok(None);
            }
            if let Some(record) = self.ready.pop_front() {
                self.run.remaining = self.run.remaining.map(|left| left - 1);
                self.returned = Some(record.seq);
                self.run.steps.answers += 1;
                return Ok(Some(record));
            }
            if !self.pending.is_empty() {
                self.advance()?;
            } else if self.run.exhausted {
                self.page.loan = None;
                return Ok(None);
            } else {
                self.refill()?;
            }
        }
    }
}

impl PageBudget {
    /// The budget of a page that is small, so that it borrows nothing.
    fn small(context: &Context) -> PageBudget {
        PageBudget {
            fetch: FIRST_FETCH,
            record_bytes: small_page(context) / 4,
            loan: None,
        }
    }

    /// Borrows memory for a page of `want` candidates; returns the bytes that the page may use.
    fn borrow(&mut self, context: &Context, want: usize) -> usize {
        let store = &context.view.dataset.store;
        // Returns the loan of the last page first.
        self.loan = None;
        self.loan = (want > FIRST_FETCH).then(|| store.borrow(Account::Queries));
        let loan = self.loan.as_ref();
        let bytes = loan.map_or_else(|| small_page(context), Loan::bytes);
        self.record_bytes = bytes / 4;
        bytes
    }

    /// Returns the memory that these candidates and their records do not need.
    fn shrink_to(&mut self, candidates: &[Candidate]) {
        if let Some(loan) = &mut self.loan {
            let candidates = candidates.iter().map(Candidate::bytes);
            loan.shrink(candidates.sum::<usize>() + 2 * self.record_bytes);
        }
    }

    /// Adapts the number of candidates that are fetched together to the size of the last records.
    fn adapt(&mut self, context: &Context, remaining: Option<usize>, Size { read, bytes }: Size) {
        // Without a record read, their size is still unknown.
        let Some(each) = bytes.checked_div(read) else {
            return;
        };
        let least = self.record_bytes;
        let (most, budget) = match remaining {
            Some(_) => (MAX_LIMITED_FETCH, least),
            None => {
                let batch = context.lookup.batch_bytes;
                (MAX_CANDIDATES, batch.clamp(least, 2 * least))
            }
        };
        self.fetch = (budget / (each + 1)).clamp(1, most.min(self.fetch * 4));
    }
}

/// The bytes that a page without a loan may use.
fn small_page(context: &Context) -> usize {
    context.view.dataset.store.group.options().memory_budget / 8
}

/// The number of candidates to request for the next page, when `remaining` records are wanted and
/// `rounds` pages were read.
fn wanted_candidates(context: &Context, remaining: Option<usize>, rounds: u64) -> usize {
    // With a limit, a quarter more than the limit, because some candidates are obsolete or do not
    // satisfy the other conditions. Each further round doubles the number.
    let candidates = match remaining {
        Some(left) => (left.saturating_add(left / 4)).saturating_mul(1 << rounds.min(12)),
        None => usize::MAX,
    };
    match context.plan.driver.combined() {
        Some(combined) => {
            let each = combined.ratio.min(MAX_ENTRIES_PER_RECORD);
            let entries = candidates.saturating_mul(each as usize);
            entries.max(FIRST_FETCH)
        }
        None => candidates,
    }
}

/// Offers every record that satisfies the conditions to `best`; returns the number of records read.
fn scan(context: &Context, best: &mut BestCandidates, want: usize) -> Result<u64> {
    let holds_records = want <= MAX_LIMITED_FETCH;
    let scan = ScanMatching {
        view: &context.view,
        compiled: &context.compiled,
        order: BulkOrder::Any,
        // The newest may be anywhere.
        limit: None,
        content: if holds_records {
            context.content()
        } else {
            AnswerContent::Keys
        },
        cost: &context.costs.data,
        body_cost: &context.costs.bodies,
    };
    scan.run(&mut OfferScanned {
        best,
        order: context.request.order.recency(),
        holds_records,
    })
}

/// Offers the records of a scan to `best`.
struct OfferScanned<'a> {
    best: &'a mut BestCandidates,
    order: Recency,
    /// True if the page is small, so that `best` holds the records, too.
    holds_records: bool,
}

impl TakeScanned for OfferScanned<'_> {
    fn wants(&mut self, seq: Seq) -> bool {
        let admits = self.best.admits(self.order.rank(seq));
        if !admits && self.best.is_full() {
            self.best.note_skipped();
        }
        admits
    }

    fn take(
        &mut self,
        key: &[u8],
        seq: Seq,
        record: &mut dyn FnMut() -> Slice,
    ) -> Result<ControlFlow<()>> {
        let holds_records = self.holds_records;
        let bring = || holds_records.then(|| (Slice::from(&*record()), Origin::Current));
        self.best.offer_with(seq, key, bring);
        Ok(ControlFlow::Continue(()))
    }
}

impl Iterator for RecentAnswer {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        if self.failed {
            return None;
        }
        let next = self.step().and_then(|ready| {
            let Some(Ready { seq, key, value }) = ready else {
                return Ok(None);
            };
            let value = value.ok_or_else(|| Misplaced::here())?;
            self.run.context.view.record(key, seq, value).map(Some)
        });
        self.failed = next.is_err();
        next.transpose()
    }
}
