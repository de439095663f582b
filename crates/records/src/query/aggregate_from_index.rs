//! Aggregates from an index alone ([`ValueTotals`]): the values of its current entries, in their
//! order, group by group (`value_groups.rs`). Where counts of components add up, nothing is merged
//! (`value_counts.rs`).
//!
//! With a condition that the same index answers, the write numbers of the records that meet it are
//! gathered first; then the whole index is read, since an array may have further values outside of
//! the condition.
//!
//! **Invariant.** The groups equal those of the records, to the last byte. Where the index does not
//! show that, the result is `None`, and the caller aggregates the records instead: the groups that
//! were passed on before equal the first groups of the records.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{Account, Cursor, Seq, SeqSet};
use esker_model::query::{Aggregation, Direction, Grouping, Validation, ValueTotals};

use super::count::DistinctWrites;
use super::current_entries::{CurrentEntries, TakeCurrentEntry};
use super::explain::{Explain, ExplainedCost, ExplainedIndex, ExplainedPlan, Note, Steps};
use super::input::ViewQuery;
use super::key_cursor::READAHEAD;
use super::parallel::Threads;
use super::run::{Context, Costs, DrivingIndex, index_lookup};
use super::scan;
use super::value_counts::{CurrentFilter, ValueCounts};
use super::value_groups::{TimeSampler, ValueGroups, VisitGroup};
use crate::coverage::{self, Coverage};
use crate::error::Result;
use crate::index::{self, Attribute, InOrder, IndexType, Lookup, Range};
use crate::maintenance::Validity;
use crate::store::View;
use crate::telemetry::QueryStats;

/// An index is read whole for the records of a condition if at least one in this many of its
/// entries meets the condition.
const MAX_ENTRIES_PER_MATCH: u64 = 8;

/// Computes the aggregates of the request's records from an index, and passes the groups to
/// `visit`, in order. `None` if no index shows them; groups may have been passed on by then. Groups
/// that wait to be passed on take up to `share` bytes, and entries that wait to be decided as many.
///
/// # Errors
/// Any read error, an overflow of a total, and any error of `visit`.
pub(super) fn aggregate_from_index(
    query: &ViewQuery,
    aggregation: &Aggregation,
    grouping: &Arc<Grouping>,
    share: usize,
    visit: &mut VisitGroup<'_>,
) -> Result<Option<Explain>> {
    let view = &query.view;
    let Some(totals) = ValueTotals::new(&view.layout.shape, aggregation, grouping) else {
        return Ok(None);
    };
    let attribute = view.layout.attributes.item(totals.place())?;
    let is_usable = attribute.kind.is_standalone()
        && !attribute.incomplete
        && (attribute.index()).is_some_and(IndexType::is_in_value_order);
    let is_direct = query.request.validation == Validation::Direct;
    if !is_usable || is_direct {
        return Ok(None);
    }
    let Some(source) = IndexSource::new(query, attribute, share)? else {
        return Ok(None);
    };
    source.run(totals, visit)
}

/// The records that meet the condition of an aggregate.
struct Matches {
    writes: SeqSet,
    /// The condition, for people.
    condition: String,
}

/// The current records of an aggregate.
#[derive(Debug, Clone, Copy)]
struct RecordCounts {
    with_value: u64,
    without_value: u64,
}

/// How the reading of an index has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadOutcome {
    /// All groups were passed on, or as many as the receiver needed.
    Complete,
    /// The index does not show the groups of the records.
    NotShown,
}

/// The index, with the sets that decide which of its entries count.
struct IndexSource<'a> {
    view: &'a View,
    attribute: &'a Attribute,
    costs: Costs,
    validity: Validity,
    expired: Option<Arc<SeqSet>>,
    /// The records that count; `None` for all.
    matches: Option<Matches>,
    /// The steps of finding the matches.
    steps: Steps,
    /// The bytes that waiting groups, and waiting entries, may take.
    share: usize,
}

impl<'a> IndexSource<'a> {
    /// `None` if the records are needed, or reading them is expected to be quicker.
    fn new(
        query: &'a ViewQuery,
        attribute: &'a Attribute,
        share: usize,
    ) -> Result<Option<IndexSource<'a>>> {
        let view = &query.view;
        if query.request.condition.is_some() {
            return IndexSource::of_condition(query, attribute, share);
        }
        view.snapshot.check_open()?;
        let kept = &view.dataset.state.kept_filter;
        let validity = Validity::new(&view.snapshot, &view.layout, &[attribute], kept);
        if !validity.validates_without_records() {
            return Ok(None);
        }
        Ok(Some(IndexSource {
            attribute,
            costs: Costs::new(&view.snapshot),
            validity,
            expired: view.expired()?,
            matches: None,
            steps: Steps::default(),
            share,
            view,
        }))
    }

    /// As [`IndexSource::new`], for a query with a condition: finds the records that meet it.
    fn of_condition(
        query: &'a ViewQuery,
        attribute: &'a Attribute,
        share: usize,
    ) -> Result<Option<IndexSource<'a>>> {
        let mut keys = query.clone();
        keys.request.keys_only = true;
        let context = Context::new(keys)?;
        let is_same = |driving: &DrivingIndex<'_>| {
            let declared = driving.attribute.declared.as_ref();
            std::ptr::eq(declared, attribute.declared.as_ref())
        };
        let Some(driving) = context.driving_index().filter(is_same) else {
            return Ok(None);
        };
        let range = driving.range;
        if !context.entries_suffice() || context.compiled.is_never() {
            return Ok(None);
        }
        let mut steps = Steps::default();
        let lookup = context.indexes();
        let expected = estimate(&lookup, attribute, range)?;
        let all = estimate(&lookup, attribute, &all_values())?;
        if expected.saturating_mul(MAX_ENTRIES_PER_MATCH) < all {
            return Ok(None);
        }
        let (expired, cost) = (context.expired.as_deref(), &context.costs.keys);
        let current = CurrentEntries::new(&context.validity, expired, cost, &mut steps);
        let mut current = current.within(share);
        current.prepare(expected)?;
        let mut writes = DistinctWrites::default();
        let mut take =
            |_: &[u8], key: &[u8], seq: Seq| current.offer(key, seq, &mut writes, |_| ());
        index::each_entry(&lookup, attribute, Some(range), READAHEAD, &mut take)?;
        current.finish(&mut writes)?;
        let driver = context.plan.driver.single();
        let constraint = driver.ok_or_else(|| Misplaced::here())?;
        let matches = Matches {
            writes: writes.into_set(),
            condition: context.compiled.text(constraint),
        };
        Ok(Some(IndexSource {
            view: &query.view,
            attribute,
            matches: Some(matches),
            validity: context.validity,
            expired: None,
            costs: context.costs,
            steps,
            share,
        }))
    }

    /// Reads the index, and passes the groups to `visit`.
    fn run(mut self, totals: ValueTotals, visit: &mut VisitGroup<'_>) -> Result<Option<Explain>> {
        let mut steps = std::mem::take(&mut self.steps);
        steps.rounds += 1;
        let outcome = if self.hides_values(&mut steps)? {
            ReadOutcome::NotShown
        } else if totals.wants_ends() && self.matches.is_none() {
            self.read_ends(totals, &mut steps, visit)?
        } else {
            self.read_all(totals, &mut steps, visit)?
        };
        for cost in [&self.costs.data, &self.costs.index, &self.costs.keys] {
            self.view.dataset.store.group.count(cost);
        }
        if outcome == ReadOutcome::NotShown {
            return Ok(None);
        }
        let usage = &self.view.dataset.state.usage;
        let ranges = QueryStats {
            ranges: 1,
            range_rows: steps.answers,
            ..QueryStats::default()
        };
        usage.count_attribute_query(&self.attribute.path, ranges);
        Ok(Some(self.explain(steps)))
    }

    fn explain(&self, steps: Steps) -> Explain {
        let condition = self.matches.as_ref().map(|matches| &matches.condition);
        Explain {
            plan: ExplainedPlan {
                index: Some(ExplainedIndex {
                    index: self.attribute.path.to_string(),
                    kind: self.attribute.kind.to_string(),
                    condition: condition.map_or_else(|| "all values".to_string(), String::clone),
                    order: None,
                }),
                ..ExplainedPlan::default()
            },
            notes: vec![Note::FromIndex],
            steps,
            cost: ExplainedCost {
                data: (&self.costs.data).into(),
                place: None,
                index: Some((&self.costs.index).into()),
                keys: Some((&self.costs.keys).into()),
            },
        }
    }

    fn lookup(&self) -> Lookup<'_> {
        index_lookup(self.view, &self.costs)
    }

    fn sampler(&self) -> TimeSampler<'_> {
        TimeSampler {
            view: self.view,
            cost: &self.costs.data,
        }
    }

    /// Decides which entries are current, without regard to the matches.
    fn current<'s, G>(&'s self, steps: &'s mut Steps) -> CurrentEntries<'s, G> {
        let expired = self.expired.as_deref();
        CurrentEntries::new(&self.validity, expired, &self.costs.keys, steps).within(self.share)
    }

    /// True if a record has a value that the index does not show in its order.
    fn hides_values(&self, steps: &mut Steps) -> Result<bool> {
        let mut current = self.current(steps);
        InOrder::any_stand_in(
            &self.lookup(),
            self.attribute,
            &mut |key, seq| match &self.matches {
                Some(matches) => Ok(matches.writes.contains(seq)),
                None => current.is_current(key, seq),
            },
        )
    }

    /// Reads the least and the greatest value, as far as they are wanted.
    fn read_ends(
        &self,
        mut totals: ValueTotals,
        steps: &mut Steps,
        visit: &mut VisitGroup<'_>,
    ) -> Result<ReadOutcome> {
        let mut ends = Vec::new();
        if totals.wants_least() {
            ends.extend(self.first_value(Direction::Ascending, steps)?);
        }
        if totals.wants_greatest() {
            ends.extend(self.first_value(Direction::Descending, steps)?);
        }
        let (shows_times, sampler) = (totals.shows_times(), self.sampler());
        let mut key = Vec::new();
        for end in ends {
            let is_number =
                shows_times && sampler.has_number(&mut totals, &end.record_key, None, steps)?;
            let is_shown = is_number || !shows_times;
            if !is_shown || !totals.key(&end.value, &mut key) {
                return Ok(ReadOutcome::NotShown);
            }
            totals.add(&key, is_number);
        }
        self.finish(totals, None, steps, visit)
    }

    /// The first current entry in a direction; `None` if the index has none.
    fn first_value(&self, direction: Direction, steps: &mut Steps) -> Result<Option<EndValue>> {
        let lookup = self.lookup();
        let mut current = self.current(steps);
        let mut walk = InOrder::new(&lookup, self.attribute, direction, 0)?;
        let mut end: Option<EndValue> = None;
        while end.is_none() {
            let step = walk.step(&mut |value, key, seq| {
                if end.is_none() && current.is_current(key, seq)? {
                    end = Some(EndValue {
                        value: value.to_vec(),
                        record_key: key.to_vec(),
                    });
                }
                Ok(())
            })?;
            if step.is_break() {
                break;
            }
        }
        Ok(end)
    }

    /// Reads all values: their counts if components have these, otherwise the entries.
    fn read_all(
        &self,
        totals: ValueTotals,
        steps: &mut Steps,
        visit: &mut VisitGroup<'_>,
    ) -> Result<ReadOutcome> {
        if self.matches.is_none() {
            let loan = self.view.dataset.store.borrow(Account::Queries);
            let (filter, cost) = (self.current_filter(), &self.costs.index);
            let counts = filter.count_values(self.attribute, loan.bytes(), cost)?;
            if let Some(counts) = counts {
                return self.read_counts(counts, totals, steps, visit);
            }
        }
        self.read_entries(totals, steps, visit)
    }

    /// Reads all entries in the order of their values.
    fn read_entries(
        &self,
        totals: ValueTotals,
        steps: &mut Steps,
        visit: &mut VisitGroup<'_>,
    ) -> Result<ReadOutcome> {
        let lookup = self.lookup();
        let counts_all = self.matches.is_none() && totals.wants_count();
        let all_writes = counts_all.then(DistinctWrites::default);
        let mut groups = ValueGroups::new(self.sampler(), totals, all_writes, self.share);
        let mut walk = InOrder::new(&lookup, self.attribute, Direction::Ascending, READAHEAD)?;
        let mut current = self.current(steps);
        if self.matches.is_none() {
            current.prepare(estimate(&lookup, self.attribute, &all_values())?)?;
        }
        let flow = loop {
            let step = walk.step(&mut |value, key, seq| match &self.matches {
                None => current.offer(key, seq, &mut groups, |groups| groups.group_of(value)),
                Some(matches) => {
                    if matches.writes.contains(seq) {
                        let group = groups.group_of(value);
                        groups.take(group, key, seq);
                    }
                    Ok(())
                }
            })?;
            let is_end = step.is_break();
            let mut flow = ControlFlow::Continue(());
            if is_end || groups.is_full() {
                current.finish(&mut groups)?;
                flow = if is_end {
                    groups.pass_on_all(current.steps, visit)?
                } else {
                    groups.pass_on_closed(current.steps, visit)?
                };
            }
            if !groups.is_shown() {
                return Ok(ReadOutcome::NotShown);
            }
            if is_end || flow.is_break() {
                break flow;
            }
        };
        let ValueGroups {
            totals, all_writes, ..
        } = groups;
        let counts = match (&self.matches, all_writes) {
            // A record that meets a condition on the field has a value.
            (Some(matches), _) => Some(RecordCounts {
                with_value: matches.writes.len(),
                without_value: 0,
            }),
            (None, Some(writes)) if flow.is_continue() => Some(self.count_others(writes.count())?),
            (None, _) => None,
        };
        if let Some(RecordCounts { with_value, .. }) = counts {
            steps.answers += with_value;
        }
        self.finish(totals, counts, steps, visit)
    }

    /// Counts the records without a value, given how many have one.
    fn count_others(&self, with_value: u64) -> Result<RecordCounts> {
        let records = self.count_records()?;
        // Both numbers are those of the current records of one snapshot.
        let without_value = records.checked_sub(with_value);
        Ok(RecordCounts {
            with_value,
            without_value: without_value.ok_or_else(|| Misplaced::here())?,
        })
    }

    /// Decides which entries are current by the obsolete set alone.
    fn current_filter(&self) -> CurrentFilter<'_> {
        CurrentFilter {
            snapshot: &self.view.snapshot,
            validity: &self.validity,
            expired: self.expired.as_deref(),
            threads: Threads::of(&self.view.dataset.store.group),
        }
    }

    /// As [`IndexSource::read_all`], from the counts of all values. Each record has at most one
    /// value.
    fn read_counts(
        &self,
        counts: ValueCounts,
        totals: ValueTotals,
        steps: &mut Steps,
        visit: &mut VisitGroup<'_>,
    ) -> Result<ReadOutcome> {
        steps.candidates += counts.read;
        steps.obsolete += counts.obsolete;
        let with_value = counts.values.iter().map(|value| value.entries).sum();
        steps.answers += with_value;
        let mut groups = ValueGroups::new(self.sampler(), totals, None, self.share);
        let mut flow = ControlFlow::Continue(());
        for value in counts.values {
            groups.add_counted(value);
            if groups.is_full() {
                flow = groups.pass_on_closed(steps, visit)?;
            }
            if flow.is_break() || !groups.is_shown() {
                break;
            }
        }
        if flow.is_continue() && groups.is_shown() {
            flow = groups.pass_on_all(steps, visit)?;
        }
        if !groups.is_shown() {
            return Ok(ReadOutcome::NotShown);
        }
        let counts = if groups.totals.wants_count() && flow.is_continue() {
            Some(self.count_others(with_value)?)
        } else {
            None
        };
        self.finish(groups.totals, counts, steps, visit)
    }

    /// Passes on the last group, once the values are read: that of all records in an aggregate
    /// without groups, otherwise that of the records without a value, if there are any. `counts` is
    /// `None` if the totals need none, or no further group is wanted.
    fn finish(
        &self,
        mut totals: ValueTotals,
        counts: Option<RecordCounts>,
        steps: &mut Steps,
        visit: &mut VisitGroup<'_>,
    ) -> Result<ReadOutcome> {
        if let Some(RecordCounts { without_value, .. }) = counts {
            steps.answers += without_value;
        }
        // No group follows, so a break makes no difference.
        if !totals.is_grouped() {
            // Where the records were not counted, their number is not shown.
            debug_assert!(counts.is_some() || !totals.wants_count(), "a count to show");
            let records = counts.map_or(0, |counts| counts.with_value + counts.without_value);
            let _ = visit(totals.finish(records)?)?;
        } else if let Some(RecordCounts { without_value, .. }) = counts
            && without_value > 0
        {
            let _ = visit(totals.group_without(without_value)?)?;
        }
        Ok(ReadOutcome::Complete)
    }

    /// The number of records: by the primary-key index, if the dataset has one.
    fn count_records(&self) -> Result<u64> {
        let layout = &self.view.layout;
        let uses_keys = layout.stored.settings.maintenance.uses_keys();
        let Some(tree) = layout.keys.filter(|_| uses_keys) else {
            return scan::count_at_cost(self.view, None, &self.costs.data);
        };
        // Of earlier strategies, the set has only the writes that indexes had entries of.
        let set = self.validity.obsolete();
        let coverage = Coverage::new(&layout.stored.settings, set.as_deref());
        if coverage
            .complete_for(coverage::Source::DataVersions)
            .is_always()
        {
            return self.current_filter().count_keys(tree, &self.costs.keys);
        }
        let mut cursor = self.view.snapshot.cursor(tree, READAHEAD);
        let expired = self.expired.as_deref();
        let mut records = 0;
        cursor.seek_first()?;
        while cursor.valid() {
            let is_expired = expired.is_some_and(|expired| expired.contains(cursor.seq()));
            records += u64::from(!is_expired);
            cursor.next()?;
        }
        self.costs.keys.absorb(&cursor.cost());
        Ok(records)
    }
}

/// The least or the greatest value, and the key of a record that has it.
struct EndValue {
    value: Vec<u8>,
    record_key: Vec<u8>,
}

/// The range of all values.
fn all_values() -> Range {
    Range::between(Bound::Unbounded, Bound::Unbounded)
}

/// The estimated number of an index's entries in a range.
fn estimate(lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
    let index = attribute.index().ok_or_else(|| Misplaced::here())?;
    index.estimate(lookup, attribute, range)
}
