//! The indexes that drive a query: those with the least expected work.
//!
//! The index of an attribute can drive if every match satisfies a test of the attribute: all
//! matches are among the candidates of the index. An `or` can be driven if each of its branches
//! can: the matches are among the candidates of all branches.

use super::{Compiled, Driver, Estimate, Shape};
use crate::condition::Formula;

/// A driver, and the estimates that led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The source of candidates.
    pub driver: Driver,
    /// The constraints whose indexes were compared, each with its expected candidates.
    pub compared: Vec<(usize, u64)>,
}

impl Plan {
    /// The plan with the least expected work. Indexes are compared only if several can drive.
    ///
    /// # Errors
    /// Errors of the estimates.
    pub fn choose<S: Estimate>(
        shape: &Shape,
        compiled: &Compiled,
        estimates: &mut S,
    ) -> Result<Plan, S::Error> {
        let mut planner = Planner {
            shape,
            compiled,
            estimates,
            compared: Vec::new(),
        };
        let choice = match compiled.formula() {
            None => Choice::None,
            Some(_) if compiled.keys.are_few() => Choice::None,
            Some(formula) => match planner.choices_of(formula) {
                Choice::Several => planner
                    .best(formula)?
                    .map_or(Choice::None, |(_, all)| Choice::One(all)),
                choice => choice,
            },
        };
        let compared = planner.compared;
        let has_one_range = |at: usize| {
            let constraint = compiled.constraints.get(at);
            constraint.is_some_and(|constraint| constraint.sought_range().is_some())
        };
        let driver = match choice {
            Choice::One(all) => match all.as_slice() {
                [only] if has_one_range(*only) => Driver::Index(*only),
                _ => Driver::Union(all),
            },
            Choice::None | Choice::Several => Driver::Scan,
        };
        Ok(Plan { driver, compared })
    }
}

/// The constraints that could drive a formula, before any estimate.
enum Choice {
    None,
    One(Vec<usize>),
    Several,
}

/// The index over place and time is preferred up to this ratio of expected work. It gives fewer
/// candidates than an index over one of the two, but reads more ranges, and an estimate counts at
/// least a part of a block for each range.
const IN_DOUBT: f64 = 4.0;

struct Planner<'a, S> {
    shape: &'a Shape,
    compiled: &'a Compiled,
    estimates: &'a mut S,
    compared: Vec<(usize, u64)>,
}

impl<S: Estimate> Planner<'_, S> {
    /// The constraint of a test, if an index can be read for it.
    fn driving(&self, test: usize) -> Option<usize> {
        let at = self.compiled.place(test)?;
        let constraint = self.compiled.constraints.get(at)?;
        constraint.can_drive(self.shape).then_some(at)
    }

    /// The choices for the whole condition.
    fn choices_of(&self, formula: &Formula) -> Choice {
        let mut found = self.choices(formula);
        for at in self.compiled.implied() {
            found = match found {
                Choice::None => Choice::One(vec![at]),
                _ => Choice::Several,
            };
        }
        found
    }

    /// The best choice for the whole condition.
    fn best(&mut self, formula: &Formula) -> Result<Option<(f64, Vec<usize>)>, S::Error> {
        let mut least = self.cheapest(formula)?;
        for at in self.compiled.implied() {
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
            Formula::Test(test) => match self.driving(*test) {
                Some(at) => Choice::One(vec![at]),
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
                if several {
                    Choice::Several
                } else {
                    Choice::One(all)
                }
            }
        }
    }

    /// The constraints whose indexes give all matches of a formula for the least work, and that
    /// work.
    fn cheapest(&mut self, formula: &Formula) -> Result<Option<(f64, Vec<usize>)>, S::Error> {
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

    fn estimate(&mut self, test: usize) -> Result<Option<(f64, Vec<usize>)>, S::Error> {
        match self.driving(test) {
            Some(at) => self.estimate_of(at),
            None => Ok(None),
        }
    }

    fn estimate_of(&mut self, at: usize) -> Result<Option<(f64, Vec<usize>)>, S::Error> {
        let constraint = self.compiled.constraints.get(at);
        let Some((constraint, sought)) = constraint
            .filter(|constraint| constraint.can_drive(self.shape))
            .and_then(|constraint| Some((constraint, constraint.sought()?)))
        else {
            return Ok(None);
        };
        let expected = self.estimates.expect(constraint.attribute, sought)?;
        self.compared.push((at, expected.candidates));
        Ok(Some((expected.work, vec![at])))
    }
}
