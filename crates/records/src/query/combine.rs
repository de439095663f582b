//! Index entries that rule each other out before a record is read ([`Lists`]).
//!
//! For large answers, lists are read whole ([`Whole`]): the numbers of the shorter ones are
//! gathered in sets, and the longest one is passed on as far as the sets admit it, with the keys.
//! If a set takes more than its share of the memory, the first list is passed on as it is: the
//! records decide then.
//!
//! For pages ([`rule_out`]), the base gives a window of candidates, and the other lists are read
//! for the numbers between its first and its last candidate only. So a query for a few records
//! reads little of long lists, as far as their types can stop early.

use std::cell::{Cell, RefCell};

use esker_lsm::coding::{Misplaced, Own};
use esker_lsm::{Seq, SeqSet};
use esker_model::query::{Combined, Driver, Lists};

use super::explain::Steps;
use super::key_cursor;
use super::run::Context;
use crate::error::{Error, Result};
use crate::index::{self, Attribute, BestCandidates, Candidate, Lookup, Range, SoughtWrites};

/// A range with fewer entries than this is read block by block.
const READAHEAD_ENTRIES: u64 = 10_000;

/// The most numbers that are gathered before they go into a set.
const GATHERED: usize = 64 << 10;

/// The most ranges of a union that are read whole: a cursor for each costs more than a lookup, if
/// most of them are empty.
const MOST_RANGES: usize = 16;

/// Receives key and number of an entry.
pub(super) type VisitKey<'v> = dyn FnMut(&[u8], Seq) -> Result<()> + 'v;

/// Tells whether the entry of a write may be wanted.
type Keep<'k> = dyn Fn(Seq) -> bool + 'k;

/// Lists that are read whole.
pub(super) struct Whole<'a> {
    context: &'a Context,
    lookup: Lookup<'a>,
    /// Bytes that the sets of numbers may take.
    room: usize,
    /// The entries of each list that was read to its end.
    found: RefCell<Vec<(usize, u64)>>,
    obsolete: Cell<u64>,
    visited: Cell<u64>,
    is_exact: Cell<bool>,
}

/// What [`Whole`] has found out.
pub(super) struct ListsRead {
    /// The constraints whose lists were read to their ends, and the entries of each.
    pub(super) found: Vec<(usize, u64)>,
    /// False if entries were passed on that the combination does not have.
    pub(super) is_exact: bool,
}

impl<'a> Whole<'a> {
    pub(super) fn new(context: &'a Context, room: usize) -> Whole<'a> {
        Whole {
            context,
            lookup: context.indexes(),
            room,
            found: RefCell::default(),
            obsolete: Cell::new(0),
            visited: Cell::new(0),
            is_exact: Cell::new(true),
        }
    }

    /// About how many entries the lists of these constraints have.
    pub(super) fn expected(&self, constraints: &[usize]) -> Result<u64> {
        let mut expected = 0;
        for at in constraints {
            let Listed { attribute, sought } = listed(self.context, *at)?;
            let index = attribute.index().ok_or_else(Misplaced::here)?;
            for range in sought.iter().filter(|range| !range.is_empty()) {
                expected += index.estimate(&self.lookup, attribute, range)?;
            }
        }
        Ok(expected)
    }

    /// Passes the entries of the combination to `visit`, without those that are known to be
    /// obsolete. An entry may come several times.
    pub(super) fn run(
        self,
        lists: &Lists,
        steps: &mut Steps,
        visit: &mut VisitKey<'_>,
    ) -> Result<ListsRead> {
        let mut count = |key: &[u8], seq: Seq| {
            self.visited.set(self.visited.get() + 1);
            visit(key, seq)
        };
        self.each(lists, &|_| true, &mut count)?;
        let (base, found) = (lists.base(), self.found.into_inner());
        let of = |is_base: bool| {
            let lists = found.iter().filter(|(at, _)| base.contains(at) == is_base);
            lists.map(|(_, entries)| entries).sum::<u64>()
        };
        let (candidates, obsolete) = (of(true), self.obsolete.get());
        steps.rounds += 1;
        steps.candidates += candidates;
        steps.obsolete += obsolete;
        steps.listed += of(false);
        steps.ruled_out += candidates.saturating_sub(obsolete + self.visited.get());
        Ok(ListsRead {
            found,
            is_exact: self.is_exact.get(),
        })
    }

    fn each(&self, lists: &Lists, keep: &Keep<'_>, visit: &mut VisitKey<'_>) -> Result<()> {
        match lists {
            Lists::One(at) => self.list(*at, keep, visit),
            Lists::Any(parts) => parts
                .iter()
                .try_for_each(|part| self.each(part, keep, visit)),
            Lists::All { of, but } => self.all(of, but, keep, visit),
        }
    }

    fn all(
        &self,
        of: &[Lists],
        but: &[usize],
        keep: &Keep<'_>,
        visit: &mut VisitKey<'_>,
    ) -> Result<()> {
        let Some((last, shorter)) = of.split_last() else {
            return Ok(());
        };
        let mut both: Option<SeqSet> = None;
        for part in shorter {
            let in_both = |seq| keep(seq) && both.as_ref().is_none_or(|set| set.contains(seq));
            let Some(numbers) = self.numbers(part, &in_both)? else {
                let first = of.first().unwrap_or(last);
                return self.each(first, keep, visit);
            };
            both = Some(numbers);
        }
        let in_both = |seq| keep(seq) && both.as_ref().is_none_or(|set| set.contains(seq));
        let mut out = SeqSet::new();
        for at in but {
            if let Some(numbers) = self.numbers(&Lists::One(*at), &in_both)? {
                out.add_all(&numbers);
            }
        }
        self.each(last, &|seq| in_both(seq) && !out.contains(seq), visit)
    }

    /// The numbers that a combination has; `None` if they take too much memory.
    fn numbers(&self, lists: &Lists, keep: &Keep<'_>) -> Result<Option<SeqSet>> {
        // Two sets are there at a time, and one of what is taken out.
        let room = self.room / 4;
        let most = (room / 16).clamp(1, GATHERED);
        let (mut set, mut gathered) = (SeqSet::new(), Vec::with_capacity(most.min(1024)));
        let mut is_full = false;
        let walked = self.each(lists, keep, &mut |_, seq| {
            gathered.push(seq);
            if gathered.len() < most {
                return Ok(());
            }
            // In the order of numbers, so that none moves the larger ones in the set.
            gathered.sort_unstable();
            set.extend(gathered.drain(..));
            is_full = set.memory() > room;
            if is_full {
                return Err(Error::bad_input("broken off"));
            }
            Ok(())
        });
        if is_full {
            self.is_exact.set(false);
            return Ok(None);
        }
        walked?;
        gathered.sort_unstable();
        set.extend(gathered);
        Ok(Some(set))
    }

    /// Visits the entries of a list.
    fn list(&self, at: usize, keep: &Keep<'_>, visit: &mut VisitKey<'_>) -> Result<()> {
        let context = self.context;
        let Listed { attribute, sought } = listed(context, at)?;
        let index = attribute.index().ok_or_else(Misplaced::here)?;
        let (mut entries, mut obsolete) = (0, 0);
        for range in sought.iter().filter(|range| !range.is_empty()) {
            // Areas are read block by block.
            let is_area = index.is_of_points() && !range.regions.is_empty();
            let many =
                !is_area && index.estimate(&self.lookup, attribute, range)? >= READAHEAD_ENTRIES;
            let readahead = if many { key_cursor::READAHEAD } else { 0 };
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
        let mut found = self.found.borrow_mut();
        match found.iter_mut().find(|(other, _)| *other == at) {
            // Read again.
            Some((_, before)) => *before = entries,
            None => {
                found.push((at, entries));
                if context.plan.driver.constraints().contains(&at) {
                    self.obsolete.set(self.obsolete.get() + obsolete);
                }
            }
        }
        Ok(())
    }
}

/// The index of a constraint, and the ranges to read from it.
struct Listed<'a> {
    attribute: &'a Attribute,
    sought: &'a [Range],
}

fn listed(context: &Context, at: usize) -> Result<Listed<'_>> {
    let constraint = context.compiled.constraints.item(at)?;
    Ok(Listed {
        attribute: context.view.layout.attributes.item(constraint.attribute)?,
        // A plan reads indexes that can answer its constraints.
        sought: constraint.sought().ok_or_else(Misplaced::here)?,
    })
}

/// Offers the entries of a list to `best`.
pub(super) fn offer(context: &Context, at: usize, best: &mut BestCandidates) -> Result<()> {
    let Listed { attribute, sought } = listed(context, at)?;
    let index = attribute.index().ok_or_else(Misplaced::here)?;
    let lookup = context.indexes();
    for range in sought.iter().filter(|range| !range.is_empty()) {
        index.candidates(&lookup, attribute, range, best)?;
    }
    Ok(())
}

/// Drops those candidates of a window of the base, in order, that the other lists rule out.
pub(super) fn rule_out(
    context: &Context,
    combined: &Combined,
    candidates: &mut Vec<Candidate>,
    steps: &mut Steps,
) -> Result<()> {
    let order = context.request.order.recency();
    // A base of several lists does not tell which of them has a candidate.
    let known = match combined.base() {
        [only] => Some(*only),
        _ => None,
    };
    let mut lists: Vec<(usize, Vec<Seq>)> = Vec::new();
    for at in combined.lists.constraints() {
        if Some(at) == known {
            continue;
        }
        let Some((window, among)) = SoughtWrites::of(order, candidates) else {
            return Ok(());
        };
        let mut best = BestCandidates::new(window).only(among);
        offer(context, at, &mut best)?;
        steps.listed += best.offered();
        let (found, _) = best.finish();
        let mut numbers: Vec<Seq> = found.into_iter().map(|candidate| candidate.seq).collect();
        numbers.sort_unstable();
        lists.push((at, numbers));
    }
    let before = candidates.len();
    candidates.retain(|candidate| {
        combined.lists.admits(&|at| {
            let list = lists.iter().find(|(other, _)| *other == at);
            list.is_none_or(|(_, numbers)| numbers.binary_search(&candidate.seq).is_ok())
        })
    });
    steps.ruled_out += (before - candidates.len()) as u64;
    Ok(())
}

impl Context {
    /// The lists of the driver, if all are those of stand-alone indexes.
    pub(super) fn whole_lists(&self) -> Option<Lists> {
        let driving = self.driving_index();
        let at = self.plan.driver.single();
        let alone = at.filter(|_| driving.is_some_and(|(a, _)| a.kind.is_standalone()));
        alone.map(Lists::One).or_else(|| self.lists())
    }

    /// The lists of the driver, if all are those of stand-alone indexes without records. Many
    /// values are looked up one by one instead.
    fn lists(&self) -> Option<Lists> {
        let lists = match &self.plan.driver {
            Driver::Index(at) => Lists::One(*at),
            Driver::Union(all) => {
                let sought = all.iter().filter_map(|at| listed(self, *at).ok());
                let ranges = sought.map(|listed| listed.sought.len()).sum::<usize>();
                if ranges > MOST_RANGES {
                    return None;
                }
                Lists::Any(all.iter().copied().map(Lists::One).collect())
            }
            Driver::Combined(combined) => combined.lists.clone(),
            Driver::Scan => return None,
        };
        let is_list = |at: &usize| {
            let attribute = listed(self, *at).map(|listed| listed.attribute);
            attribute.is_ok_and(|a| a.kind.is_standalone() && !a.brings_records())
        };
        lists.constraints().iter().all(is_list).then_some(lists)
    }
}
