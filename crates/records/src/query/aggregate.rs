//! Aggregates of groups: from an index alone if one shows them (`aggregate_from_index.rs`),
//! otherwise from the records. Groups are held in memory up to a share of the budget; beyond it
//! they move to a sorter as entries, of which those of one group follow each other and are merged
//! ([`Groups`], [`Totals`]).

use std::ops::ControlFlow;
use std::sync::Arc;

use esker_lsm::{Account, Cost};
use esker_model::query::{Aggregation, Group, Grouping, Groups, Totals};

use super::Explain;
use super::aggregate_from_index::aggregate_from_index;
use super::group_records::{MergedEntries, Spill, group_records};
use super::input::ViewQuery;
use super::row_sorter::RowSorter;
use super::run::Run;
use crate::error::{Error, Result};

/// Receives the groups of an answer. A break ends the query.
type VisitGroup<'v> = dyn FnMut(Group) -> ControlFlow<()> + 'v;

impl ViewQuery {
    /// Computes the aggregates of the records that satisfy the aggregation's condition and that of
    /// the request, and passes the groups to `visit`, in their order, until that breaks. Of the
    /// request, the condition and the validation count.
    ///
    /// # Errors
    /// If the aggregation or the condition does not fit the dataset; any read error; an overflow of
    /// a total.
    pub(crate) fn aggregate(
        mut self,
        aggregation: &Aggregation,
        visit: &mut VisitGroup<'_>,
    ) -> Result<Explain> {
        let grouping = Grouping::new(&self.view.layout.shape, aggregation)?;
        self.request = self.request.all();
        if let Some(condition) = &aggregation.condition {
            self.request.filter(condition.clone());
        }
        let store = self.view.dataset.store.clone();
        let loan = store.borrow(Account::Queries);
        // A third for the groups, one for their entries, one for the order of the results.
        let share = loan.bytes() / 3;
        let mut results = GroupResults {
            sorter: sorter_of(&grouping, &store.group, share),
            engine: &store.group,
            share,
            passed_on: 0,
            to_skip: 0,
            remaining: grouping.limit(),
            buffers: Buffers::default(),
            stop: self.view.snapshot.cost(),
            grouping: &grouping,
            visit,
        };
        let mut take = |group| results.take(group);
        let explain = aggregate_from_index(&self, aggregation, &grouping, share, &mut take)?;
        if let Some(explain) = explain {
            results.finish()?;
            return Ok(explain);
        }
        results.restart();
        let (mut entries, explain) = if aggregation.is_count() {
            self.count_as_group(&grouping, share)?
        } else {
            let mut query = self;
            query.request.keys_only = false;
            let grouped = group_records(Run::new(query)?, &grouping, share)?;
            (MergedEntries::new(grouped.entries)?, grouped.run.explain())
        };
        let mut totals = Totals::new(grouping.clone());
        while let Some(entry) = entries.next()? {
            results.stop.check()?;
            if let Some(group) = totals.push(entry)?
                && results.take(group)?.is_break()
            {
                return Ok(explain);
            }
        }
        if let Some(group) = totals.finish()?
            && results.take(group)?.is_break()
        {
            return Ok(explain);
        }
        results.finish()?;
        Ok(explain)
    }

    /// The number of records as the entry of a single group, for an aggregation that needs no
    /// record.
    fn count_as_group(
        self,
        grouping: &Arc<Grouping>,
        share: usize,
    ) -> Result<(MergedEntries, Explain)> {
        let mut spill = Spill::new(&self.view.dataset.store.group, share);
        let (count, explain) = self.count()?;
        let mut groups = Groups::new(grouping.clone());
        groups.add_counted(count);
        spill.take(&mut groups)?;
        Ok((MergedEntries::new(vec![spill.finish()?])?, explain))
    }
}

/// Passes groups on, in their order.
struct GroupResults<'a, 'v> {
    grouping: &'a Grouping,
    /// Sorts the groups, if they have an order of their own.
    sorter: Option<RowSorter>,
    engine: &'a esker_lsm::Group,
    /// The bytes that sorted groups may take in memory.
    share: usize,
    /// The number of groups that were passed on.
    passed_on: usize,
    /// The number of these that come again, and are skipped.
    to_skip: usize,
    /// The number of groups that are still wanted; `None` for all.
    remaining: Option<usize>,
    buffers: Buffers,
    /// The token that may stop the query: between two groups, no block is read that would check it.
    stop: Cost,
    visit: &'a mut VisitGroup<'v>,
}

/// Buffers for a group in the sorter.
#[derive(Default)]
struct Buffers {
    rank: Vec<u8>,
    group: Vec<u8>,
}

/// The sorter of groups with an order of their own; `None` if they have none.
fn sorter_of(grouping: &Grouping, engine: &esker_lsm::Group, share: usize) -> Option<RowSorter> {
    (grouping.is_ordered()).then(|| RowSorter::new(engine, share, grouping.limit()))
}

impl GroupResults<'_, '_> {
    /// Begins again: all groups will come from the first one on, and those that were passed on
    /// already are skipped.
    fn restart(&mut self) {
        self.to_skip = self.passed_on;
        self.sorter = sorter_of(self.grouping, self.engine, self.share);
    }

    /// Takes the next group: passes it on, or sorts it.
    fn take(&mut self, group: Group) -> Result<ControlFlow<()>> {
        self.stop.check()?;
        let Some(sorter) = &mut self.sorter else {
            return Ok(self.pass_on(group));
        };
        let Buffers { rank, group: bytes } = &mut self.buffers;
        self.grouping.rank(&group, rank);
        if sorter.admits(rank) {
            bytes.clear();
            group.encode(bytes);
            sorter.add(rank, bytes)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Passes a group to the caller, unless the caller has it already, or the limit is reached.
    fn pass_on(&mut self, group: Group) -> ControlFlow<()> {
        if self.to_skip > 0 {
            self.to_skip -= 1;
            return ControlFlow::Continue(());
        }
        if self.remaining == Some(0) {
            return ControlFlow::Break(());
        }
        self.remaining = self.remaining.map(|left| left - 1);
        self.passed_on += 1;
        (self.visit)(group)
    }

    /// Passes on the sorted groups. Others were passed on when they were taken.
    fn finish(mut self) -> Result<()> {
        let Some(sorter) = self.sorter.take() else {
            return Ok(());
        };
        let mut rows = sorter.finish()?;
        while let Some(row) = rows.next()? {
            self.stop.check()?;
            let group = self.grouping.decode(&row.payload);
            let group = group.ok_or_else(|| Error::damaged("a sorted group is malformed"))?;
            if self.pass_on(group).is_break() {
                break;
            }
        }
        Ok(())
    }
}
