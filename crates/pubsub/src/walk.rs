//! Walks read value lists: some keys and ranges of one tree, from the newest component to the
//! oldest.
//!
//! A walk visits the elements of a list newest first. It passes over elements that have expired or
//! that newer ones void, and leaves a list when its visitor needs nothing older
//! ([`Next::EndList`]).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use esker::Result;
use esker::extension::{Component, Cost, Cursor, Kind, MAX_SEQ, Snapshot, TableMeta, TreeId};

use crate::element::{Elements, Raw, Subject};
use crate::times::Wanted;

/// A part of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Span {
    /// Neighbouring lists, sorted. A component is read if its key filter admits one of them.
    Keys(Vec<Vec<u8>>),
    /// All lists from one key to before another.
    Range(Vec<u8>, Vec<u8>),
}

impl Span {
    pub(crate) fn key(key: Vec<u8>) -> Span {
        Span::Keys(vec![key])
    }

    fn first(&self) -> &[u8] {
        match self {
            Span::Keys(keys) => keys.first().map_or(&[], Vec::as_slice),
            Span::Range(low, _) => low,
        }
    }

    /// A key behind all keys of the span.
    fn end(&self) -> Cow<'_, [u8]> {
        match self {
            Span::Keys(keys) => {
                let last = keys.last().map_or(&[][..], Vec::as_slice);
                [last, &[0]].concat().into()
            }
            Span::Range(_, high) => high.into(),
        }
    }

    /// True if this key is known to be the last one of the span.
    fn is_last(&self, key: &[u8]) -> bool {
        match self {
            Span::Keys(keys) => keys.last().is_some_and(|last| last == key),
            Span::Range(..) => false,
        }
    }

    /// The place of `key` relative to the span.
    fn takes(&self, key: &[u8]) -> Place {
        match self {
            Span::Range(low, high) => match key {
                _ if key >= high.as_slice() => Place::Behind,
                _ if key < low.as_slice() => Place::Between(low.clone()),
                _ => Place::In,
            },
            Span::Keys(keys) => match keys.iter().find(|wanted| wanted.as_slice() >= key) {
                None => Place::Behind,
                Some(wanted) if wanted == key => Place::In,
                Some(wanted) => Place::Between(wanted.clone()),
            },
        }
    }

    /// True if this span contains everything that `other` contains.
    pub(crate) fn holds(&self, other: &Span) -> bool {
        match (self, other) {
            (Span::Range(low, high), Span::Range(from, to)) => low <= from && high >= to,
            (Span::Range(low, high), Span::Keys(keys)) => {
                keys.iter().all(|key| key >= low && key < high)
            }
            (Span::Keys(mine), Span::Keys(keys)) => keys.iter().all(|key| mine.contains(key)),
            (Span::Keys(_), Span::Range(..)) => false,
        }
    }
}

enum Place {
    In,
    /// Outside of the span; its next key is at or behind this one.
    Between(Vec<u8>),
    Behind,
}

/// How a walk continues after an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// With the next element.
    On,
    /// Without older elements of this list.
    EndList,
}

/// Called with the key of a list and an element that is not voided: newest first within a list, in
/// no particular order across lists.
pub(crate) type Visit<'v> = dyn FnMut(&[u8], &Raw<'_>) -> Result<Next> + 'v;

/// Normalises spans: sorts them, drops those that ranges contain, and joins neighbouring lists of
/// one node.
pub(crate) fn tidy(mut spans: Vec<Span>) -> Vec<Span> {
    if spans.len() < 2 {
        return spans;
    }
    spans.sort_unstable_by(|a, b| a.first().cmp(b.first()).then_with(|| a.cmp(b)));
    spans.dedup();
    let is_range = |span: &&Span| matches!(span, Span::Range(..));
    let ranges: Vec<Span> = spans.iter().filter(is_range).cloned().collect();
    if !ranges.is_empty() {
        spans.retain(|span| {
            let held = |range: &Span| range != span && range.holds(span);
            !ranges.iter().any(held)
        });
    }
    let mut tidied: Vec<Span> = Vec::with_capacity(spans.len());
    for mut span in spans {
        if let (Some(Span::Keys(before)), Span::Keys(keys)) = (tidied.last_mut(), &mut span)
            && let (Some([node @ .., _]), [key]) =
                (before.last().map(Vec::as_slice), keys.as_slice())
            && key.len() == node.len() + 1
            && key.starts_with(node)
        {
            before.append(keys);
            continue;
        }
        tidied.push(span);
    }
    tidied
}

/// Visits the elements in a snapshot of the lists in `spans` ([`tidy`]). Skips tables of other
/// times than `wanted`.
pub(crate) fn walk(
    snapshot: &Snapshot,
    tree: TreeId,
    spans: &[Span],
    wanted: &Wanted,
    cost: &Cost,
    visit: &mut Visit<'_>,
) -> Result<()> {
    walk_with(snapshot, tree, spans, &[], wanted, cost, visit).map(|_| ())
}

/// As [`walk`], but visits the lists `optional` only if they cost nothing: in components that are
/// read for another list of the same span, and in memtables. Returns false if it skipped any.
pub(crate) fn walk_with(
    snapshot: &Snapshot,
    tree: TreeId,
    spans: &[Span],
    optional: &[Vec<u8>],
    wanted: &Wanted,
    cost: &Cost,
    visit: &mut Visit<'_>,
) -> Result<bool> {
    let (mut lists, mut is_whole) = (Lists::default(), true);
    let mut may_be_in = |table: &TableMeta, list: Option<&[u8]>| {
        Cost::add(&cost.synopses_probed, 1);
        let may = wanted.may_be_in(table, snapshot, list);
        Cost::add(&cost.synopses_negative, u64::from(!may));
        may
    };
    let ends: Vec<Cow<'_, [u8]>> = spans.iter().map(Span::end).collect();
    for component in snapshot.components(tree) {
        let cursor_of = |of: &Component| snapshot.entries_in(std::slice::from_ref(of), 0);
        let mut whole = None;
        for (span, end) in spans.iter().zip(&ends) {
            let mut narrowed = None;
            match span {
                Span::Keys(keys) => {
                    match may_hold(&component, keys, optional, &lists, &mut may_be_in, cost)? {
                        Holds::Wanted => {}
                        Holds::Optional => {
                            is_whole = false;
                            continue;
                        }
                        Holds::Nothing => continue,
                    }
                }
                Span::Range(low, high) => match narrow(&component, low, high, &mut may_be_in) {
                    Narrowed::Whole => {}
                    Narrowed::Part(part) => narrowed = Some(cursor_of(&part)),
                    Narrowed::Nothing => continue,
                },
            }
            let cursor = match &mut narrowed {
                Some(cursor) => cursor,
                None => whole.get_or_insert_with(|| cursor_of(&component)),
            };
            // The bound keeps the cursor from passing over expired entries up to the component's
            // end.
            cursor.within(span.first(), Some(end));
            cursor.seek_first()?;
            while cursor.valid() {
                match span.takes(cursor.key()) {
                    Place::In => {}
                    Place::Between(next) => {
                        cursor.seek(&next, MAX_SEQ)?;
                        continue;
                    }
                    Place::Behind => break,
                }
                cost.check()?;
                let ended = lists.ended.contains(cursor.key());
                let is_operand = cursor.kind() == Kind::Operand;
                if ended
                    || is_operand && lists.visit(cursor.key(), cursor.value(), snapshot, visit)?
                {
                    // The rest of the list in this component is older.
                    if span.is_last(cursor.key()) {
                        break;
                    }
                    let mut behind = cursor.key().to_vec();
                    behind.push(0);
                    cursor.seek(&behind, MAX_SEQ)?;
                } else {
                    cursor.next()?;
                }
            }
            if let Some(cursor) = narrowed {
                cost.absorb(&cursor.cost());
            }
        }
        if let Some(cursor) = whole {
            cost.absorb(&cursor.cost());
        }
    }
    Ok(is_whole)
}

/// True if a table may have needed elements: of the list with this key, or of any list.
type MayBeIn<'m> = dyn FnMut(&TableMeta, Option<&[u8]>) -> bool + 'm;

/// The lists of a span that a component may have.
enum Holds {
    Wanted,
    /// Only optional ones.
    Optional,
    Nothing,
}

fn may_hold(
    component: &Component,
    keys: &[Vec<u8>],
    optional: &[Vec<u8>],
    lists: &Lists,
    may_be_in: &mut MayBeIn<'_>,
    cost: &Cost,
) -> Result<Holds> {
    let mut may = |key: &Vec<u8>| -> Result<bool> {
        if lists.ended.contains(key.as_slice()) {
            return Ok(false);
        }
        match component {
            // The filter is enough: the cursor looks for the key.
            Component::Memtable(memtable) => Ok(memtable.may_contain(key)),
            Component::Run(run) => match run.table_for(key) {
                Some(table) if may_be_in(table.meta(), Some(key)) => {
                    Ok(table.table()?.may_contain(key, cost)?)
                }
                _ => Ok(false),
            },
        }
    };
    for key in keys.iter().filter(|key| !optional.contains(key)) {
        if may(key)? {
            return Ok(Holds::Wanted);
        }
    }
    for key in keys.iter().filter(|key| optional.contains(key)) {
        if may(key)? {
            return Ok(match component {
                // A memtable costs no block read.
                Component::Memtable(_) => Holds::Wanted,
                _ => Holds::Optional,
            });
        }
    }
    Ok(Holds::Nothing)
}

/// The part of a component that is read for a range.
enum Narrowed {
    /// Nothing is skipped.
    Whole,
    /// Some tables of its run.
    Part(Component),
    Nothing,
}

fn narrow(component: &Component, low: &[u8], high: &[u8], may_be_in: &mut MayBeIn<'_>) -> Narrowed {
    let Component::Run(run) = component else {
        return Narrowed::Whole;
    };
    let (mut tables, mut is_whole) = (Vec::new(), true);
    for table in run.between(low, high) {
        if may_be_in(table.meta(), None) {
            tables.push(table.clone());
        } else {
            is_whole = false;
        }
    }
    match (tables.is_empty(), is_whole) {
        (true, _) => Narrowed::Nothing,
        (false, true) => Narrowed::Whole,
        (false, false) => {
            let mut run = run.clone();
            run.tables = Arc::new(tables);
            Narrowed::Part(Component::Run(run))
        }
    }
}

/// The state of a walk.
#[derive(Default)]
struct Lists {
    /// Lists of which nothing older is needed.
    ended: HashSet<Vec<u8>>,
    /// By list, the publications and forms that newer elements voided.
    voided: HashMap<Vec<u8>, HashSet<Subject>>,
}

impl Lists {
    /// Visits the elements of an operand. True if nothing older of the list is needed.
    fn visit(
        &mut self,
        key: &[u8],
        operand: &[u8],
        snapshot: &Snapshot,
        visit: &mut Visit<'_>,
    ) -> Result<bool> {
        for element in Elements::of(operand) {
            let (raw, _) = element?;
            // As if the operand had been pruned. The elements that this one voids have expired as
            // well.
            if snapshot.has_expired(raw.useless) {
                continue;
            }
            // Usually empty; then nothing is hashed.
            let voided = if self.voided.is_empty() {
                None
            } else {
                self.voided.get(key)
            };
            let is_void = voided.is_some_and(|voided| {
                raw.subject()
                    .is_some_and(|subject| voided.contains(&subject))
            });
            if is_void {
                continue;
            }
            if let Some(subject) = raw.voids() {
                match self.voided.get_mut(key) {
                    Some(voided) => voided.insert(subject),
                    None => self.voided.entry(key.to_vec()).or_default().insert(subject),
                };
            }
            if !raw.is_tombstone() && visit(key, &raw)? == Next::EndList {
                self.ended.insert(key.to_vec());
                return Ok(true);
            }
        }
        Ok(false)
    }
}
