//! Answers in an order of fields or keys. All records are found in any order, and their rows sorted
//! by rank ([`Ranking`]), before the first one is returned: in a heap if few are wanted, otherwise
//! within a share of the memory budget and in a file (`row_sorter.rs`); unless an index gives the
//! first rows (`sorted_from_index.rs`). A row has the whole record, so that no record is read
//! twice. The token of a page is the rank of its last row.

use std::ops::ControlFlow;

use esker_lsm::coding::{Misplaced, Reader, put_bytes};
use esker_lsm::{Account, Loan, Seq, Slice};
use esker_model::query::{FieldOrder, Ranking};

use super::answer::{Answer, Ready};
use super::explain::Explain;
use super::input::Query;
use super::row_sorter::{Row, RowSorter, SortedRows};
use super::run::Run;
use super::sorted_from_index::{WantedRows, from_index};
use super::stages::BulkOrder;
use super::{Order, PageToken, bulk};
use crate::error::{Error, Result};

/// An answer in an order of fields or keys.
pub(super) struct SortedAnswer {
    /// The query, before it runs and afterwards; `None` if it failed.
    run: Option<Run>,
    ranking: Box<Ranking>,
    /// The first field of the order.
    first: Option<FieldOrder>,
    /// Rows up to this rank belong to earlier pages.
    after: Option<Vec<u8>>,
    /// The number of rows that are wanted; `None` for all.
    limit: Option<usize>,
    /// True if the answer is of keys.
    keys_only: bool,
    stage: Stage,
    /// The rank of the last row that was returned.
    last: Option<Vec<u8>>,
    /// The number of rows that were returned.
    answers: u64,
}

/// How far the answer is.
enum Stage {
    /// No row was requested yet.
    Unsorted,
    /// The rows that are left, and the memory that they take.
    Sorted { rows: SortedRows, _loan: Loan },
    /// All rows were returned, or the query failed.
    Ended,
}

impl SortedAnswer {
    /// Prepares the query, and reads nothing of it.
    ///
    /// # Errors
    /// If the condition, the order or the page token does not fit the dataset.
    pub(super) fn new(mut query: Query) -> Result<SortedAnswer> {
        let request = &mut query.request;
        let ranking = Ranking::new(&query.view.layout.shape, &request.order)?;
        let first = request.order.fields().first().cloned();
        let after = ranking.behind(request.after.take().as_ref())?;
        let limit = request.limit.take();
        // An order without fields is by key, and needs no records.
        let keys_only = request.keys_only;
        request.keys_only &= request.order.fields().is_empty();
        request.order = Order::Any;
        Ok(SortedAnswer {
            run: Some(Run::new(query)?),
            last: after.clone(),
            ranking: Box::new(ranking),
            first,
            after,
            limit,
            keys_only,
            stage: Stage::Unsorted,
            answers: 0,
        })
    }

    /// The position in the answer: a request with it continues from here.
    pub(super) fn token(&self) -> Option<PageToken> {
        self.last.clone().map(PageToken::Row)
    }

    /// The steps of the query so far and their cost.
    pub(super) fn explain(&self) -> Explain {
        let mut explain = self.run.as_ref().map(Run::explain).unwrap_or_default();
        explain.steps.answers = self.answers;
        explain
    }

    /// The next row; `None` at the end. The first call runs the query.
    ///
    /// # Errors
    /// Any read error; the query then has ended.
    pub(super) fn step(&mut self) -> Result<Option<Ready>> {
        if self.limit.is_some_and(|limit| self.answers >= limit as u64) {
            self.stage = Stage::Ended;
            return Ok(None);
        }
        if let Stage::Unsorted = self.stage {
            let run = self.run.take().ok_or_else(Misplaced::here)?;
            self.stage = Stage::Ended;
            self.sort(run)?;
        }
        let Stage::Sorted { rows, .. } = &mut self.stage else {
            return Ok(None);
        };
        let Some(Row { rank, payload, seq }) = rows.next()? else {
            self.stage = Stage::Ended;
            return Ok(None);
        };
        let mut input = Reader::new(&payload);
        let key = input.bytes();
        let key = key.ok_or_else(|| Error::damaged("a sorted row is malformed"))?;
        self.answers += 1;
        self.last = Some(rank);
        Ok(Some(Ready {
            seq,
            key: key.to_vec(),
            value: (!self.keys_only).then(|| Slice::from(input.rest())),
        }))
    }

    /// Runs the query, and sorts its rows.
    fn sort(&mut self, mut run: Run) -> Result<()> {
        let shared = run.context.view.dataset.shared.clone();
        let loan = shared.borrow(Account::Queries);
        if let (Some(first), Some(limit)) = (&self.first, self.limit) {
            let wanted = WantedRows {
                first,
                limit,
                after: self.after.as_deref(),
                keys_only: self.keys_only,
                memory: loan.bytes(),
            };
            if let Some(rows) = from_index(&mut run, &mut self.ranking, &wanted)? {
                self.stage = Stage::Sorted { rows, _loan: loan };
                self.run = Some(run);
                return Ok(());
            }
        }
        let mut sorter = RowSorter::new(&shared.group, loan.bytes(), self.limit);
        let (ranking, after, keys_only) = (&mut self.ranking, &self.after, self.keys_only);
        let (mut rank, mut payload) = (Vec::new(), Vec::new());
        let mut add = |json: &[u8], key: &[u8], seq: Seq, stored: &[u8]| {
            ranking.rank(json, key, &mut rank);
            let is_after = after.as_ref().is_none_or(|after| rank > *after);
            if !is_after || !sorter.admits(&rank) {
                return Ok(());
            }
            payload.clear();
            put_bytes(&mut payload, key);
            payload.extend_from_slice(stored);
            sorter.add(&rank, &payload, seq)
        };
        let run = if run.context.request.keys_only {
            let mut answer = Answer::new(run);
            while let Some(Ready { seq, key, .. }) = answer.step()? {
                add(&[], &key, seq, &[])?;
            }
            answer.run
        } else {
            let mut added = Ok(());
            let run = bulk::visit_run(run, BulkOrder::Any, &mut |record| {
                let stored: &[u8] = if keys_only { &[] } else { record.stored() };
                added = add(record.json(), record.key().as_bytes(), record.seq(), stored);
                match added {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            })?;
            added?;
            run
        };
        let rows = sorter.finish()?;
        self.stage = Stage::Sorted { rows, _loan: loan };
        self.run = Some(run);
        Ok(())
    }
}
