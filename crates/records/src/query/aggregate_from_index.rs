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

use std::ops::Bound;
use std::sync::Arc;

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{Account, Cursor, Seq, SeqSet};
use esker_model::query::{Aggregation, Direction, Grouping, Validation, ValueTotals};

use super::count::DistinctWrites;
use super::current_entries::{CurrentEntries, TakeCurrentEntry};
use super::explain::{Explain, ExplainedCost, ExplainedIndex, ExplainedPlan, Note, Steps};
use super::input::Query;
use super::key_cursor::READAHEAD;
use super::parallel::Threads;
use super::run::{Context, Costs, DrivingIndex, index_lookup};
use super::scan;
use super::value_counts::{CurrentFilter, ValueCounts};
use super::value_groups::{ValueGroups, VisitGroup, has_number};
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
/// `visit`, in order. `None` if no index shows them; groups may have been passed on by then.
///
/// # Errors
/// Any read error, an overflow of a total, and any error of `visit`.
pub(super) fn from_index(
    query: &Query,
    aggregation: &Aggregation,
    grouping: &Arc<Grouping>,
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
    let Some(source) = IndexSource::new(query, attribute)? else {
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
    /// Records with a value.
    with_value: u64,
    /// Records without one.
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
}

impl<'a> IndexSource<'a> {
    /// `None` if the records are needed, or reading them is expected to be quicker.
    fn new(query: &'a Query, attribute: &'a Attribute) -> Result<Option<IndexSource<'a>>> {
        let view = &query.view;
        if query.request.condition.is_some() {
            return IndexSource::of_condition(query, attribute);
        }
        view.snapshot.check_open()?;
        let kept = &view.dataset.current.kept_filter;
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
            view,
        }))
    }

    /// As [`IndexSource::new`], for a query with a condition: finds the records that meet it.
    fn of_condition(query: &'a Query, attribute: &'a Attribute) -> Result<Option<IndexSource<'a>>> {
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
        let mut current = CurrentEntries::new(&context.validity, &context.costs.keys, &mut steps);
        current.expired = context.expired.as_deref();
        current.prepare(expected)?;
        let mut writes = DistinctWrites::default();
        let mut take =
            |value: &[u8], key: &[u8], seq: Seq| current.offer(value, key, seq, &mut writes);
        index::each_entry(&lookup, attribute, Some(range), READAHEAD, &mut take)?;
        current.finish(&mut writes)?;
        let constraint = context.plan.driver.single().ok_or_else(Misplaced::here)?;
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
        }))
    }

    /// Reads the index, and passes the groups to `visit`.
    fn run(
        mut self,
        mut totals: ValueTotals,
        visit: &mut VisitGroup<'_>,
    ) -> Result<Option<Explain>> {
        let mut steps = std::mem::take(&mut self.steps);
        steps.rounds += 1;
        let outcome = if self.hides_values(&mut steps)? {
            ReadOutcome::NotShown
        } else if totals.wants_ends() && self.matches.is_none() {
            let outcome = self.read_ends(&mut totals, &mut steps)?;
            if outcome == ReadOutcome::Complete {
                // No group follows this one.
                let _ = visit(totals.finish(0)?)?;
            }
            outcome
        } else {
            self.read_all(totals, &mut steps, visit)?
        };
        for cost in [&self.costs.data, &self.costs.index, &self.costs.keys] {
            self.view.dataset.shared.group.count(cost);
        }
        if outcome == ReadOutcome::NotShown {
            return Ok(None);
        }
        let usage = &self.view.dataset.current.usage;
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

    /// Decides which entries are current, without regard to the matches.
    fn current<'s>(&'s self, steps: &'s mut Steps) -> CurrentEntries<'s> {
        let mut current = CurrentEntries::new(&self.validity, &self.costs.keys, steps);
        current.expired = self.expired.as_deref();
        current
    }

    /// True if a record has a value that the index does not show in its order.
    fn hides_values(&self, steps: &mut Steps) -> Result<bool> {
        let mut current = self.current(steps);
        InOrder::any_other(
            &self.lookup(),
            self.attribute,
            &mut |key, seq| match &self.matches {
                Some(matches) => Ok(matches.writes.contains(seq)),
                None => current.is_current(key, seq),
            },
        )
    }

    /// Reads the least and the greatest value, as far as they are wanted.
    fn read_ends(&self, totals: &mut ValueTotals, steps: &mut Steps) -> Result<ReadOutcome> {
        let mut ends = Vec::new();
        if totals.wants_least() {
            ends.extend(self.first_value(Direction::Ascending, steps)?);
        }
        if totals.wants_greatest() {
            ends.extend(self.first_value(Direction::Descending, steps)?);
        }
        let shows_times = totals.shows_times();
        let mut key = Vec::new();
        for end in ends {
            let is_number =
                shows_times && has_number(self.view, totals, &end.record_key, None, steps)?;
            let is_shown = is_number || !shows_times;
            if !is_shown || !totals.key(&end.value, &mut key)? {
                return Ok(ReadOutcome::NotShown);
            }
            totals.add(&key, is_number);
        }
        Ok(ReadOutcome::Complete)
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

    /// Reads all values.
    fn read_all(
        &self,
        totals: ValueTotals,
        steps: &mut Steps,
        visit: &mut VisitGroup<'_>,
    ) -> Result<ReadOutcome> {
        if self.matches.is_none() {
            let loan = self.view.dataset.shared.borrow(Account::Queries);
            let (filter, cost) = (self.current_filter(), &self.costs.index);
            let counts = filter.count_values(self.attribute, loan.bytes(), cost)?;
            if let Some(counts) = counts {
                return self.read_counts(counts, totals, steps, visit);
            }
        }
        let lookup = self.lookup();
        let counts_all = self.matches.is_none() && totals.wants_count();
        let mut groups = ValueGroups::new(self.view, totals);
        groups.all_writes = counts_all.then(DistinctWrites::default);
        let mut walk = InOrder::new(&lookup, self.attribute, Direction::Ascending, READAHEAD)?;
        let mut current = self.current(steps);
        if self.matches.is_none() {
            current.prepare(estimate(&lookup, self.attribute, &all_values())?)?;
        }
        let mut is_wanted = true;
        loop {
            let step = walk.step(&mut |value, key, seq| match &self.matches {
                None => current.offer(value, key, seq, &mut groups),
                Some(matches) => {
                    if matches.writes.contains(seq) {
                        let group = groups.group_of(value)?;
                        groups.take(group, key, seq);
                    }
                    Ok(())
                }
            })?;
            let is_end = step.is_break();
            if is_end || groups.is_full() {
                current.finish(&mut groups)?;
                let flow = groups.pass_on(is_end, current.steps, visit)?;
                is_wanted = flow.is_continue();
            }
            if !groups.is_shown() {
                return Ok(ReadOutcome::NotShown);
            }
            if is_end || !is_wanted {
                break;
            }
        }
        drop(current);
        let ValueGroups {
            totals, all_writes, ..
        } = groups;
        let counts = self.record_counts(all_writes.filter(|_| is_wanted))?;
        self.finish(totals, counts, is_wanted, steps, visit)
    }

    /// The counts of the records, given the writes of those with a value; without these, and
    /// without a condition, no counts are needed.
    fn record_counts(&self, with_value: Option<DistinctWrites>) -> Result<RecordCounts> {
        let (with_value, without_value) = match (&self.matches, with_value) {
            (Some(matches), _) => (matches.writes.len(), 0),
            (None, Some(writes)) => {
                let (with_value, records) = (writes.count(), self.count_records()?);
                (with_value, records.saturating_sub(with_value))
            }
            (None, None) => (0, 0),
        };
        Ok(RecordCounts {
            with_value,
            without_value,
        })
    }

    /// Decides which entries are current by the obsolete set alone.
    fn current_filter(&self) -> CurrentFilter<'_> {
        CurrentFilter {
            snapshot: &self.view.snapshot,
            validity: &self.validity,
            expired: self.expired.as_deref(),
            threads: Threads::of(&self.view.dataset.shared.group),
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
        let mut groups = ValueGroups::new(self.view, totals);
        let mut counted = counts.values.into_iter();
        let mut is_wanted = true;
        loop {
            let next = counted.next();
            let is_end = next.is_none();
            if let Some(value) = next {
                groups.add_counted(value)?;
            }
            if is_end || groups.is_full() {
                is_wanted = groups.pass_on(is_end, steps, visit)?.is_continue();
            }
            if !groups.is_shown() {
                return Ok(ReadOutcome::NotShown);
            }
            if is_end || !is_wanted {
                break;
            }
        }
        let counts_all = groups.totals.wants_count() && is_wanted;
        let records = if counts_all {
            self.count_records()?
        } else {
            with_value
        };
        let counts = RecordCounts {
            with_value,
            without_value: records.saturating_sub(with_value),
        };
        self.finish(groups.totals, counts, is_wanted, steps, visit)
    }

    /// Passes on the last group, once the values are read: that of all records in an aggregate
    /// without groups, otherwise that of the records without a value, if it is wanted.
    fn finish(
        &self,
        mut totals: ValueTotals,
        counts: RecordCounts,
        is_wanted: bool,
        steps: &mut Steps,
        visit: &mut VisitGroup<'_>,
    ) -> Result<ReadOutcome> {
        let RecordCounts {
            with_value,
            without_value,
        } = counts;
        let records = with_value + without_value;
        steps.answers += records;
        // No group follows, so a break makes no difference.
        if !totals.is_grouped() {
            let _ = visit(totals.finish(records)?)?;
        } else if without_value > 0 && is_wanted {
            let _ = visit(totals.group_without(without_value)?)?;
        }
        Ok(ReadOutcome::Complete)
    }

    /// The number of records: by the primary-key index, if the dataset has one.
    fn count_records(&self) -> Result<u64> {
        let layout = &self.view.layout;
        let uses_keys = layout.stored.settings.maintenance.uses_keys();
        let Some(tree) = layout.keys.filter(|_| uses_keys) else {
            return Ok(scan::count_all(self.view, u64::MAX)?.0);
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
    let index = attribute.index().ok_or_else(Misplaced::here)?;
    index.estimate(lookup, attribute, range)
}
