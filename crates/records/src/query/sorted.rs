//! Answers in an order of fields or keys. All records are found in any order, and their rows sorted
//! by rank ([`Ranking`]), before the first one is returned: in a heap if few are wanted, otherwise
//! within a share of the memory budget and in a file. A row has the whole record, so that nothing
//! is read twice. The token of a page is the rank of its last row.

use std::ops::ControlFlow;

use esker_lsm::coding::{Misplaced, Reader, put_bytes};
use esker_lsm::{Account, Loan, Seq, Slice};
use esker_model::query::{FieldOrder, Ranking};

use super::answer::{Answer, Ready};
use super::explain::Explain;
use super::input::Query;
use super::row_sorter::{Row, RowSorter, SortedRows};
use super::run::Run;
use super::sorted_from_index::{Wanted, from_index};
use super::{Order, PageToken, bulk};
use crate::error::{Error, Result};

/// An answer in an order of fields or keys.
pub(super) struct SortedAnswer {
    /// The query: about to run, or after it; `None` if it failed.
    run: Option<Run>,
    ranking: Box<Ranking>,
    /// The first field of the order.
    first: Option<FieldOrder>,
    /// Rows up to this rank belong to earlier pages.
    behind: Option<Vec<u8>>,
    most: Option<usize>,
    keys_only: bool,
    stage: Stage,
    /// The rank of the last row that was returned.
    last: Option<Vec<u8>>,
    answers: u64,
}

enum Stage {
    /// Nothing was read yet.
    Waiting,
    /// The rows that are left, and the memory that they take.
    Rows {
        rows: SortedRows,
        _loan: Loan,
    },
    Done,
}

impl SortedAnswer {
    pub(super) fn new(mut query: Query) -> Result<SortedAnswer> {
        let request = &mut query.request;
        let ranking = Ranking::new(&query.view.layout.shape, &request.order)?;
        let first = request.order.fields().first().cloned();
        let behind = ranking.behind(request.after.take().as_ref())?;
        let most = request.limit.take();
        // Without fields the keys are enough.
        let keys_only = request.keys_only;
        request.keys_only &= request.order.fields().is_empty();
        request.order = Order::Any;
        Ok(SortedAnswer {
            run: Some(Run::new(query)?),
            last: behind.clone(),
            ranking: Box::new(ranking),
            first,
            behind,
            most,
            keys_only,
            stage: Stage::Waiting,
            answers: 0,
        })
    }

    pub(super) fn token(&self) -> Option<PageToken> {
        self.last.clone().map(PageToken::Row)
    }

    /// The steps of the query so far and their cost.
    pub(super) fn explain(&self) -> Explain {
        let mut explain = self.run.as_ref().map(Run::explain).unwrap_or_default();
        explain.steps.answers = self.answers;
        explain
    }

    pub(super) fn step(&mut self) -> Result<Option<Ready>> {
        if self.most.is_some_and(|most| self.answers >= most as u64) {
            self.stage = Stage::Done;
            return Ok(None);
        }
        if let Stage::Waiting = self.stage {
            let run = self.run.take().ok_or_else(Misplaced::here)?;
            self.stage = Stage::Done;
            self.sort(run)?;
        }
        let Stage::Rows { rows, .. } = &mut self.stage else {
            return Ok(None);
        };
        let Some(Row { rank, payload, seq }) = rows.next()? else {
            self.stage = Stage::Done;
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

    /// Runs the query, and sorts what it finds.
    fn sort(&mut self, mut run: Run) -> Result<()> {
        let shared = run.context.view.dataset.shared.clone();
        let loan = shared.borrow(Account::Queries);
        if let (Some(first), Some(most)) = (&self.first, self.most) {
            let wanted = Wanted {
                first,
                most,
                behind: self.behind.as_deref(),
                keys_only: self.keys_only,
                memory: loan.bytes(),
            };
            if let Some(rows) = from_index(&mut run, &mut self.ranking, &wanted)? {
                self.stage = Stage::Rows { rows, _loan: loan };
                self.run = Some(run);
                return Ok(());
            }
        }
        let mut sorter = RowSorter::new(&shared.group, loan.bytes(), self.most);
        let (ranking, behind, keys_only) = (&mut self.ranking, &self.behind, self.keys_only);
        let (mut rank, mut payload) = (Vec::new(), Vec::new());
        let mut add = |json: &[u8], key: &[u8], seq: Seq, stored: &[u8]| {
            ranking.rank(json, key, &mut rank);
            let is_behind = behind.as_ref().is_none_or(|behind| rank > *behind);
            if !is_behind || !sorter.admits(&rank) {
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
            let run = bulk::visit_run(run, false, &mut |record| {
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
        self.stage = Stage::Rows { rows, _loan: loan };
        self.run = Some(run);
        Ok(())
    }
}
