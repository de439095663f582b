//! The first rows of an order by a field, from an index that is read in its order from one end,
//! until there are enough: an index of the field, or a compound index whose fields before it have
//! one value each by the condition. Records are fetched as in any other answer; the condition is
//! decided by them.
//!
//! A record with several values is taken at the one by which it is ordered, where the walk meets it
//! first. Equal values are read to their end, since the rest of the rank decides between them.
//! Records without a value come last: if the index does not have enough rows, or does not show all
//! values, or takes more reads than another plan, the answer is none, and the caller sorts.

use std::ops::ControlFlow;

use esker_lsm::coding::{Misplaced, Own, put_bytes};
use esker_lsm::{Component, Seq, Slice};
use esker_model::Key;
use esker_model::query::{Direction, Driver, FieldOrder, FieldWalk, Ranking};
use esker_model::schema::{Path, Type};

use super::current_entries::CurrentEntries;
use super::explain::{Note, Steps};
use super::row_sorter::{RowSorter, SortedRows};
use super::run::{Context, Run};
use super::stages::{Admission, Fetch, Needs};
use crate::error::Result;
use crate::index::{Attribute, Bounds, InOrder, IndexType, Lookup};
use crate::maintenance::Validity;
use crate::record;
use esker_model::tokens::Tokenizer;

/// The most rows that are found so.
const MOST: usize = 1024;

/// Candidates whose records are fetched together, at least and at most.
const FEW: usize = 16;
const MANY: usize = 1024;

/// The most candidates of one value of a compound index that wait together.
const MANY_TOGETHER: usize = 16 * MANY;

/// A record that is looked up costs as much as so many that are scanned, or that are looked up in
/// the order of keys.
const OF_SCAN: u64 = 16;
const OF_BULK: u64 = 4;

/// What is wanted.
pub(super) struct Wanted<'a> {
    /// The first field of the order.
    pub(super) first: &'a FieldOrder,
    pub(super) most: usize,
    /// Rows up to this rank are not wanted.
    pub(super) behind: Option<&'a [u8]>,
    /// True if rows need no records.
    pub(super) keys_only: bool,
    pub(super) memory: usize,
}

/// The first rows behind the place; `None` if they are not all found in an index, or not so soon.
pub(super) fn from_index(
    run: &mut Run,
    ranking: &mut Ranking,
    wanted: &Wanted<'_>,
) -> Result<Option<SortedRows>> {
    if run.exhausted || !(1..=MOST).contains(&wanted.most) {
        return Ok(None);
    }
    let Run { context, steps, .. } = run;
    let is_backward = wanted.first.direction == Direction::Descending;
    let lookup = context.indexes();
    let Some(mut source) = Source::new(context, &lookup, wanted, is_backward)? else {
        return Ok(None);
    };
    let (attribute, ty) = (source.attribute, source.ty());
    let view = &context.view;
    let kept = &view.dataset.current.kept_filter;
    let validity = Validity::new(&view.snapshot, &view.layout, &[attribute], kept);
    // Without keys or a complete set every entry that is not known to be obsolete counts.
    let mut current = CurrentEntries::new(&validity, &context.costs.keys, steps);
    let mut is_current = |key: &[u8], seq| current.is_current(key, seq);
    let is_hidden = match &source.by_field {
        None => InOrder::any_other(&lookup, attribute, &mut is_current)?,
        Some(by_field) => match by_field.excluded() {
            Some(bounds) => InOrder::any_within(&lookup, attribute, &bounds, &mut is_current)?,
            None => false,
        },
    };
    if is_hidden {
        return Ok(None);
    }
    let from = match wanted.behind {
        Some(rank) => match ranking.first_value(ty, rank) {
            Some(value) => Some(value),
            None => return Ok(None),
        },
        None => None,
    };
    let bounds = source.bounds(from, is_backward);
    let group = &view.dataset.shared.group;
    let mut walk = Walk {
        context,
        validity: &validity,
        wanted,
        by_field: source.by_field.as_ref(),
        ty,
        sorter: RowSorter::new(group, wanted.memory, Some(wanted.most)),
        ranking,
        waiting: Vec::new(),
        parts: Vec::new(),
        value: Vec::new(),
        has_begun: false,
        has_fetched: false,
        found: 0,
        left: source.reads,
        gives_up: false,
    };
    let mut entries = InOrder::within(&lookup, attribute, is_backward, 0, &bounds)?;
    let is_enough = loop {
        let mut next = ControlFlow::Continue(());
        let step = entries.step(&mut |value, key, seq| {
            if next.is_continue() {
                next = walk.take(value, key, seq, steps)?;
            }
            Ok(())
        })?;
        if next.is_break() {
            break walk.has_enough();
        }
        if step.is_break() {
            walk.fetch(steps)?;
            break walk.has_enough();
        }
    };
    drop(entries);
    if !is_enough {
        return Ok(None);
    }
    let rows = walk.sorter.finish()?;
    steps.rounds += 1;
    context.notes.push(Note::InIndexOrder {
        path: attribute.path.clone(),
    });
    Ok(Some(rows))
}

/// What is walked through.
struct Source<'a> {
    attribute: &'a Attribute,
    /// Of a compound index, the values in the order of the field.
    by_field: Option<FieldWalk>,
    /// How many records may be looked up before another plan would have been quicker.
    reads: u64,
}

impl<'a> Source<'a> {
    /// `None` if no index has the order, or another plan is quicker from the first.
    fn new(
        context: &'a Context,
        lookup: &Lookup<'_>,
        wanted: &Wanted<'_>,
        is_backward: bool,
    ) -> Result<Option<Source<'a>>> {
        let layout = &context.view.layout;
        let path = &wanted.first.path;
        let by_field = context.compiled.walk_by(&layout.shape, path, is_backward);
        if let Some(by_field) = by_field
            && let Some(attribute) = layout.attributes.get(by_field.attribute)
            && is_in_order(attribute)
            && let Some(reads) =
                affordable_here(context, lookup, attribute, &by_field, wanted.most)?
        {
            return Ok(Some(Source {
                attribute,
                by_field: Some(by_field),
                reads,
            }));
        }
        let Some(attribute) = index_of(context, path) else {
            return Ok(None);
        };
        let reads = affordable(context, wanted.most);
        Ok(reads.map(|reads| Source {
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

    /// The bounds of the walk, which begins at a value of the field.
    fn bounds(&mut self, from: Option<Vec<u8>>, is_backward: bool) -> Bounds {
        match (&mut self.by_field, from) {
            (Some(by_field), from) => {
                if let Some(from) = from {
                    by_field.begin_at(&from, is_backward);
                }
                by_field.range.key_bounds()
            }
            (None, from) => {
                let from = from.unwrap_or_default();
                InOrder::bounds_from(self.attribute, &from, is_backward)
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
    let attribute = layout.attributes.get(layout.shape.place_of(path)?)?;
    let is_usable = is_in_order(attribute)
        && attribute.tokenizer != Tokenizer::Prefix
        && !(attribute.ty == Type::Float && attribute.rounds);
    is_usable.then_some(attribute)
}

/// How many records may be looked up before another plan would have been quicker; `None` if it is
/// so from the first.
fn affordable(context: &Context, most: usize) -> Option<u64> {
    // The number of records, with replaced ones: to know it costs nothing.
    let all: u64 = context.components.iter().map(Component::entries).sum();
    let reads = match &context.plan.driver {
        Driver::Scan => all / OF_SCAN,
        Driver::Index(at) => {
            let mut compared = context.plan.compared.iter();
            let known = compared.find(|(of, _)| of == at);
            let expected = known.map_or(0, |(_, expected)| *expected);
            // The condition is met by one in so many records.
            let one_in = all / expected.max(1) + 1;
            if (most as u64).saturating_mul(one_in) > expected / OF_BULK {
                return None;
            }
            expected / OF_BULK
        }
        Driver::Union(_) | Driver::Combined(_) => return None,
    };
    (reads >= most as u64).then_some(reads.max(2 * FEW as u64))
}

/// As [`affordable`], for the entries of a compound index, which all meet conditions of the query:
/// the other plans are to read these, or the candidates of another index, all.
fn affordable_here(
    context: &Context,
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    by_field: &FieldWalk,
    most: usize,
) -> Result<Option<u64>> {
    let Some(index) = attribute.index() else {
        return Ok(None);
    };
    lookup.looks.renew(1);
    let mut expected = index.estimate(lookup, attribute, &by_field.range)?;
    for (at, of_other) in &context.plan.compared {
        if context.plan.driver.constraints() == [*at] {
            expected = expected.min(*of_other);
        }
    }
    let reads = expected / OF_BULK;
    Ok((reads >= most as u64).then_some(reads.max(2 * FEW as u64)))
}

/// A walk through the entries of an index.
struct Walk<'a> {
    context: &'a Context,
    validity: &'a Validity,
    wanted: &'a Wanted<'a>,
    by_field: Option<&'a FieldWalk>,
    ty: Type,
    ranking: &'a mut Ranking,
    sorter: RowSorter,
    /// Candidates whose records were not fetched yet.
    waiting: Vec<Waiting>,
    /// The beginnings of the ranks of their values.
    parts: Vec<Vec<u8>>,
    /// The value of the last entry, if there was one.
    value: Vec<u8>,
    has_begun: bool,
    has_fetched: bool,
    /// Rows that are wanted.
    found: usize,
    /// Records that may still be looked up.
    left: u64,
    /// True if the index does not show what is wanted, or another plan is quicker.
    gives_up: bool,
}

struct Waiting {
    key: Vec<u8>,
    seq: Seq,
    /// The place of its value's part of the rank.
    part: usize,
}

impl Walk<'_> {
    fn has_enough(&self) -> bool {
        !self.gives_up && self.found >= self.wanted.most
    }

    /// Takes the next entry; breaks if nothing more is to be read.
    fn take(
        &mut self,
        value: &[u8],
        key: &[u8],
        seq: Seq,
        steps: &mut Steps,
    ) -> Result<ControlFlow<()>> {
        let value = match self.by_field {
            Some(by_field) => by_field.value_in(value).ok_or_else(Misplaced::here)?,
            None => value,
        };
        let is_new = !self.has_begun || self.value != value;
        self.has_begun = true;
        if is_new {
            let missing = self.wanted.most.saturating_sub(self.found);
            // Where all that wait are current, as many as are missing may be enough.
            let is_first = self.validity.is_exact() && !self.has_fetched;
            let least = if is_first { 1 } else { FEW };
            if missing == 0 || self.waiting.len() >= missing.max(least) {
                self.fetch(steps)?;
            }
            self.value.clear();
            self.value.extend_from_slice(value);
        } else if self.by_field.is_some() {
            // A record may be here again, with another value of a field behind this one: all of a
            // value are fetched together.
            self.gives_up |= self.waiting.len() >= MANY_TOGETHER;
        } else if self.waiting.len() >= MANY {
            self.fetch(steps)?;
        }
        if is_new && self.has_enough() {
            return Ok(ControlFlow::Break(()));
        }
        self.gives_up |= self.waiting.len() as u64 > self.left;
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

    /// Fetches the records of the waiting candidates, and takes the rows of those that are current.
    fn fetch(&mut self, steps: &mut Steps) -> Result<()> {
        self.has_fetched = true;
        let mut waiting = std::mem::take(&mut self.waiting);
        let parts = std::mem::take(&mut self.parts);
        // Of the entries of a record, the first of its newest write.
        waiting.sort_unstable_by(|a, b| {
            let newest = b.seq.cmp(&a.seq);
            a.key.cmp(&b.key).then(newest).then(a.part.cmp(&b.part))
        });
        waiting.dedup_by(|later, first| later.key == first.key);
        self.left = self.left.saturating_sub(waiting.len() as u64);
        let context = self.context;
        let keys: Vec<&[u8]> = waiting.iter().map(|one| one.key.as_slice()).collect();
        let seqs: Vec<Seq> = waiting.iter().map(|one| one.seq).collect();
        let admission = Admission::of_all(&context.view, &context.compiled);
        let mut options = context.lookup;
        options.batch_bytes = options.batch_bytes.min(self.wanted.memory / 4);
        let fetch = Fetch {
            view: &context.view,
            components: &context.components,
            known: self.validity.is_exact(),
            options,
            cost: &context.costs.data,
            needs: Needs::of(admission, true),
            body_cost: &context.costs.bodies,
        };
        let mut taken = Ok(());
        let mut rows = 0;
        let (ranking, sorter) = (&mut *self.ranking, &mut self.sorter);
        let key_type = context.view.layout.shape.key_type;
        let (mut rank, mut payload) = (Vec::new(), Vec::new());
        let mut discards = Steps::default();
        let mut take = |at: usize, stored: Slice| -> Result<()> {
            let Waiting { key, seq, part } = waiting.own(at);
            if !admission.admits(&stored, &mut discards)? {
                return Ok(());
            }
            let key = Key::from_encoded(key_type, key.clone());
            let record = record::returned(key, *seq, stored)?;
            let key = record.key().as_bytes();
            ranking.rank(record.json(), key, &mut rank);
            let is_behind = (self.wanted.behind).is_none_or(|behind| rank.as_slice() > behind);
            if !rank.starts_with(parts.own(*part)) || !is_behind {
                return Ok(());
            }
            rows += 1;
            if sorter.admits(&rank) {
                payload.clear();
                put_bytes(&mut payload, key);
                if !self.wanted.keys_only {
                    payload.extend_from_slice(record.stored());
                }
                sorter.add(&rank, &payload, *seq)?;
            }
            Ok(())
        };
        let fetched = fetch.run(&keys, &seqs, &mut |at: usize, stored: Slice| {
            if taken.is_ok() {
                taken = take(at, stored);
            }
        })?;
        taken?;
        self.found += rows;
        fetched.count_in(steps);
        steps.obsolete += discards.obsolete;
        steps.discarded += discards.discarded;
        Ok(())
    }
}
