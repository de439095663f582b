//! Which index drives a query, or which several together: what is expected to make the least work.
//!
//! A test of an indexed attribute that every match meets can drive: all matches are among what its index gives. So
//! can an `or` of whose every branch something can drive: the matches are among what these give together.

use esker_model::condition::Formula;

use super::predicate::{Predicate, Predicates};
use crate::catalog::{Attribute, Layout};
use crate::error::Result;
use crate::index::{self, Index, Lookup, Range};

/// How candidates are found. Predicates are known by their places among the declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Driver {
    /// By the index of the attribute of this predicate, probed for one range.
    Index(usize),
    /// By the indexes of these predicates, probed for each of their ranges.
    Union(Vec<usize>),
    /// By reading every record.
    Scan,
}

impl Driver {
    /// The predicates whose indexes are probed.
    pub(super) fn predicates(&self) -> &[usize] {
        match self {
            Driver::Index(at) => std::slice::from_ref(at),
            Driver::Union(all) => all,
            Driver::Scan => &[],
        }
    }

    /// The one predicate whose index is probed.
    pub(super) fn single(&self) -> Option<usize> {
        match self {
            Driver::Index(at) => Some(*at),
            Driver::Union(_) | Driver::Scan => None,
        }
    }
}

/// A driver, and what was expected of each index that could have been.
pub(super) struct Plan {
    pub(super) driver: Driver,
    /// (predicate, expected candidates) of those that were compared.
    pub(super) compared: Vec<(usize, u64)>,
}

/// The index that can be asked about a predicate, its attribute, and what for.
pub(super) fn probe<'a>(
    layout: &'a Layout,
    predicate: &'a Predicate,
) -> Option<(&'static dyn Index, &'a Attribute, &'a [Range])> {
    let attribute = layout.attributes.get(predicate.attribute)?;
    let sought = predicate.sought()?;
    Some((index::of(attribute.kind)?, attribute, sought))
}

/// The attributes whose indexes can be probed for one range about conditions that every match meets, and which.
pub(super) fn indexed<'a>(
    layout: &'a Layout,
    predicates: &'a Predicates,
) -> impl Iterator<Item = (&'a Attribute, &'a Range)> {
    predicates.conjuncts().filter_map(|predicate| {
        let (_, attribute, _) = probe(layout, predicate)?;
        Some((attribute, predicate.sought_range()?))
    })
}

pub(super) fn choose(lookup: &Lookup<'_>, predicates: &Predicates) -> Result<Plan> {
    let mut planner = Planner {
        lookup,
        predicates,
        compared: Vec::new(),
    };
    let choice = match predicates.formula() {
        None => Choice::None,
        Some(_) if predicates.keys.are_few() => Choice::None,
        Some(formula) => match planner.choices_of(formula) {
            // Only now it matters which is the best.
            Choice::Several => planner
                .best(formula)?
                .map_or(Choice::None, |(_, all)| Choice::One(all)),
            choice => choice,
        },
    };
    let one_range = |at: usize| {
        let predicate = predicates.declared.get(at)?;
        predicate.sought_range().map(|_| at)
    };
    let driver = match choice {
        Choice::One(all) => match all.as_slice() {
            [only] if one_range(*only).is_some() => Driver::Index(*only),
            _ => Driver::Union(all),
        },
        Choice::None | Choice::Several => Driver::Scan,
    };
    let compared = planner.compared;
    Ok(Plan { driver, compared })
}

/// What could drive a formula, without a look at any index.
enum Choice {
    None,
    One(Vec<usize>),
    Several,
}

/// What is asked of place and time together has fewer matches than what is asked of one of them, and the index over both sees
/// that without a record. It comes in more ranges, and estimates count a part of a block for each: so it is taken in doubt.
const IN_DOUBT: f64 = 4.0;

/// Data blocks that may be read for the estimate of a test.
const LOOKS: u32 = 1;

struct Planner<'a> {
    lookup: &'a Lookup<'a>,
    predicates: &'a Predicates,
    compared: Vec<(usize, u64)>,
}

impl Planner<'_> {
    fn probed(&self, test: usize) -> Option<(usize, &Predicate)> {
        let at = self.predicates.place(test)?;
        let predicate = self.predicates.declared.get(at)?;
        probe(self.lookup.layout, predicate)?;
        Some((at, predicate))
    }

    /// The choices for the whole condition.
    fn choices_of(&self, formula: &Formula) -> Choice {
        let mut found = self.choices(formula);
        for at in self.predicates.implied() {
            found = match found {
                Choice::None => Choice::One(vec![at]),
                _ => Choice::Several,
            };
        }
        found
    }

    /// The best choice for the whole condition.
    fn best(&mut self, formula: &Formula) -> Result<Option<(f64, Vec<usize>)>> {
        let mut least = self.cheapest(formula)?;
        for at in self.predicates.implied() {
            if let Some(found) = self.estimate_of(at)?
                && least
                    .as_ref()
                    .is_none_or(|(cost, _)| found.0 <= IN_DOUBT * *cost)
            {
                least = Some(found);
            }
        }
        Ok(least)
    }

    fn choices(&self, formula: &Formula) -> Choice {
        match formula {
            Formula::Test(test) => match self.probed(*test) {
                Some((at, _)) => Choice::One(vec![at]),
                None => Choice::None,
            },
            Formula::Not(_) => Choice::None,
            Formula::And(parts) => {
                let mut found = Choice::None;
                for part in parts {
                    found = match (found, self.choices(part)) {
                        (one, Choice::None) => one,
                        (Choice::None, one) => one,
                        _ => return Choice::Several,
                    };
                }
                found
            }
            Formula::Or(parts) => {
                let (mut all, mut several) = (Vec::new(), false);
                for part in parts {
                    match self.choices(part) {
                        Choice::None => return Choice::None,
                        Choice::One(more) => all.extend(more),
                        Choice::Several => several = true,
                    }
                }
                match several {
                    true => Choice::Several,
                    false => Choice::One(all),
                }
            }
        }
    }

    /// The predicates whose indexes give all matches of a formula for the least work, and that work.
    fn cheapest(&mut self, formula: &Formula) -> Result<Option<(f64, Vec<usize>)>> {
        match formula {
            Formula::Test(test) => self.estimate(*test),
            Formula::Not(_) => Ok(None),
            Formula::And(parts) => {
                let mut least: Option<(f64, Vec<usize>)> = None;
                for part in parts {
                    if let Some((cost, all)) = self.cheapest(part)?
                        && least.as_ref().is_none_or(|(least, _)| cost < *least)
                    {
                        least = Some((cost, all));
                    }
                }
                Ok(least)
            }
            Formula::Or(parts) => {
                if matches!(self.choices(formula), Choice::None) {
                    return Ok(None);
                }
                let mut sum = (0.0, Vec::new());
                for part in parts {
                    let Some((cost, all)) = self.cheapest(part)? else {
                        return Ok(None);
                    };
                    sum.0 += cost;
                    sum.1.extend(all);
                }
                Ok(Some(sum))
            }
        }
    }

    fn estimate(&mut self, test: usize) -> Result<Option<(f64, Vec<usize>)>> {
        match self.probed(test) {
            Some((at, _)) => self.estimate_of(at),
            None => Ok(None),
        }
    }

    fn estimate_of(&mut self, at: usize) -> Result<Option<(f64, Vec<usize>)>> {
        let Some(predicate) = self.predicates.declared.get(at) else {
            return Ok(None);
        };
        let Some((index, attribute, sought)) = probe(self.lookup.layout, predicate) else {
            return Ok(None);
        };
        self.lookup.looks.renew(LOOKS);
        let (mut expected, mut cost) = (0, 0.0);
        for range in sought.iter().filter(|range| !range.is_empty()) {
            let some = index.estimate(self.lookup, attribute, range)?;
            cost += index.work(self.lookup, attribute, range, some)?;
            expected += some;
        }
        self.compared.push((at, expected));
        Ok(Some((cost, vec![at])))
    }
}
