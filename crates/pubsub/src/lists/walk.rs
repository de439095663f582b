//! Walks read value lists: some keys and ranges of one tree, from the newest component to the
//! oldest.
//!
//! A walk visits the elements of a list newest first. It skips elements that have expired or that
//! newer ones void, and leaves a list when its visitor needs nothing older ([`Next::EndList`]).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use esker::Result;
use esker::extension::{
    Component, Cost, Cursor, EntryCursor, Kind, MAX_SEQ, Snapshot, TableMeta, TreeId,
};
use esker_coding::Own;

use crate::forms::element::{Elements, RawElement, Target};
use crate::forms::keys::KeyRange;
use crate::lists::times::TimeFilter;

/// A part of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Span {
    /// Neighbouring lists, sorted; at least one. A component is read if its key filter admits one
    /// of them.
    Keys(Vec<Vec<u8>>),
    /// All lists with keys in a range.
    Range(KeyRange),
}

impl Span {
    /// One list.
    pub(crate) fn key(key: Vec<u8>) -> Span {
        Span::Keys(vec![key])
    }

    /// The first key that can be in the span.
    fn first(&self) -> &[u8] {
        match self {
            Span::Keys(keys) => keys.own(0),
            Span::Range(range) => &range.start,
        }
    }

    /// A key behind all keys of the span.
    fn end(&self) -> Cow<'_, [u8]> {
        match self {
            Span::Keys(keys) => {
                let last = keys.own(keys.len() - 1);
                [last, &[0][..]].concat().into()
            }
            Span::Range(range) => (&range.end).into(),
        }
    }

    /// True if this key is known to be the last one of the span.
    fn is_last(&self, key: &[u8]) -> bool {
        match self {
            Span::Keys(keys) => keys.last().is_some_and(|last| last == key),
            Span::Range(..) => false,
        }
    }

    fn position_of(&self, key: &[u8]) -> Position {
        match self {
            Span::Range(range) => match key {
                _ if key >= range.end.as_slice() => Position::Behind,
                _ if key < range.start.as_slice() => Position::Before(range.start.clone()),
                _ => Position::In,
            },
            Span::Keys(keys) => match keys.iter().find(|wanted| wanted.as_slice() >= key) {
                None => Position::Behind,
                Some(wanted) if wanted == key => Position::In,
                Some(wanted) => Position::Before(wanted.clone()),
            },
        }
    }

    /// True if this span contains everything that `other` contains.
    pub(crate) fn holds(&self, other: &Span) -> bool {
        match (self, other) {
            (Span::Range(range), Span::Range(inner)) => {
                range.start <= inner.start && range.end >= inner.end
            }
            (Span::Range(range), Span::Keys(keys)) => keys
                .iter()
                .all(|key| *key >= range.start && *key < range.end),
            (Span::Keys(mine), Span::Keys(keys)) => keys.iter().all(|key| mine.contains(key)),
            (Span::Keys(_), Span::Range(..)) => false,
        }
    }
}

/// Where a key lies relative to a span.
enum Position {
    In,
    /// Outside of the span; its next key is at or behind this one.
    Before(Vec<u8>),
    Behind,
}

/// How a walk continues after an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// With the next element.
    Continue,
    /// Without older elements of this list.
    EndList,
}

/// Called with the key of a list and an element that is not voided: newest first within a list, in
/// no particular order across lists.
pub(crate) type Visit<'v> = dyn FnMut(&[u8], &RawElement<'_>) -> Result<Next> + 'v;

/// Normalises spans: sorts them, drops those that ranges contain, and joins neighbouring lists of
/// one node.
pub(crate) fn normalise(mut spans: Vec<Span>) -> Vec<Span> {
    if spans.len() < 2 {
        return spans;
    }
    spans.sort_unstable_by(|a, b| a.first().cmp(b.first()).then_with(|| a.cmp(b)));
    spans.dedup();
    let is_range = |span: &&Span| matches!(span, Span::Range(..));
    let ranges: Vec<Span> = spans.iter().filter(is_range).cloned().collect();
    if !ranges.is_empty() {
        spans.retain(|span| {
            let is_outer = |range: &Span| range != span && range.holds(span);
            !ranges.iter().any(is_outer)
        });
    }
    let mut normalised: Vec<Span> = Vec::with_capacity(spans.len());
    for mut span in spans {
        match (normalised.last_mut(), &mut span) {
            (Some(Span::Keys(before)), Span::Keys(keys)) if are_neighbours(before, keys) => {
                before.append(keys);
            }
            _ => normalised.push(span),
        }
    }
    normalised
}

/// True if `keys` is one list of the node that the last list of `before` belongs to: their keys
/// differ in the last byte only.
fn are_neighbours(before: &[Vec<u8>], keys: &[Vec<u8>]) -> bool {
    let ([.., last], [key]) = (before, keys) else {
        return false;
    };
    match (last.as_slice(), key.as_slice()) {
        ([node @ .., _], [other_node @ .., _]) => node == other_node,
        _ => false,
    }
}

/// Visits the elements in a snapshot of the lists in `spans` ([`normalise`]). Skips tables of other
/// times than `times`.
pub(crate) fn walk(
    snapshot: &Snapshot,
    tree: TreeId,
    spans: &[Span],
    times: &TimeFilter,
    cost: &Cost,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let walk = Walk {
        snapshot,
        tree,
        spans,
        optional: &[],
        times,
        cost,
    };
    walk.run(visit).map(|_| ())
}

/// The lists that are read, and where.
pub(crate) struct Walk<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) tree: TreeId,
    /// Normalised by [`normalise`].
    pub(crate) spans: &'a [Span],
    /// Lists that are visited only if they cost nothing: in components that are read for another
    /// list of the same span, and in memtables.
    pub(crate) optional: &'a [Vec<u8>],
    /// Tables of other times are skipped.
    pub(crate) times: &'a TimeFilter,
    pub(crate) cost: &'a Cost,
}

/// The part of a component that is read for a span.
enum Needed {
    Whole,
    /// Some tables of its run.
    Tables(Component),
    /// It may have only optional lists, which would cost reads.
    Optional,
    Nothing,
}

impl Walk<'_> {
    /// Visits the elements of the lists. Returns false if it skipped an optional list.
    pub(crate) fn run(&self, visit: &mut Visit<'_>) -> Result<bool> {
        debug_assert!(
            self.spans.is_sorted_by_key(Span::first),
            "the spans are normalised"
        );
        let ends: Vec<Cow<'_, [u8]>> = self.spans.iter().map(Span::end).collect();
        let mut state = WalkState::default();
        let mut is_whole = true;
        for component in self.snapshot.components(self.tree) {
            is_whole &= self.component(&component, &ends, &mut state, visit)?;
        }
        Ok(is_whole)
    }

    /// Visits the elements of the lists in one component; `ends` has the end of each span. Returns
    /// false if it skipped an optional list.
    fn component(
        &self,
        component: &Component,
        ends: &[Cow<'_, [u8]>],
        state: &mut WalkState,
        visit: &mut Visit<'_>,
    ) -> Result<bool> {
        let cursor_of = |part: &Component| self.snapshot.entries_in(std::slice::from_ref(part), 0);
        // Made once for all spans that need all of the component.
        let mut whole = None;
        let mut is_whole = true;
        for (span, end) in self.spans.iter().zip(ends) {
            match self.needed(component, span, state)? {
                Needed::Whole => {
                    let cursor = whole.get_or_insert_with(|| cursor_of(component));
                    self.span(span, end, cursor, state, visit)?;
                }
                Needed::Tables(tables) => {
                    let mut cursor = cursor_of(&tables);
                    self.span(span, end, &mut cursor, state, visit)?;
                    self.cost.absorb(&cursor.cost());
                }
                Needed::Optional => is_whole = false,
                Needed::Nothing => {}
            }
        }
        if let Some(cursor) = whole {
            self.cost.absorb(&cursor.cost());
        }
        Ok(is_whole)
    }

    /// Visits the elements of the lists in a span, which ends before `end`, with a cursor over a
    /// component.
    fn span(
        &self,
        span: &Span,
        end: &[u8],
        cursor: &mut EntryCursor,
        state: &mut WalkState,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        // The bound keeps the cursor from passing over expired entries up to the component's end.
        cursor.within(span.first(), Some(end));
        cursor.seek_first()?;
        while cursor.valid() {
            match span.position_of(cursor.key()) {
                Position::In => {}
                Position::Before(next) => {
                    cursor.seek(&next, MAX_SEQ)?;
                    continue;
                }
                Position::Behind => break,
            }
            self.cost.check()?;
            let key = cursor.key();
            let has_ended = state.ended.contains(key)
                || (cursor.kind() == Kind::Operand
                    && state.visit(key, cursor.value(), self.snapshot, visit)?);
            if !has_ended {
                cursor.next()?;
                continue;
            }
            // The rest of the list in this component is older.
            if span.is_last(cursor.key()) {
                break;
            }
            let behind = [cursor.key(), &[0]].concat();
            cursor.seek(&behind, MAX_SEQ)?;
        }
        Ok(())
    }

    /// The part of a component that is read for a span.
    fn needed(&self, component: &Component, span: &Span, state: &WalkState) -> Result<Needed> {
        match span {
            Span::Keys(keys) => self.needed_of_lists(component, keys, state),
            Span::Range(range) => Ok(self.needed_of_range(component, range)),
        }
    }

    /// The part of a component that is read for neighbouring lists: all of it if its key filter
    /// admits one of them.
    fn needed_of_lists(
        &self,
        component: &Component,
        keys: &[Vec<u8>],
        state: &WalkState,
    ) -> Result<Needed> {
        let may_have = |key: &Vec<u8>| -> Result<bool> {
            if state.ended.contains(key.as_slice()) {
                return Ok(false);
            }
            match component {
                // The filter is enough: the cursor looks for the key.
                Component::Memtable(memtable) => Ok(memtable.may_contain(key)),
                Component::Run(run) => match run.table_for(key) {
                    Some(table) if self.may_be_in(table.meta(), Some(key)) => {
                        Ok(table.table()?.may_contain(key, self.cost)?)
                    }
                    _ => Ok(false),
                },
            }
        };
        for key in keys.iter().filter(|key| !self.optional.contains(key)) {
            if may_have(key)? {
                return Ok(Needed::Whole);
            }
        }
        for key in keys.iter().filter(|key| self.optional.contains(key)) {
            if may_have(key)? {
                return Ok(match component {
                    // A memtable costs no block read.
                    Component::Memtable(_) => Needed::Whole,
                    Component::Run(_) => Needed::Optional,
                });
            }
        }
        Ok(Needed::Nothing)
    }

    /// The part of a component that is read for a range: the tables in it whose times are needed.
    fn needed_of_range(&self, component: &Component, range: &KeyRange) -> Needed {
        let Component::Run(run) = component else {
            return Needed::Whole;
        };
        let mut tables = Vec::new();
        let mut is_whole = true;
        for table in run.between(&range.start, &range.end) {
            if self.may_be_in(table.meta(), None) {
                tables.push(table.clone());
            } else {
                is_whole = false;
            }
        }
        if tables.is_empty() {
            Needed::Nothing
        } else if is_whole {
            Needed::Whole
        } else {
            let mut run = run.clone();
            run.tables = Arc::new(tables);
            Needed::Tables(Component::Run(run))
        }
    }

    /// True if a table may have needed elements: of the list with this key, or of any list.
    fn may_be_in(&self, table: &TableMeta, list: Option<&[u8]>) -> bool {
        Cost::add(&self.cost.synopses_probed, 1);
        let may = self.times.may_be_in(table, self.snapshot, list);
        Cost::add(&self.cost.synopses_negative, u64::from(!may));
        may
    }
}

/// The state of a walk.
#[derive(Default)]
struct WalkState {
    /// Lists whose older elements are not needed.
    ended: HashSet<Vec<u8>>,
    /// By list, the publications and forms that newer elements voided.
    voided: HashMap<Vec<u8>, HashSet<Target>>,
}

impl WalkState {
    /// True if a newer element of the list has voided this one.
    fn is_voided(&self, key: &[u8], raw: &RawElement<'_>) -> bool {
        // Usually empty: then no key is hashed.
        if self.voided.is_empty() {
            return false;
        }
        let voided = self.voided.get(key).zip(raw.target());
        voided.is_some_and(|(voided, target)| voided.contains(&target))
    }

    /// Visits the elements of an operand. Returns true if no older element of the list is needed.
    fn visit(
        &mut self,
        key: &[u8],
        operand: &[u8],
        snapshot: &Snapshot,
        visit: &mut Visit<'_>,
    ) -> Result<bool> {
        for element in Elements::of(operand) {
            let raw = element?;
            // Skipped as if a compaction had pruned the operand. The elements that this one voids
            // have expired as well, since they live no longer.
            if snapshot.has_expired(raw.drop_time) {
                continue;
            }
            if self.is_voided(key, &raw) {
                continue;
            }
            if let Some(target) = raw.voids() {
                match self.voided.get_mut(key) {
                    Some(voided) => voided.insert(target),
                    None => self.voided.entry(key.to_vec()).or_default().insert(target),
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
