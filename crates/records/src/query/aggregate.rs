//! Aggregates of groups, from the records. Groups are kept in memory up to a share of the budget;
//! beyond it they go to a sorter as entries, which merges what belongs together
//! ([`Groups`], [`Totals`]).

use std::ops::ControlFlow;

use esker_lsm::sort::Sorter;
use esker_lsm::{Account, Seq};
use esker_model::query::{Aggregation, Group, Grouping, Groups, Totals};

use super::aggregate_from_index::from_index;
use super::input::Query;
use super::row_sorter::RowSorter;
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
        let mut spill = Spill {
            sorter: Sorter::new(shared.group.options().fs.clone(), shared.group.dir(), share),
            entries: 0,
        };
        let mut groups = Groups::new(grouping.clone());
        let explain = if aggregation.is_count() {
            let (count, explain) = self.count()?;
            groups.add_counted(count);
            explain
        } else {
            let mut added = Ok(());
            let explain = self.visit(&mut |record| {
                added = groups.add(record.json()).map_err(Error::from);
                if groups.bytes() > share && added.is_ok() {
                    added = spill.take(&mut groups);
                }
                match added {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            })?;
            added?;
            explain
        };
        spill.take(&mut groups)?;
        let mut entries = spill.sorter.finish()?;
        let mut totals = Totals::new(grouping.clone());
        while let Some((entry, _)) = entries.next_pair()? {
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

/// The entries of groups that are not in memory as groups.
struct Spill {
    sorter: Sorter,
    /// The number of the next entry, which keeps equal entries apart.
    entries: Seq,
}

impl Spill {
    fn take(&mut self, groups: &mut Groups) -> Result<()> {
        groups.drain(&mut |entry| {
            self.entries += 1;
            Ok(self.sorter.add(entry, self.entries)?)
        })
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
