//! The first rows of an order by a field, from an index that is read in its order from one end,
//! until enough rows are found: an index of the field, or a compound index whose fields before it
//! have one value each by the condition. Records are fetched as in any other answer, and decide the
//! condition.
//!
//! A record with several values counts at the value by which it is ordered, where the walk meets it
//! first. Equal values are read to their end, since the rest of the rank decides between them.
//! Records without a value come last. If the index does not have enough rows, does not show all
//! values, or takes more reads than another plan, the result is `None`, and the caller sorts all
//! records.
//!
//! **Invariant.** The rows are those that sorting all records would give first, in the same order.

use std::ops::{Bound, ControlFlow};

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{Component, Seq, Slice};
use esker_model::query::{Direction, Driver, FieldOrder, FieldWalk, Ranking};
use esker_model::schema::{Path, Type};

use super::current_entries::CurrentEntries;
use super::estimates::BLOCKS_PER_ESTIMATE;
use super::explain::{ExplainedIndex, Note, Steps};
use super::row_sorter::{RecordPayload, RowSorter, SortedRows};
use super::run::{Context, DrivingIndex, OrderedIndex, Run};
use super::stages::{Admission, AnswerContent, Fetch, Needs, TakeCurrent};
use crate::error::{Error, Result};
use crate::index::{Attribute, InOrder, IndexType, KeyBounds, Lookup};
use crate::maintenance::Validity;
use esker_model::tokens::Tokenizer;

/// The most rows that are read from an index.
const MAX_ROWS: usize = 1024;

/// The least number of candidates whose records are fetched together.
const MIN_FETCH: usize = 16;

/// The greatest number of candidates whose records are fetched together.
const MAX_FETCH: usize = 1024;

/// The most candidates of one value of a compound index that wait together.
const MAX_WAITING: usize = 16 * MAX_FETCH;

/// A record that is looked up by an index in its order costs as much as this many scanned records.
const SCANNED_PER_LOOKUP: u64 = 16;

/// A record that is looked up by an index in its order costs as much as this many records that are
/// looked up in the order of keys.
const BULK_PER_LOOKUP: u64 = 4;

/// The rows that a sorted answer needs.
pub(super) struct WantedRows<'a> {
    /// The first field of the order.
    pub(super) first: &'a FieldOrder,
    /// The number of rows.
    pub(super) limit: usize,
    /// Only rows with a greater rank.
    pub(super) after: Option<&'a [u8]>,
    /// True if rows need no records.
    pub(super) keys_only: bool,
    /// The bytes that the rows may take.
    pub(super) memory: usize,
}

/// The wanted rows; `None` if an index does not give all of them, or another plan is quicker.
///
/// # Errors
/// Any read error, and damage if a record is malformed.
pub(super) fn rows_from_index(
    run: &mut Run,
    ranking: &mut Ranking,
    wanted: &WantedRows<'_>,
) -> Result<Option<SortedRows>> {
    if run.exhausted || !(1..=MAX_ROWS).contains(&wanted.limit) {
        return Ok(None);
    }
    let Run { context, steps, .. } = run;
    let lookup = context.indexes();
    let Some(mut source) = OrderedSource::new(context, &lookup, wanted)? else {
        return Ok(None);
    };
    let attribute = source.attribute;
    let view = &context.view;
    let kept = &view.dataset.state.kept_filter;
    let validity = Validity::new(&view.snapshot, &view.layout, &[attribute], kept);
    if source.hides_values(&lookup, &validity, context, steps)? {
        return Ok(None);
    }
    let from = match wanted.after {
        Some(rank) => match ranking.first_value(source.ty(), rank) {
            Some(value) => Some(value),
            // The earlier pages end among the records without a value.
            None => return Ok(None),
        },
        None => None,
    };
    let direction = wanted.first.direction;
    let bounds = source.bounds(from, direction);
    let walk = IndexWalk::new(context, &validity, wanted, &source, ranking);
    let entries = InOrder::within(&lookup, attribute, direction, 0, &bounds)?;
    let Some(rows) = walk.run(entries, steps)? else {
        return Ok(None);
    };
    steps.rounds += 1;
    let condition = source.by_field.as_ref();
    let condition = condition.map(|by_field| context.compiled.text(by_field.constraint));
    let index = ExplainedIndex {
        index: attribute.path.to_string(),
        kind: attribute.kind.to_string(),
        condition: condition.unwrap_or_else(|| "all values".to_string()),
        order: Some(wanted.first.to_string()),
    };
    let note = Note::InIndexOrder {
        path: attribute.path.clone(),
    };
    // The notes of the plan are about a scan that was not made.
    context.notes = vec![note];
    context.in_order = Some(OrderedIndex {
        index,
        rows: wanted.limit as u64,
    });
    Ok(Some(rows))
}

/// The index that is walked through.
struct OrderedSource<'a> {
    attribute: &'a Attribute,
    /// The part of a compound index that is in the order of the field; `None` for an index of the
    /// field.
    by_field: Option<FieldWalk>,
    /// How many records may be looked up before another plan would have been quicker.
    reads: u64,
}

impl<'a> OrderedSource<'a> {
    /// `None` if no index has the order, or another plan is expected to be quicker.
    fn new(
        context: &'a Context,
        lookup: &Lookup<'_>,
        wanted: &WantedRows<'_>,
    ) -> Result<Option<OrderedSource<'a>>> {
        let is_backward = wanted.first.direction == Direction::Descending;
        let layout = &context.view.layout;
        let path = &wanted.first.path;
        let by_field = context.compiled.walk_by(&layout.shape, path, is_backward);
        if let Some(by_field) = by_field
            && let attribute = layout.attributes.item(by_field.attribute)?
            && is_in_order(attribute)
            && let Some(reads) =
                affordable_of_compound(context, lookup, attribute, &by_field, wanted.limit)?
        {
            return Ok(Some(OrderedSource {
                attribute,
                by_field: Some(by_field),
                reads,
            }));
        }
        let Some(attribute) = index_of(context, path) else {
            return Ok(None);
        };
        let expected = match &context.plan.driver {
            Driver::Index(at) => expected_of(context, *at),
            _ => None,
        };
        let reads = match expected {
            // One index alone can drive: this one, if it is read from one end of its values.
            None if begins_with_matches(context, attribute, wanted.first.direction) => {
                affordable_of_driver(context, lookup, wanted.limit)?
            }
            expected => affordable(context, expected, wanted.limit),
        };
        Ok(reads.map(|reads| OrderedSource {
            attribute,
            by_field: None,
            reads,
        }))
    }

    /// The type of the field.
    fn ty(&self) -> Type {
        let by_field = self.by_field.as_ref();
        by_field.map_or(self.attribute.ty, |by_field| by_field.ty)
    }

    /// True if a record has a value that the walk does not meet in its order. Without a primary-key
    /// index or a complete set, every entry that is not known to be obsolete counts.
    fn hides_values(
        &self,
        lookup: &Lookup<'_>,
        validity: &Validity,
        context: &Context,
        steps: &mut Steps,
    ) -> Result<bool> {
        // An entry of an expired record counts, too: another plan then has the same answer.
        let mut current = CurrentEntries::new(validity, None, &context.costs.keys, steps);
        let mut is_current = |key: &[u8], seq| current.is_current(key, seq);
        let Some(by_field) = &self.by_field else {
            return InOrder::any_stand_in(lookup, self.attribute, &mut is_current);
        };
        match by_field.excluded() {
            Some(bounds) => InOrder::any_within(lookup, self.attribute, &bounds, &mut is_current),
            None => Ok(false),
        }
    }

    /// The bounds of the walk, which begins at the value `from` of the field, or at the first one.
    fn bounds(&mut self, from: Option<Vec<u8>>, direction: Direction) -> KeyBounds {
        match (&mut self.by_field, from) {
            (Some(by_field), from) => {
                if let Some(from) = from {
                    by_field.begin_at(&from, direction == Direction::Descending);
                }
                by_field.range.key_bounds()
            }
            (None, from) => {
                // Every value is in the bounds from the empty one on, in both directions.
                let from = from.unwrap_or_default();
                InOrder::bounds_from(self.attribute, &from, direction)
            }
        }
    }
}

/// True if the tree of the index has its values in their order.
fn is_in_order(attribute: &Attribute) -> bool {
    attribute.kind.is_standalone()
        && !attribute.incomplete
        && (attribute.index()).is_some_and(IndexType::is_in_value_order)
}

/// The field's attribute, if its index has the values in their order.
fn index_of<'a>(context: &'a Context, path: &Path) -> Option<&'a Attribute> {
    let layout = &context.view.layout;
    let attribute = layout.attributes.own(layout.shape.place_of(path)?);
    let is_usable = is_in_order(attribute)
        && attribute.tokenizer != Tokenizer::Prefix
        && !(attribute.ty == Type::Float && attribute.rounds);
    is_usable.then_some(attribute)
}

/// How many records may be looked up before another plan would have been quicker; `None` if it is
/// expected to be quicker for `limit` rows.
fn affordable(context: &Context, expected: Option<u64>, limit: usize) -> Option<u64> {
    // The number of records, with replaced ones, from metadata.
    let all: u64 = context.components.iter().map(Component::entries).sum();
    let reads = match &context.plan.driver {
        Driver::Scan => all / SCANNED_PER_LOOKUP,
        Driver::Index(_) => {
            // A driver that was not compared with others has no estimate: it is taken to be quick.
            let expected = expected?;
            // One in this many records meets the condition.
            let one_in = all / expected.max(1) + 1;
            if (limit as u64).saturating_mul(one_in) > expected / BULK_PER_LOOKUP {
                return None;
            }
            expected / BULK_PER_LOOKUP
        }
        Driver::Union(_) | Driver::Combined(_) => return None,
    };
    (reads >= limit as u64).then_some(reads.max(2 * MIN_FETCH as u64))
}

/// The candidates that are expected of a constraint; `None` if it was not compared with others.
fn expected_of(context: &Context, constraint: usize) -> Option<u64> {
    let mut compared = context.plan.compared.iter();
    let (_, expected) = compared.find(|(at, _)| *at == constraint)?;
    Some(*expected)
}

/// True if this index is the driver, and a walk through it in a direction begins with values that
/// the driver's condition admits.
fn begins_with_matches(context: &Context, attribute: &Attribute, direction: Direction) -> bool {
    let Some(DrivingIndex {
        attribute: driving,
        range,
    }) = context.driving_index()
    else {
        return false;
    };
    let first = match direction {
        Direction::Ascending => &range.lo,
        Direction::Descending => &range.hi,
    };
    driving.id == attribute.id && *first == Bound::Unbounded && range.regions.is_empty()
}

/// As [`affordable`], for a walk that begins with the candidates of the driver.
fn affordable_of_driver(
    context: &Context,
    lookup: &Lookup<'_>,
    limit: usize,
) -> Result<Option<u64>> {
    let Some(DrivingIndex { attribute, range }) = context.driving_index() else {
        return Ok(None);
    };
    let index = attribute.index().ok_or_else(|| Misplaced::here())?;
    lookup.looks.renew(BLOCKS_PER_ESTIMATE);
    let reads = index.estimate(lookup, attribute, range)? / BULK_PER_LOOKUP;
    Ok((reads >= limit as u64).then_some(reads.max(2 * MIN_FETCH as u64)))
}

/// As [`affordable`], for the entries of a compound index, which all meet conditions of the query:
/// the other plans read all of these, or all candidates of another index.
fn affordable_of_compound(
    context: &Context,
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    by_field: &FieldWalk,
    limit: usize,
) -> Result<Option<u64>> {
    let index = attribute.index().ok_or_else(|| Misplaced::here())?;
    lookup.looks.renew(BLOCKS_PER_ESTIMATE);
    let mut expected = index.estimate(lookup, attribute, &by_field.range)?;
    for (at, of_other) in &context.plan.compared {
        if context.plan.driver.constraints() == [*at] {
            expected = expected.min(*of_other);
        }
    }
    let reads = expected / BULK_PER_LOOKUP;
    Ok((reads >= limit as u64).then_some(reads.max(2 * MIN_FETCH as u64)))
}

/// A walk through the entries of an index.
struct IndexWalk<'a> {
    context: &'a Context,
    validity: &'a Validity,
    wanted: &'a WantedRows<'a>,
    /// The path of the index.
    path: &'a Path,
    by_field: Option<&'a FieldWalk>,
    /// The type of the field.
    ty: Type,
    ranking: &'a mut Ranking,
    sorter: RowSorter,
    /// Candidates whose records were not fetched yet.
    waiting: Vec<Waiting>,
    /// The beginnings of the ranks of their values.
    parts: Vec<Vec<u8>>,
    /// The value of the last entry; `None` before the first one.
    value: Option<Vec<u8>>,
    has_fetched: bool,
    /// The number of wanted rows that were found.
    found: usize,
    /// The number of records that may still be looked up.
    reads_left: u64,
    /// True if the index does not show the order, or another plan is quicker.
    gives_up: bool,
}

/// A candidate whose record was not fetched yet.
struct Waiting {
    key: Vec<u8>,
    seq: Seq,
    /// The place of its value's part of the rank.
    part: usize,
}

impl<'a> IndexWalk<'a> {
    /// A walk that has read no entry.
    fn new(
        context: &'a Context,
        validity: &'a Validity,
        wanted: &'a WantedRows<'a>,
        source: &'a OrderedSource<'a>,
        ranking: &'a mut Ranking,
    ) -> IndexWalk<'a> {
        let group = &context.view.dataset.store.group;
        IndexWalk {
            context,
            validity,
            wanted,
            path: &source.attribute.path,
            by_field: source.by_field.as_ref(),
            ty: source.ty(),
            sorter: RowSorter::new(group, wanted.memory, Some(wanted.limit)),
            ranking,
            waiting: Vec::new(),
            parts: Vec::new(),
            value: None,
            has_fetched: false,
            found: 0,
            reads_left: source.reads,
            gives_up: false,
        }
    }

    /// Reads the entries until enough rows are found; `None` if the index does not give them.
    fn run(mut self, mut entries: InOrder<'_>, steps: &mut Steps) -> Result<Option<SortedRows>> {
        let mut next = ControlFlow::Continue(());
        while next.is_continue() {
            let step = entries.step(&mut |value, key, seq| {
                if next.is_continue() {
                    next = self.take(value, key, seq, steps)?;
                }
                Ok(())
            })?;
            if step.is_break() && next.is_continue() {
                self.fetch(steps)?;
                break;
            }
        }
        if self.has_enough() {
            self.sorter.finish().map(Some)
        } else {
            Ok(None)
        }
    }

    fn has_enough(&self) -> bool {
        !self.gives_up && self.found >= self.wanted.limit
    }

    /// Takes the next entry; breaks if no further entries are needed.
    fn take(
        &mut self,
        value: &[u8],
        key: &[u8],
        seq: Seq,
        steps: &mut Steps,
    ) -> Result<ControlFlow<()>> {
        let value = match self.by_field {
            Some(by_field) => by_field.value_in(value).ok_or_else(|| {
                let path = &self.path;
                Error::damaged(format!("index of {path}: malformed value"))
            })?,
            None => value,
        };
        let is_new = self.value.as_deref() != Some(value);
        if is_new {
            // More rows than are wanted may have equal values.
            let missing = self.wanted.limit.saturating_sub(self.found);
            // If all that wait are current, as many as are missing may be enough.
            let is_first = self.validity.is_exact() && !self.has_fetched;
            let least = if is_first { 1 } else { MIN_FETCH };
            if missing == 0 || self.waiting.len() >= missing.max(least) {
                self.fetch(steps)?;
            }
            let last = self.value.get_or_insert_default();
            last.clear();
            last.extend_from_slice(value);
        } else if self.by_field.is_some() {
            // A record may have another entry with the same value of the field, and another value
            // of a later field: all entries of a value are fetched together.
            self.gives_up |= self.waiting.len() >= MAX_WAITING;
        } else if self.waiting.len() >= MAX_FETCH {
            self.fetch(steps)?;
        }
        if is_new && self.has_enough() {
            return Ok(ControlFlow::Break(()));
        }
        self.gives_up |= self.waiting.len() as u64 > self.reads_left;
        if self.gives_up {
            return Ok(ControlFlow::Break(()));
        }
        if is_new || self.parts.is_empty() {
            let mut part = Vec::new();
            self.gives_up |= !self.ranking.first_part(self.ty, value, &mut part);
            self.parts.push(part);
        }
        steps.candidates += 1;
        if self.validity.is_obsolete(seq) {
            steps.obsolete += 1;
            return Ok(ControlFlow::Continue(()));
        }
        self.waiting.push(Waiting {
            key: key.to_vec(),
            seq,
            part: self.parts.len() - 1,
        });
        Ok(ControlFlow::Continue(()))
    }

    /// Fetches the records of the waiting candidates, and adds the rows of those that are current
    /// and satisfy the condition.
    fn fetch(&mut self, steps: &mut Steps) -> Result<()> {
        self.has_fetched = true;
        let mut waiting = std::mem::take(&mut self.waiting);
        let parts = std::mem::take(&mut self.parts);
        // Of the entries of a record, the first of its newest write remains.
        waiting.sort_unstable_by(|a, b| {
            let newest = b.seq.cmp(&a.seq);
            a.key.cmp(&b.key).then(newest).then(a.part.cmp(&b.part))
        });
        waiting.dedup_by(|later, first| later.key == first.key);
        // One candidate more than may be read can wait.
        self.reads_left = self.reads_left.saturating_sub(waiting.len() as u64);
        let context = self.context;
        let keys: Vec<&[u8]> = waiting.iter().map(|one| one.key.as_slice()).collect();
        let seqs: Vec<Seq> = waiting.iter().map(|one| one.seq).collect();
        let admission = Admission::of_all(&context.view, &context.compiled);
        let mut options = context.lookup;
        options.batch_bytes = options.batch_bytes.min(self.wanted.memory / 4);
        let fetch = Fetch {
            view: &context.view,
            components: &context.components,
            all_current: self.validity.is_exact(),
            options,
            cost: &context.costs.data,
            needs: Needs::of(admission, AnswerContent::Records),
            body_cost: &context.costs.bodies,
        };
        let mut receiver = RowReceiver {
            context,
            admission,
            wanted: self.wanted,
            waiting: &waiting,
            parts: &parts,
            ranking: self.ranking,
            sorter: &mut self.sorter,
            rows: 0,
            steps,
            rank: Vec::new(),
            payload: Vec::new(),
        };
        let fetched = fetch.run(&keys, &seqs, &mut receiver)?;
        self.found += receiver.rows;
        fetched.count_in(steps);
        Ok(())
    }
}

/// Adds the rows of current candidates that satisfy the condition.
struct RowReceiver<'w> {
    context: &'w Context,
    admission: Admission<'w>,
    wanted: &'w WantedRows<'w>,
    /// The candidates.
    waiting: &'w [Waiting],
    /// The beginnings of the ranks of their values.
    parts: &'w [Vec<u8>],
    ranking: &'w mut Ranking,
    sorter: &'w mut RowSorter,
    /// The number of wanted rows that were found.
    rows: usize,
    steps: &'w mut Steps,
    /// Buffers for a row.
    rank: Vec<u8>,
    payload: Vec<u8>,
}

impl TakeCurrent for RowReceiver<'_> {
    fn take(&mut self, at: usize, stored: Slice) -> Result<()> {
        let Waiting { key, seq, part } = self.waiting.item(at)?;
        if !self.admission.admits(&stored, self.steps)? {
            return Ok(());
        }
        let record = self.context.view.record(key.clone(), *seq, stored)?;
        self.ranking.rank(record.json(), key, &mut self.rank);
        let rank = self.rank.as_slice();
        let is_after = self.wanted.after.is_none_or(|after| rank > after);
        // A record that is ordered by another of its values counts there.
        if !rank.starts_with(self.parts.item(*part)?) || !is_after {
            return Ok(());
        }
        self.rows += 1;
        if self.sorter.admits(rank) {
            let keys_only = self.wanted.keys_only;
            let row = RecordPayload {
                key,
                seq: *seq,
                stored: if keys_only { &[] } else { record.stored() },
            };
            row.encode(&mut self.payload);
            self.sorter.add(rank, &self.payload)?;
        }
        Ok(())
    }
}
