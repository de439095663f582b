//! Answers in an order of fields or keys. All records are found in any order, and their rows sorted
//! by rank ([`Ranking`]), before the first one is returned: in a heap if few are wanted, otherwise
//! within a share of the memory budget and in a file (`row_sorter.rs`); unless an index gives the
//! first rows (`sorted_from_index.rs`). A row has the whole record, so that no record is read
//! twice. The token of a page is the rank of its last row.

use std::ops::ControlFlow;

use esker_lsm::{Account, Loan, Slice};
use esker_model::query::{FieldOrder, Ranking};

use super::answer::{Ready, RecentAnswer};
use super::explain::Explain;
use super::input::ViewQuery;
use super::row_sorter::{RecordPayload, Row, RowSorter, SortedRows};
use super::run::Run;
use super::sorted_from_index::{WantedRows, rows_from_index};
use super::stages::BulkOrder;
use super::{Order, PageToken, bulk};
use crate::error::{Error, Result};

/// An answer in an order of fields or keys.
pub(super) struct SortedAnswer {
    stage: Stage,
    ranking: Box<Ranking>,
    /// The first field of the order.
    first: Option<FieldOrder>,
    /// Rows up to this rank belong to earlier pages.
    after: Option<Vec<u8>>,
    /// The number of rows that are wanted; `None` for all.
    limit: Option<usize>,
    /// True if the answer is of keys.
    keys_only: bool,
    /// The rank of the last row that was returned.
    last: Option<Vec<u8>>,
    /// The number of rows that were returned.
    answers: u64,
}

/// How far the answer is.
enum Stage {
    /// No row was requested yet.
    Unsorted(Run),
    Sorted {
        run: Run,
        /// The rows that are left.
        rows: SortedRows,
        /// The memory that they take.
        _loan: Loan,
    },
    /// All rows were returned.
    Ended(Run),
    /// The query failed, and its counts are lost.
    Failed,
}

impl SortedAnswer {
    /// Prepares the query, and reads nothing of it.
    ///
    /// # Errors
    /// If the condition, the order or the page token does not fit the dataset.
    pub(super) fn new(mut query: ViewQuery) -> Result<SortedAnswer> {
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
            stage: Stage::Unsorted(Run::new(query)?),
            last: after.clone(),
            ranking: Box::new(ranking),
            first,
            after,
            limit,
            keys_only,
            answers: 0,
        })
    }

    /// The position in the answer: a request with it continues from here.
    pub(super) fn token(&self) -> Option<PageToken> {
        self.last.clone().map(PageToken::Row)
    }

    /// The steps of the query so far and their cost.
    pub(super) fn explain(&self) -> Explain {
        let mut explain = match &self.stage {
            Stage::Unsorted(run) | Stage::Sorted { run, .. } | Stage::Ended(run) => run.explain(),
            Stage::Failed => Explain::default(),
        };
        explain.steps.answers = self.answers;
        explain
    }

    /// The next row; `None` at the end. The first call runs the query.
    ///
    /// # Errors
    /// Any read error; the query then has ended.
    pub(super) fn step(&mut self) -> Result<Option<Ready>> {
        if self.limit.is_some_and(|limit| self.answers >= limit as u64) {
            self.end();
            return Ok(None);
        }
        if matches!(self.stage, Stage::Unsorted(_))
            && let Stage::Unsorted(run) = std::mem::replace(&mut self.stage, Stage::Failed)
        {
            self.stage = self.sort(run)?;
        }
        let Stage::Sorted { rows, .. } = &mut self.stage else {
            return Ok(None);
        };
        let Some(Row { rank, payload }) = rows.next()? else {
            self.end();
            return Ok(None);
        };
        let record = RecordPayload::decode(&payload);
        let record = record.ok_or_else(|| Error::damaged("a sorted row is malformed"))?;
        self.answers += 1;
        self.last = Some(rank);
        Ok(Some(Ready {
            seq: record.seq,
            key: record.key.to_vec(),
            value: (!self.keys_only).then(|| Slice::from(record.stored)),
        }))
    }

    /// Returns the memory of the rows.
    fn end(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Unsorted(run) | Stage::Sorted { run, .. } => Stage::Ended(run),
            stage => stage,
        };
    }

    /// Runs the query, and sorts its rows.
    fn sort(&mut self, mut run: Run) -> Result<Stage> {
        let loan = run.context.view.dataset.store.borrow(Account::Queries);
        if let (Some(first), Some(limit)) = (&self.first, self.limit) {
            let wanted = WantedRows {
                first,
                limit,
                after: self.after.as_deref(),
                keys_only: self.keys_only,
                memory: loan.bytes(),
            };
            if let Some(rows) = rows_from_index(&mut run, &mut self.ranking, &wanted)? {
                return Ok(Stage::Sorted {
                    run,
                    rows,
                    _loan: loan,
                });
            }
        }
        self.sort_all(run, loan)
    }

    /// Finds all records, and sorts their rows within the memory of the loan.
    fn sort_all(&mut self, run: Run, loan: Loan) -> Result<Stage> {
        let group = &run.context.view.dataset.store.group;
        let mut sorter = RowSorter::new(group, loan.bytes(), self.limit);
        let (ranking, after, keys_only) = (&mut self.ranking, &self.after, self.keys_only);
        let (mut rank, mut payload) = (Vec::new(), Vec::new());
        let mut add = |json: &[u8], record: RecordPayload<'_>| {
            ranking.rank(json, record.key, &mut rank);
            let is_after = after.as_ref().is_none_or(|after| rank > *after);
            if !is_after || !sorter.admits(&rank) {
                return Ok(());
            }
            record.encode(&mut payload);
            sorter.add(&rank, &payload)
        };
        let run = if run.context.request.keys_only {
            let mut answer = RecentAnswer::new(run);
            while let Some(Ready { seq, key, .. }) = answer.step()? {
                let record = RecordPayload {
                    key: &key,
                    seq,
                    stored: &[],
                };
                // The order is by key, which no field of a record decides.
                add(&[], record)?;
            }
            answer.run
        } else {
            bulk::visit_run(run, BulkOrder::Any, &mut |record| {
                let payload = RecordPayload {
                    key: record.key().as_bytes(),
                    seq: record.seq(),
                    stored: if keys_only { &[] } else { record.stored() },
                };
                add(record.json(), payload)?;
                Ok(ControlFlow::Continue(()))
            })?
        };
        Ok(Stage::Sorted {
            run,
            rows: sorter.finish()?,
            _loan: loan,
        })
    }
}
