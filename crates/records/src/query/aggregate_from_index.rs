//! Aggregates from an index alone ([`ValueTotals`]): the values of its current entries, in their
//! order, group by group. Nothing is kept but the write numbers of the groups that are not decided.
//!
//! With a condition that the same index answers, the records that meet it are gathered first, by
//! their write numbers; then the whole index is read, since an array may have further values beyond
//! the condition.
//!
//! **Invariant.** The groups are those that the records give, to the last byte. Where the index
//! does not show that, the answer is none, and the caller begins again with the records: all groups
//! that were given before are those that come from the records first.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker_lsm::{Account, Cursor, Seq, SeqSet};
use esker_model::Key;
use esker_model::query::{Aggregation, Group, Grouping, ValueTotals};

use super::count::Distinct;
use super::current_entries::{CurrentEntries, TakeCurrentEntry};
use super::explain::{Explain, ExplainedCost, ExplainedIndex, ExplainedPlan, Note, Steps};
use super::input::Query;
use super::key_cursor::READAHEAD;
use super::run::{Context, Costs, index_lookup};
use super::scan;
use super::value_counts::{CurrentFilter, ValueCount, ValueCounts};
use crate::coverage::{self, Coverage};
use crate::error::Result;
use crate::index::{self, Attribute, InOrder, IndexType, Lookup, Range};
use crate::maintenance::Validity;
use crate::store::View;
use crate::telemetry::QueryStats;
use esker_model::query::Validation;

/// Takes the groups of an answer.
type Give<'g> = dyn FnMut(Group) -> Result<ControlFlow<()>> + 'g;

/// Groups whose entries are not all decided.
const UNDECIDED: usize = 16 << 10;

/// Writes in such groups.
const HELD: usize = 256 << 10;

/// A record is read for each group of times: not for more than one in so many entries.
const SAMPLED: u64 = 16;

/// Groups of times whose records are read in any case.
const FIRST_SAMPLES: u64 = 64;

/// An index is read whole for the records of a condition that has one in so many of its entries.
const WHOLE: u64 = 8;

/// Computes the aggregates of the request's records from an index; `None` if that does not give
/// what the records give.
pub(super) fn from_index(
    query: &Query,
    aggregation: &Aggregation,
    grouping: &Arc<Grouping>,
    give: &mut Give<'_>,
) -> Result<Option<Explain>> {
    let view = &query.view;
    let Some(totals) = ValueTotals::new(&view.layout.shape, aggregation, grouping) else {
        return Ok(None);
    };
    let Some(attribute) = view.layout.attributes.get(totals.place()) else {
        return Ok(None);
    };
    let is_usable = attribute.kind.is_standalone()
        && !attribute.incomplete
        && (attribute.index()).is_some_and(IndexType::is_in_value_order);
    let is_direct = query.request.validation == Validation::Direct;
    if !is_usable || is_direct {
        return Ok(None);
    }
    let Some(source) = Source::new(query, attribute)? else {
        return Ok(None);
    };
    source.run(totals, give)
}

/// The index, and what decides which of its entries count.
struct Source<'a> {
    view: &'a View,
    attribute: &'a Attribute,
    costs: Costs,
    validity: Validity,
    expired: Option<Arc<SeqSet>>,
    /// The writes of the records that meet the condition, and the condition; without one, all.
    only: Option<(SeqSet, String)>,
    steps: Steps,
}

impl<'a> Source<'a> {
    /// `None` if records are needed, or are quicker.
    fn new(query: &'a Query, attribute: &'a Attribute) -> Result<Option<Source<'a>>> {
        let view = &query.view;
        if query.request.condition.is_some() {
            return Source::of_condition(query, attribute);
        }
        view.snapshot.check_open()?;
        let kept = &view.dataset.current.kept_filter;
        let validity = Validity::new(&view.snapshot, &view.layout, &[attribute], kept);
        if !validity.can_tell() {
            return Ok(None);
        }
        Ok(Some(Source {
            attribute,
            costs: Costs::new(&view.snapshot),
            validity,
            expired: view.expired()?,
            only: None,
            steps: Steps::default(),
            view,
        }))
    }

    fn of_condition(query: &'a Query, attribute: &'a Attribute) -> Result<Option<Source<'a>>> {
        let mut keys = query.clone();
        keys.request.keys_only = true;
        let context = Context::new(keys)?;
        let driving = context.driving_index();
        let Some((_, range)) = driving.filter(|(driving, _)| {
            std::ptr::eq(driving.declared.as_ref(), attribute.declared.as_ref())
        }) else {
            return Ok(None);
        };
        if !context.tells_current_entries() || context.compiled.is_never() {
            return Ok(None);
        }
        let mut steps = Steps::default();
        let lookup = context.indexes();
        let expected = estimate(&lookup, attribute, range)?;
        if expected.saturating_mul(WHOLE) < estimate(&lookup, attribute, &whole())? {
            return Ok(None);
        }
        let mut current = CurrentEntries::new(&context.validity, &context.costs.keys, &mut steps);
        current.expired = context.expired.as_deref();
        current.expect(expected)?;
        let mut meeting = Distinct::default();
        let mut take =
            |value: &[u8], key: &[u8], seq: Seq| current.offer(value, key, seq, &mut meeting);
        index::each_entry(&lookup, attribute, Some(range), READAHEAD, &mut take)?;
        current.settle(&mut meeting)?;
        let text = (context.plan.driver.single()).map(|at| context.compiled.text(at));
        Ok(Some(Source {
            view: &query.view,
            attribute,
            only: Some((meeting.into_set(), text.unwrap_or_default())),
            validity: context.validity,
            expired: None,
            costs: context.costs,
            steps,
        }))
    }

    fn run(mut self, mut totals: ValueTotals, give: &mut Give<'_>) -> Result<Option<Explain>> {
        let mut steps = std::mem::take(&mut self.steps);
        steps.rounds += 1;
        let is_done = if self.has_others(&mut steps)? {
            false
        } else if totals.wants_ends() && self.only.is_none() {
            let is_shown = self.read_ends(&mut totals, &mut steps)?;
            if is_shown {
                // There is no other group.
                let _ = give(totals.finish(0)?)?;
            }
            is_shown
        } else {
            self.read_all(totals, &mut steps, give)?
        };
        for cost in [&self.costs.data, &self.costs.index, &self.costs.keys] {
            self.view.dataset.shared.group.count(cost);
        }
        if !is_done {
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
        let text = self.only.as_ref().map(|(_, text)| text.clone());
        Explain {
            plan: ExplainedPlan {
                index: Some(ExplainedIndex {
                    index: self.attribute.path.to_string(),
                    kind: self.attribute.kind.to_string(),
                    condition: text.unwrap_or_else(|| "all values".to_string()),
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

    fn current<'s>(&'s self, steps: &'s mut Steps) -> CurrentEntries<'s> {
        let mut current = CurrentEntries::new(&self.validity, &self.costs.keys, steps);
        current.expired = self.expired.as_deref();
        current
    }

    /// True if a record has a value that the index does not show.
    fn has_others(&self, steps: &mut Steps) -> Result<bool> {
        let mut current = self.current(steps);
        InOrder::any_other(
            &self.lookup(),
            self.attribute,
            &mut |key, seq| match &self.only {
                Some((only, _)) => Ok(only.contains(seq)),
                None => current.is_current(key, seq),
            },
        )
    }

    /// Reads the least and the greatest value; false if the index does not show them.
    fn read_ends(&self, totals: &mut ValueTotals, steps: &mut Steps) -> Result<bool> {
        let lookup = self.lookup();
        let (mut found, mut key) = (Vec::new(), Vec::new());
        let ends = [
            (false, totals.wants_least()),
            (true, totals.wants_greatest()),
        ];
        for (is_backward, _) in ends.into_iter().filter(|(_, is_wanted)| *is_wanted) {
            let mut current = self.current(steps);
            let mut walk = InOrder::new(&lookup, self.attribute, is_backward, 0)?;
            let mut end: Option<(Vec<u8>, Vec<u8>)> = None;
            while end.is_none() {
                let step = walk.step(&mut |value, key, seq| {
                    if end.is_none() && current.is_current(key, seq)? {
                        end = Some((value.to_vec(), key.to_vec()));
                    }
                    Ok(())
                })?;
                if step.is_break() {
                    break;
                }
            }
            found.extend(end);
        }
        let shows_times = totals.shows_times();
        for (value, record) in found {
            let is_number = shows_times && self.has_number(totals, &record, None, steps)?;
            let is_shown = is_number || !shows_times;
            if !is_shown || !totals.key(&value, &mut key)? {
                return Ok(false);
            }
            totals.add(&key, is_number);
        }
        Ok(true)
    }

    /// True if the record of a key has a number as a time: in the group of `group`, or any.
    fn has_number(
        &self,
        totals: &mut ValueTotals,
        key: &[u8],
        group: Option<&[u8]>,
        steps: &mut Steps,
    ) -> Result<bool> {
        let key_type = self.view.layout.shape.key_type;
        steps.fetched += 1;
        match self.view.get(Key::from_encoded(key_type, key.to_vec()))? {
            Some(record) => Ok(totals.has_number(record.json(), group)?),
            None => Ok(false),
        }
    }

    /// Reads all values; false if the index does not show them.
    fn read_all(
        &self,
        totals: ValueTotals,
        steps: &mut Steps,
        give: &mut Give<'_>,
    ) -> Result<bool> {
        if self.only.is_none() {
            let loan = self.view.dataset.shared.borrow(Account::Queries);
            let (filter, cost) = (self.current_filter(), &self.costs.index);
            let counts = filter.count_values(self.attribute, loan.bytes(), cost)?;
            if let Some(counts) = counts {
                return self.read_counts(counts, totals, steps, give);
            }
        }
        let lookup = self.lookup();
        let counts_all = self.only.is_none() && totals.wants_count();
        let mut values = Values::new(self, totals);
        values.all = counts_all.then(Distinct::default);
        let mut walk = InOrder::new(&lookup, self.attribute, false, READAHEAD)?;
        let mut current = self.current(steps);
        if self.only.is_none() {
            current.expect(estimate(&lookup, self.attribute, &whole())?)?;
        }
        let mut is_wanted = true;
        loop {
            let step = walk.step(&mut |value, key, seq| match &self.only {
                None => current.offer(value, key, seq, &mut values),
                Some((only, _)) => {
                    if only.contains(seq) {
                        let mark = values.mark(value, true)?;
                        values.take(mark, key, seq);
                    }
                    Ok(())
                }
            })?;
            let is_end = step.is_break();
            if is_end || values.is_due() {
                current.settle(&mut values)?;
                is_wanted = values.give(is_end, current.steps, give)?.is_continue();
            }
            if !values.is_shown {
                return Ok(false);
            }
            if is_end || !is_wanted {
                break;
            }
        }
        drop(current);
        let Values { totals, all, .. } = values;
        let (with, without) = match (&self.only, all) {
            (Some((only, _)), _) => (only.len(), 0),
            (None, Some(all)) if is_wanted => {
                let (with, records) = (all.count(), self.count_records()?);
                (with, records.saturating_sub(with))
            }
            (None, _) => (0, 0),
        };
        self.finish(totals, with, without, is_wanted, steps, give)
    }

    /// Decides by the obsolete set alone which entries are current.
    fn current_filter(&self) -> CurrentFilter<'_> {
        CurrentFilter {
            snapshot: &self.view.snapshot,
            validity: &self.validity,
            expired: self.expired.as_deref(),
            background: self.view.dataset.shared.group.options().background,
        }
    }

    /// As [`Source::read_all`], from the counts of all values. Each record has at most one value.
    fn read_counts(
        &self,
        counts: ValueCounts,
        totals: ValueTotals,
        steps: &mut Steps,
        give: &mut Give<'_>,
    ) -> Result<bool> {
        steps.candidates += counts.read;
        steps.obsolete += counts.obsolete;
        let with = counts.values.iter().map(|value| value.entries).sum();
        let mut values = Values::new(self, totals);
        let mut counted = counts.values.into_iter();
        let mut is_wanted = true;
        loop {
            let next = counted.next();
            let is_end = next.is_none();
            if let Some(ValueCount {
                value,
                entries,
                key,
            }) = next
            {
                let mark = values.mark(&value, true)?;
                values.take_all(mark, key, entries);
            }
            if is_end || values.is_due() {
                is_wanted = values.give(is_end, steps, give)?.is_continue();
            }
            if !values.is_shown {
                return Ok(false);
            }
            if is_end || !is_wanted {
                break;
            }
        }
        let counts_all = values.totals.wants_count() && is_wanted;
        let records = if counts_all {
            self.count_records()?
        } else {
            with
        };
        let without = records.saturating_sub(with);
        self.finish(values.totals, with, without, is_wanted, steps, give)
    }

    /// Gives what is left once the values are read: the group of all records, or that of the
    /// records without a value.
    fn finish(
        &self,
        mut totals: ValueTotals,
        with: u64,
        without: u64,
        is_wanted: bool,
        steps: &mut Steps,
        give: &mut Give<'_>,
    ) -> Result<bool> {
        let records = with + without;
        steps.answers += records;
        if !totals.is_grouped() {
            // There is no other group.
            let _ = give(totals.finish(records)?)?;
        } else if without > 0 && is_wanted {
            let _ = give(totals.group_without(without)?)?;
        }
        Ok(true)
    }

    /// The number of records: by the tree of keys, if the dataset has one.
    fn count_records(&self) -> Result<u64> {
        let layout = &self.view.layout;
        let uses_keys = layout.stored.settings.maintenance.uses_keys();
        let Some(tree) = layout.keys.filter(|_| uses_keys) else {
            return Ok(scan::count_all(self.view, u64::MAX)?.0);
        };
        // Of earlier strategies the set has what indexes had entries of, not all that keys have.
        let set = self.validity.obsolete();
        let coverage = Coverage::new(&layout.stored.settings, set.as_deref());
        if coverage.of(coverage::Source::DataVersions).is_always() {
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

/// All values.
fn whole() -> Range {
    Range::between(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
}

fn estimate(lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
    match attribute.index() {
        Some(index) => index.estimate(lookup, attribute, range),
        None => Ok(0),
    }
}

/// The values of current entries, as groups.
struct Values<'a> {
    source: &'a Source<'a>,
    totals: ValueTotals,
    /// True if a record of each group shows whether its times are numbers.
    shows_times: bool,
    /// Records that were read for this, and current entries.
    samples: u64,
    taken: u64,
    /// The writes of the records that have a value, if they are counted.
    all: Option<Distinct>,
    /// The value of the last entry.
    value: Vec<u8>,
    /// The groups whose entries are not all decided, the last one being read.
    undecided: Vec<Undecided>,
    /// Writes that were added to these groups.
    held: usize,
    /// False once a value was met that does not show what the record has.
    is_shown: bool,
}

/// A group, or without groups a value, and the writes of its records.
struct Undecided {
    key: Vec<u8>,
    records: Distinct,
    /// Records that were counted already.
    counted: u64,
    /// The key of a record that has the value, if one has.
    met: Option<Vec<u8>>,
}

impl<'a> Values<'a> {
    fn new(source: &'a Source<'a>, totals: ValueTotals) -> Values<'a> {
        Values {
            all: None,
            shows_times: totals.shows_times(),
            source,
            samples: 0,
            taken: 0,
            totals,
            value: Vec::new(),
            undecided: Vec::new(),
            held: 0,
            is_shown: true,
        }
    }

    /// Takes all current entries of a value, of one record each; one has this key.
    fn take_all(&mut self, mark: u32, key: Vec<u8>, entries: u64) {
        self.taken += entries;
        if let Some(group) = self.undecided.get_mut(mark as usize) {
            group.met.get_or_insert(key);
            group.counted += entries;
        }
    }

    /// True if the groups so far are to be decided and passed on.
    fn is_due(&self) -> bool {
        let is_first = self.shows_times && self.samples == 0 && self.undecided.len() > 1;
        is_first || self.undecided.len() >= UNDECIDED || self.held >= HELD
    }

    /// True if a record of the group, or without groups of all, has a number as a time. If the
    /// first that is looked at has none, others may: then the index shows too little.
    fn samples(&mut self, key: &[u8], record: &[u8], steps: &mut Steps) -> Result<bool> {
        let is_grouped = self.totals.is_grouped();
        if !self.shows_times || !is_grouped && self.samples > 0 {
            return Ok(self.shows_times);
        }
        self.samples += 1;
        let group = is_grouped.then_some(key);
        let is_number = (self.source).has_number(&mut self.totals, record, group, steps)?;
        let few = (self.samples - 1).saturating_sub(FIRST_SAMPLES) * SAMPLED <= self.taken;
        self.is_shown &= is_number && few;
        Ok(is_number)
    }

    /// Passes on the groups, whose entries so far are decided; the last one only at the end of the
    /// index, as it may go on.
    fn give(
        &mut self,
        is_end: bool,
        steps: &mut Steps,
        give: &mut Give<'_>,
    ) -> Result<ControlFlow<()>> {
        self.held = 0;
        let mut decided = std::mem::take(&mut self.undecided);
        if !is_end {
            self.undecided.extend(decided.pop());
        }
        for decided in decided {
            let Undecided { key, met, .. } = decided;
            let Some(record) = met else { continue };
            let records = decided.records.count() + decided.counted;
            let is_number = self.samples(&key, &record, steps)?;
            if !self.is_shown {
                break;
            }
            if !self.totals.is_grouped() {
                self.totals.add(&key, is_number);
                continue;
            }
            let group = self.totals.group(&key, records, is_number)?;
            if give(group)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl TakeCurrentEntry for Values<'_> {
    #[inline]
    fn mark(&mut self, value: &[u8], _: bool) -> Result<u32> {
        if self.value != value || self.undecided.is_empty() {
            self.value.clear();
            self.value.extend_from_slice(value);
            let mut key = Vec::new();
            // A bucket that cannot be represented is an error of the records, if one has it.
            self.is_shown &= matches!(self.totals.key(value, &mut key), Ok(true));
            if self.undecided.last().is_none_or(|last| last.key != key) {
                self.undecided.push(Undecided {
                    key,
                    records: Distinct::default(),
                    counted: 0,
                    met: None,
                });
            }
        }
        Ok((self.undecided.len() as u32).saturating_sub(1))
    }

    #[inline]
    fn take(&mut self, mark: u32, key: &[u8], seq: Seq) {
        self.taken += 1;
        if let Some(all) = &mut self.all {
            all.add(seq);
        }
        if let Some(group) = self.undecided.get_mut(mark as usize) {
            group.met.get_or_insert_with(|| key.to_vec());
            if self.totals.is_grouped() {
                group.records.add(seq);
                self.held += 1;
            }
        }
    }
}
