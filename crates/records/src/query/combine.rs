//! Index intersection: the sequence numbers of the entries of several indexes ([`Lists`]) are
//! intersected, united and subtracted before a record is read.
//!
//! For large answers, lists are read whole ([`WholeLists`]): the sequence numbers of the shorter
//! ones are collected in sets, and those entries of the longest one that the sets admit are
//! visited, with their keys. If a set takes more than its share of the memory, some others are
//! visited, too ([`SeqFilter`]), and the condition is evaluated on the records.
//!
//! For pages ([`rule_out`]), the base gives a window of candidates, and the other lists are read
//! for the sequence numbers between its first and its last candidate only. So a query for a few
//! records reads little of long lists, as far as their types can stop early.
//!
//! **Invariant.** The visited entries include one of each record that answers the query, whatever
//! the memory.

use std::cell::{Cell, RefCell};

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{Seq, SeqSet};
use esker_model::query::{Combined, Driver, Lists};

use super::explain::Steps;
use super::key_cursor;
use super::run::{Context, DrivingIndex, ListRead};
use super::seq_filter::SeqFilter;
use crate::error::{Error, Result};
use crate::index::{
    self, Attribute, BestCandidates, Candidate, Lookup, Range, SoughtWrites, VisitError,
};

/// A range with fewer entries than this is read block by block.
const READAHEAD_ENTRIES: u64 = 10_000;

/// The largest number of sequence numbers that are gathered before they are sorted and added to a
/// set.
const MAX_GATHERED: usize = 64 << 10;

/// The largest number of ranges of a union that are read whole. A cursor for each range costs more
/// than a lookup if most ranges are empty.
const MAX_RANGES: usize = 16;

/// Receives the key and the sequence number of an entry.
pub(super) type VisitKey<'v, E> = dyn FnMut(&[u8], Seq) -> std::result::Result<(), E> + 'v;

/// Returns whether the lists that were read so far admit the entry of a write.
type Keep<'k> = dyn Fn(Seq) -> bool + 'k;

/// Reads lists whole.
pub(super) struct WholeLists<'a> {
    context: &'a Context,
    lookup: Lookup<'a>,
    /// Bytes that the sets of sequence numbers of one combination may take. A combination within
    /// another has as much again.
    memory: usize,
    /// The lists that were read to their ends.
    lists_read: RefCell<Vec<ListRead>>,
    /// Entries of the base that are known to be obsolete.
    obsolete: Cell<u64>,
    /// Entries that were visited.
    visited: Cell<u64>,
    /// False once entries were visited that the combination does not have.
    is_exact: Cell<bool>,
}

/// The result of reading lists whole.
pub(super) struct ListsOutcome {
    /// The lists that were read to their ends.
    pub(super) lists_read: Vec<ListRead>,
    /// False if entries were visited that the combination does not have.
    pub(super) is_exact: bool,
}

impl<'a> WholeLists<'a> {
    /// A reader whose sets take up to `memory` bytes.
    pub(super) fn new(context: &'a Context, memory: usize) -> WholeLists<'a> {
        WholeLists {
            context,
            lookup: context.indexes(),
            memory,
            lists_read: RefCell::default(),
            obsolete: Cell::new(0),
            visited: Cell::new(0),
            is_exact: Cell::new(true),
        }
    }

    /// The estimated number of entries in the lists of these constraints.
    pub(super) fn expected(&self, constraints: &[usize]) -> Result<u64> {
        let mut expected = 0;
        for at in constraints {
            let Source { attribute, ranges } = source_of(self.context, *at)?;
            let index = attribute.index().ok_or_else(|| Misplaced::here())?;
            for range in ranges.iter().filter(|range| !range.is_empty()) {
                expected += index.estimate(&self.lookup, attribute, range)?;
            }
        }
        Ok(expected)
    }

    /// Visits the entries of the combination, in no particular order, without those that are known
    /// to be obsolete. An entry may come several times.
    ///
    /// # Errors
    /// Any read error, and any error of `visit`.
    pub(super) fn run(
        self,
        lists: &Lists,
        steps: &mut Steps,
        visit: &mut VisitKey<'_, Error>,
    ) -> Result<ListsOutcome> {
        let mut count = |key: &[u8], seq: Seq| {
            self.visited.set(self.visited.get() + 1);
            visit(key, seq)
        };
        self.each(lists, &|_| true, &mut count)?;
        let (base, lists_read) = (lists.base(), self.lists_read.into_inner());
        let (mut candidates, mut others) = (0, 0);
        for list in &lists_read {
            if base.contains(&list.constraint) {
                candidates += list.entries;
            } else {
                others += list.entries;
            }
        }
        let obsolete = self.obsolete.get();
        steps.rounds += 1;
        steps.candidates += candidates;
        steps.obsolete += obsolete;
        steps.listed += others;
        // More entries are visited than the base has, if a list is in several parts of the
        // combination, or if records have several entries in the visited list.
        steps.ruled_out += candidates.saturating_sub(obsolete + self.visited.get());
        Ok(ListsOutcome {
            lists_read,
            is_exact: self.is_exact.get(),
        })
    }

    /// Visits the entries of a combination that `keep` admits.
    fn each<E: VisitError>(
        &self,
        lists: &Lists,
        keep: &Keep<'_>,
        visit: &mut VisitKey<'_, E>,
    ) -> std::result::Result<(), E> {
        match lists {
            Lists::One(at) => self.each_in_list(*at, keep, visit),
            Lists::Any(parts) => parts
                .iter()
                .try_for_each(|part| self.each(part, keep, visit)),
            Lists::All { of, but } => self.each_in_all(of, but, keep, visit),
        }
    }

    /// Visits the entries that all of `parts` have, without those of the `excluded` constraints.
    fn each_in_all<E: VisitError>(
        &self,
        parts: &[Lists],
        excluded: &[usize],
        keep: &Keep<'_>,
        visit: &mut VisitKey<'_, E>,
    ) -> std::result::Result<(), E> {
        let Some((last, shorter)) = parts.split_last() else {
            return Err(Error::from(Misplaced::here()).into());
        };
        // The sequence numbers that all parts read so far have.
        let mut common: Option<SeqFilter> = None;
        for part in shorter {
            let is_common = |seq| keep(seq) && common.as_ref().is_none_or(|set| set.admits(seq));
            common = Some(self.seqs(part, &is_common)?);
        }
        let is_common = |seq| keep(seq) && common.as_ref().is_none_or(|set| set.admits(seq));
        let mut ruled_out = SeqSet::new();
        for at in excluded {
            // What is not ruled out here, the condition rules out on the records.
            let SeqFilter::Exact(seqs) = self.seqs(&Lists::One(*at), &is_common)? else {
                continue;
            };
            if ruled_out.memory() + seqs.memory() > self.set_bytes() {
                self.is_exact.set(false);
                break;
            }
            ruled_out.add_all(&seqs);
        }
        let is_admitted = |seq| is_common(seq) && !ruled_out.contains(seq);
        self.each(last, &is_admitted, visit)
    }

    /// The bytes that a set of sequence numbers may take. Two exist at a time, and one of those
    /// that are ruled out.
    fn set_bytes(&self) -> usize {
        self.memory / 4
    }

    /// The sequence numbers that a combination has.
    fn seqs(&self, lists: &Lists, keep: &Keep<'_>) -> Result<SeqFilter> {
        let max_bytes = self.set_bytes();
        let max_gathered = (max_bytes / 16).clamp(1, MAX_GATHERED);
        let mut filter = SeqFilter::Exact(SeqSet::new());
        let mut gathered = Vec::with_capacity(max_gathered.min(1024));
        self.each::<Error>(lists, keep, &mut |_, seq| {
            gathered.push(seq);
            if gathered.len() >= max_gathered {
                filter.add_all(&mut gathered, max_bytes);
            }
            Ok(())
        })?;
        filter.add_all(&mut gathered, max_bytes);
        if let SeqFilter::Blurred(_) = filter {
            self.is_exact.set(false);
        }
        Ok(filter)
    }

    /// Visits the entries of the list of a constraint that `keep` admits, without those that are
    /// known to be obsolete.
    fn each_in_list<E: VisitError>(
        &self,
        at: usize,
        keep: &Keep<'_>,
        visit: &mut VisitKey<'_, E>,
    ) -> std::result::Result<(), E> {
        let context = self.context;
        let Source { attribute, ranges } = source_of(context, at)?;
        let index = attribute
            .index()
            .ok_or_else(|| Error::from(Misplaced::here()))?;
        let (mut entries, mut obsolete) = (0, 0);
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            // `each_entry` ignores the read-ahead for areas, so they need no estimate.
            let is_area = index.is_of_points() && !range.regions.is_empty();
            let is_large =
                !is_area && index.estimate(&self.lookup, attribute, range)? >= READAHEAD_ENTRIES;
            let readahead = if is_large { key_cursor::READAHEAD } else { 0 };
            let mut take = |_: &[u8], key: &[u8], seq| {
                entries += 1;
                if context.validity.is_obsolete(seq) {
                    obsolete += 1;
                    return Ok(());
                }
                if keep(seq) { visit(key, seq) } else { Ok(()) }
            };
            index::each_entry(&self.lookup, attribute, Some(range), readahead, &mut take)?;
        }
        let mut lists_read = self.lists_read.borrow_mut();
        match lists_read.iter_mut().find(|list| list.constraint == at) {
            // The list was read again, for another part of the combination.
            Some(list) => list.entries = entries,
            None => {
                lists_read.push(ListRead {
                    constraint: at,
                    entries,
                });
                if context.plan.driver.constraints().contains(&at) {
                    self.obsolete.set(self.obsolete.get() + obsolete);
                }
            }
        }
        Ok(())
    }
}

/// The index of a constraint, and the ranges to read from it.
struct Source<'a> {
    attribute: &'a Attribute,
    ranges: &'a [Range],
}

/// The source of the list of the constraint at `at`.
fn source_of(context: &Context, at: usize) -> Result<Source<'_>> {
    let constraint = context.compiled.constraints.item(at)?;
    Ok(Source {
        attribute: context.view.layout.attributes.item(constraint.attribute)?,
        // A plan reads indexes that can answer its constraints.
        ranges: constraint.sought().ok_or_else(|| Misplaced::here())?,
    })
}

/// Offers the entries of the list of the constraint at `at` to `best`.
pub(super) fn offer(context: &Context, at: usize, best: &mut BestCandidates) -> Result<()> {
    let Source { attribute, ranges } = source_of(context, at)?;
    let index = attribute.index().ok_or_else(|| Misplaced::here())?;
    let lookup = context.indexes();
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        index.candidates(&lookup, attribute, range, best)?;
    }
    Ok(())
}

/// The sequence numbers that a list has in a window.
struct WindowSeqs {
    constraint: usize,
    /// Ascending.
    seqs: Vec<Seq>,
}

/// Drops those candidates of a window of the base that the other lists rule out. The candidates are
/// in the order of the request.
pub(super) fn rule_out(
    context: &Context,
    combined: &Combined,
    candidates: &mut Vec<Candidate>,
    steps: &mut Steps,
) -> Result<()> {
    let order = context.request.order.recency();
    // If the base is one list, it has all candidates, and is not read again. If the base has
    // several lists, each may lack some candidates.
    let only_base = match combined.base() {
        [only] => Some(*only),
        _ => None,
    };
    let mut lists: Vec<WindowSeqs> = Vec::new();
    for at in combined.lists.constraints() {
        if Some(at) == only_base {
            continue;
        }
        let Some((window, among)) = SoughtWrites::with_window(order, candidates) else {
            // Without candidates there is nothing to rule out.
            return Ok(());
        };
        let mut best = BestCandidates::new(window).only(among);
        offer(context, at, &mut best)?;
        steps.listed += best.offered();
        lists.push(WindowSeqs {
            constraint: at,
            seqs: best.into_found()?,
        });
    }
    let before = candidates.len();
    candidates.retain(|candidate| {
        combined.lists.admits(&|at| {
            let in_list = |list: &WindowSeqs| list.seqs.binary_search(&candidate.seq).is_ok();
            // The constraints ascend.
            let list = lists.binary_search_by_key(&at, |list| list.constraint);
            let list = list.ok().and_then(|found| lists.get(found));
            Some(at) == only_base || list.is_some_and(in_list)
        })
    });
    steps.ruled_out += (before - candidates.len()) as u64;
    Ok(())
}

impl Context {
    /// The lists of the driver, if all are those of stand-alone indexes, and can be read whole.
    pub(super) fn whole_lists(&self) -> Result<Option<Lists>> {
        let is_standalone = |driving: DrivingIndex<'_>| driving.attribute.kind.is_standalone();
        match self.plan.driver.single() {
            Some(at) if self.driving_index().is_some_and(is_standalone) => Ok(Some(Lists::One(at))),
            _ => self.lists_without_records(),
        }
    }

    /// The lists of the driver, if all are those of stand-alone indexes whose entries do not
    /// contain the record. Many values of a union are looked up one by one instead.
    fn lists_without_records(&self) -> Result<Option<Lists>> {
        let lists = match &self.plan.driver {
            Driver::Index(at) => Lists::One(*at),
            Driver::Union(all) => {
                let mut ranges = 0;
                for at in all {
                    ranges += source_of(self, *at)?.ranges.len();
                }
                if ranges > MAX_RANGES {
                    return Ok(None);
                }
                Lists::Any(all.iter().copied().map(Lists::One).collect())
            }
            Driver::Combined(combined) => combined.lists.clone(),
            Driver::Scan => return Ok(None),
        };
        for at in lists.constraints() {
            let attribute = source_of(self, at)?.attribute;
            if !attribute.kind.is_standalone() || attribute.brings_records() {
                return Ok(None);
            }
        }
        Ok(Some(lists))
    }
}
