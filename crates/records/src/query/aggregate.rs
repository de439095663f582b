//! Aggregates of groups, from the records. Groups are kept in memory up to a share of the budget;
//! beyond it they go to a sorter as entries, which merges what belongs together
//! ([`Groups`], [`Totals`]).

use std::ops::ControlFlow;

use esker_lsm::Account;
use esker_model::query::{Aggregation, Group, Grouping, Groups, Totals};

use super::aggregate_from_index::from_index;
use super::group_records::{Entries, Spill, group_records};
use super::input::Query;
use super::row_sorter::RowSorter;
use super::run::Run;
use super::{Explain, Order, Request};
use crate::error::{Error, Result};

/// Takes the groups of an answer.
type Visit<'v> = dyn FnMut(Group) -> ControlFlow<()> + 'v;

impl Query {
    /// Computes the aggregates of the records that satisfy the aggregation's condition and that of
    /// the request, and passes the groups to `visit`, in their order, until that breaks.
    pub(crate) fn aggregate(
        mut self,
        aggregation: &Aggregation,
        visit: &mut Visit<'_>,
    ) -> Result<Explain> {
        let grouping = Grouping::new(&self.view.layout.shape, aggregation)?;
        let mut request = Request::default();
        request.condition.clone_from(&self.request.condition);
        request.validation = self.request.validation;
        if let Some(condition) = &aggregation.condition {
            request.filter(condition.clone());
        }
        request.order = Order::Any;
        self.request = request;
        let shared = self.view.dataset.shared.clone();
        let loan = shared.borrow(Account::Queries);
        // A third for the groups, one for their entries, one for the order of the results.
        let share = loan.bytes() / 3;
        let mut results = Results {
            ranked: ranked(&grouping, &shared.group, share),
            group: &shared.group,
            share,
            given: 0,
            repeated: 0,
            left: grouping.limit().unwrap_or(usize::MAX),
            buffers: Default::default(),
            grouping: &grouping,
            visit,
        };
        let mut give = |group| results.take(group);
        if let Some(explain) = from_index(&self, aggregation, &grouping, &mut give)? {
            results.finish()?;
            return Ok(explain);
        }
        results.restart();
        let explain;
        let mut entries = if aggregation.is_count() {
            let (count, counted) = self.count()?;
            let mut groups = Groups::new(grouping.clone());
            groups.add_counted(count);
            let mut spill = Spill::new(&shared.group, share);
            spill.take(&mut groups)?;
            explain = counted;
            Entries::new(vec![spill.finish()?])
        } else {
            let mut query = self;
            query.request.keys_only = false;
            let run = Run::new(query)?;
            let grouped = group_records(run, &grouping, share)?;
            explain = grouped.run.explain();
            Entries::new(grouped.entries)
        };
        let mut totals = Totals::new(grouping.clone());
        while let Some(entry) = entries.next()? {
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
}

/// Passes groups on, in their order.
struct Results<'a, 'v> {
    grouping: &'a Grouping,
    /// Groups with an order of their own are sorted first.
    ranked: Option<RowSorter>,
    group: &'a esker_lsm::Group,
    share: usize,
    /// Groups that were passed on, and how many of these come again.
    given: usize,
    repeated: usize,
    left: usize,
    buffers: Buffers,
    visit: &'a mut Visit<'v>,
}

#[derive(Default)]
struct Buffers {
    rank: Vec<u8>,
    group: Vec<u8>,
}

/// The sorter of groups with an order of their own.
fn ranked(grouping: &Grouping, group: &esker_lsm::Group, share: usize) -> Option<RowSorter> {
    (grouping.is_ordered()).then(|| RowSorter::new(group, share, grouping.limit()))
}

impl Results<'_, '_> {
    /// Forgets what was taken: all groups come again from the first on.
    fn restart(&mut self) {
        self.repeated = self.given;
        self.ranked = ranked(self.grouping, self.group, self.share);
    }

    fn take(&mut self, group: Group) -> Result<ControlFlow<()>> {
        let Some(ranked) = &mut self.ranked else {
            return Ok(self.give(group));
        };
        let Buffers { rank, group: bytes } = &mut self.buffers;
        self.grouping.rank(&group, rank);
        if ranked.admits(rank) {
            bytes.clear();
            group.encode(bytes);
            ranked.add(rank, bytes, 0)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn give(&mut self, group: Group) -> ControlFlow<()> {
        if self.repeated > 0 {
            self.repeated -= 1;
            return ControlFlow::Continue(());
        }
        if self.left == 0 {
            return ControlFlow::Break(());
        }
        self.left -= 1;
        self.given += 1;
        (self.visit)(group)
    }

    fn finish(mut self) -> Result<()> {
        let Some(ranked) = self.ranked.take() else {
            return Ok(());
        };
        let mut rows = ranked.finish()?;
        while let Some(row) = rows.next()? {
            let group = self.grouping.decode(&row.payload);
            let group = group.ok_or_else(|| Error::damaged("a sorted group is malformed"))?;
            if self.give(group).is_break() {
                break;
            }
        }
        Ok(())
    }
}
