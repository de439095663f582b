//! The indexes that drive a query: those with the least expected work.
//!
//! The index of an attribute can drive if every match satisfies a test of the attribute: all
//! matches are among the candidates of the index. An `or` can be driven if each of its branches
//! can: the matches are among the candidates of all branches.
//!
//! The parts of an `and` that can drive can also rule out each other's candidates, before records
//! are read ([`Lists`]): the shortest list is taken, and a further one is read as well if that
//! costs less than half of what it is expected to save. What is left of two lists is expected as if
//! the conditions were independent. If they are not, it may save nothing: then the query takes at
//! most half as long again as with one index. Negations are taken out in the same way.

use std::collections::BTreeMap;

use super::compiled::{conjuncts_of, scope_of};
use super::lists::{Combined, Lists};
use super::{Compiled, Driver, Estimate, Plan, Shape, Weighed};
use crate::condition::Formula;

impl Plan {
    /// The plan with the least expected work. Indexes are compared only if several can drive, or
    /// can rule out candidates.
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
            weighed: Vec::new(),
            records: None,
            expected: BTreeMap::new(),
        };
        let choice = match compiled.formula() {
            None => Choice::None,
            Some(_) if compiled.keys.are_few() => Choice::None,
            Some(formula) => match planner.choices_of(formula)? {
                Choice::Several => planner.best(formula)?,
                choice => choice,
            },
        };
        let driver = match choice {
            Choice::One(all) => planner.union(all),
            Choice::Combined(combined) => Driver::Combined(combined),
            Choice::None | Choice::Several => Driver::Scan,
        };
        planner.finish(driver)
    }
}

/// What could drive a formula.
enum Choice {
    None,
    One(Vec<usize>),
    Combined(Combined),
    /// It depends on estimates.
    Several,
}

/// The index over place and time is preferred up to this ratio of expected work. It gives fewer
/// candidates than an index over one of the two, but reads more ranges, and an estimate counts at
/// least a part of a block for each range.
const IN_DOUBT: f64 = 4.0;

/// A list is read beside another one if it is expected to save this many times what it costs.
const SAVES: f64 = 2.0;

/// Work below which no list is read beside another one, nor estimated only for that.
const LITTLE: f64 = 50.0;

/// The ways without those that rule out nothing that another one of them has.
fn without_implied(ways: Vec<Way>) -> Vec<Way> {
    let mut left: Vec<Way> = Vec::new();
    for way in ways {
        if left.iter().any(|other| way.is_implied_by(other)) {
            continue;
        }
        left.retain(|other| !other.is_implied_by(&way));
        left.push(way);
    }
    left
}

struct Planner<'a, S> {
    shape: &'a Shape,
    compiled: &'a Compiled,
    estimates: &'a mut S,
    compared: Vec<(usize, u64)>,
    weighed: Vec<Weighed>,
    /// The number of records, when it was asked for.
    records: Option<Option<u64>>,
    /// By constraint, the expected work of its index, and its list.
    expected: BTreeMap<usize, Option<(f64, Option<Way>)>>,
}

/// Ways to drive a formula.
struct Ways {
    /// By single indexes, one for each branch, and their work.
    single: (f64, Vec<usize>),
    /// By lists; `None` if one of the indexes cannot be combined.
    lists: Option<Way>,
    /// By lists of which the last one costs more than it saves.
    too_much: Option<Way>,
}

/// Lists that drive a formula, and what they are expected to take.
#[derive(Clone)]
struct Way {
    of: Vec<Lists>,
    but: Vec<usize>,
    /// Tests that the records of all entries meet, as far as they are current.
    tests: Vec<usize>,
    /// True if the entries are of branches of an `or`, and so meet that, too.
    has_branches: bool,
    /// The expected entries of the base, and those that are left.
    begins: f64,
    candidates: f64,
    /// The work of reading the lists, and that of reading a record.
    listing: f64,
    fetch: f64,
}

impl Way {
    fn work(&self) -> f64 {
        self.listing + self.candidates * self.fetch
    }

    /// True if the entries of the other way meet all that the entries of this one do.
    fn is_implied_by(&self, other: &Way) -> bool {
        !self.has_branches && self.tests.iter().all(|test| other.tests.contains(test))
    }

    fn lists(&self) -> Lists {
        match (self.of.as_slice(), self.but.as_slice()) {
            ([only], []) => only.clone(),
            (of, but) => Lists::All {
                of: of.to_vec(),
                but: but.to_vec(),
            },
        }
    }

    fn combined(&self) -> Combined {
        let ratio = (self.begins / self.candidates.max(1.0)).max(1.0);
        Combined::new(self.lists(), ratio as u64)
    }

    fn weighed(&self) -> Weighed {
        Weighed {
            driver: Driver::Combined(self.combined()),
            candidates: self.candidates.ceil() as u64,
            work: Some(self.work()),
        }
    }

    /// Counts a further list, which is expected to leave a share of the candidates. Returns true if
    /// it saves enough.
    fn narrow(&mut self, share: f64, listing: f64) -> bool {
        let left = self.candidates * share.clamp(0.0, 1.0);
        let saved = (self.candidates - left) * self.fetch;
        self.candidates = left;
        self.listing += listing;
        saved > SAVES * listing
    }
}

impl<S: Estimate> Planner<'_, S> {
    /// The plan with this driver.
    fn finish(mut self, driver: Driver) -> Result<Plan, S::Error> {
        let is_weighed = self.weighed.iter().any(|weighed| weighed.driver == driver);
        let mut weighed = std::mem::take(&mut self.weighed);
        if !is_weighed {
            weighed.clear();
        } else if let Some(candidates) = self.records()? {
            weighed.push(Weighed {
                driver: Driver::Scan,
                candidates,
                work: None,
            });
        }
        Ok(Plan {
            driver,
            compared: self.compared,
            weighed,
        })
    }

    /// The driver that reads the indexes of these constraints.
    fn union(&self, all: Vec<usize>) -> Driver {
        let has_one_range = |at: usize| {
            let constraint = self.compiled.constraints.get(at);
            constraint.is_some_and(|constraint| constraint.sought_range().is_some())
        };
        match all.as_slice() {
            [only] if has_one_range(*only) => Driver::Index(*only),
            _ => Driver::Union(all),
        }
    }

    fn records(&mut self) -> Result<Option<u64>, S::Error> {
        let records = match self.records {
            Some(records) => records,
            None => self.estimates.records()?,
        };
        self.records = Some(records);
        Ok(records)
    }

    /// The constraint of a test, if an index can be read for it.
    fn driving(&self, test: usize) -> Option<usize> {
        let at = self.compiled.place(test)?;
        let constraint = self.compiled.constraints.get(at)?;
        constraint.can_drive(self.shape).then_some(at)
    }

    /// The choices for the whole condition.
    fn choices_of(&mut self, formula: &Formula) -> Result<Choice, S::Error> {
        let mut found = self.choices(formula, &[]);
        let is_one = matches!(found, Choice::One(_));
        if is_one && self.negates(formula) && self.records()?.is_some() {
            found = Choice::Several;
        }
        Ok(found)
    }

    /// True if a negation may rule out candidates somewhere.
    fn negates(&self, formula: &Formula) -> bool {
        match formula {
            Formula::And(parts) => {
                !self.negated(formula).is_empty() || parts.iter().any(|part| self.negates(part))
            }
            Formula::Or(parts) => parts.iter().any(|part| self.negates(part)),
            Formula::Test(_) | Formula::Not(_) => false,
        }
    }

    /// The constraints that no match of an `and` meets, if their entries alone show who meets them.
    fn negated(&self, formula: &Formula) -> Vec<usize> {
        let parts = match formula {
            Formula::And(parts) => parts.as_slice(),
            _ => &[],
        };
        let tests = parts.iter().flat_map(|part| match part {
            Formula::Not(inner) => match inner.as_ref() {
                Formula::Or(parts) => parts.as_slice(),
                one => std::slice::from_ref(one),
            },
            _ => &[],
        });
        let places = tests.filter_map(|test| match test {
            Formula::Test(test) => self.driving(*test),
            _ => None,
        });
        let is_answered = |at: &usize| {
            let constraint = self.compiled.constraints.get(*at);
            constraint.is_some_and(|constraint| constraint.answered)
        };
        places.filter(is_answered).collect()
    }

    /// The choices for a part of the condition; every match of it satisfies the inherited tests,
    /// too.
    fn choices(&self, part: &Formula, inherited: &[usize]) -> Choice {
        match part {
            Formula::Not(_) => Choice::None,
            Formula::Test(_) | Formula::And(_) => {
                let scope = scope_of(part, inherited);
                let parts = conjuncts_of(part).iter().map(|part| match part {
                    Formula::Test(test) => match self.driving(*test) {
                        Some(at) => Choice::One(vec![at]),
                        None => Choice::None,
                    },
                    part => self.choices(part, &scope),
                });
                let implied = self.compiled.implied_in(&scope, inherited);
                let implied = implied.map(|implied| Choice::One(vec![implied.place]));
                let mut found = Choice::None;
                for one in parts.chain(implied) {
                    found = match (found, one) {
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
                    match self.choices(part, inherited) {
                        Choice::None => return Choice::None,
                        Choice::One(more) => all.extend(more),
                        Choice::Several | Choice::Combined(_) => several = true,
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

    /// The best choice for the whole condition.
    fn best(&mut self, formula: &Formula) -> Result<Choice, S::Error> {
        let Some(ways) = self.ways(formula, &[])? else {
            return Ok(Choice::None);
        };
        let Ways {
            single: (least, all),
            lists,
            too_much,
        } = ways;
        if all.len() > 1 {
            let candidates = |at: &usize| {
                let mut compared = self.compared.iter();
                compared.find(|(other, _)| other == at).map(|(_, n)| *n)
            };
            let weighed = Weighed {
                driver: self.union(all.clone()),
                candidates: all.iter().filter_map(candidates).sum(),
                work: Some(least),
            };
            self.weighed.push(weighed);
        }
        self.weighed.extend(too_much.map(|way| way.weighed()));
        if let Some(way) = lists.filter(|way| way.lists().rules_out()) {
            self.weighed.push(way.weighed());
            if way.work() < least {
                return Ok(Choice::Combined(way.combined()));
            }
        }
        Ok(Choice::One(all))
    }

    /// The ways to drive a part of the condition; `None` if no index can.
    fn ways(&mut self, part: &Formula, inherited: &[usize]) -> Result<Option<Ways>, S::Error> {
        match part {
            Formula::Not(_) => Ok(None),
            Formula::Test(_) | Formula::And(_) => self.ways_of_all(part, inherited),
            Formula::Or(parts) => {
                if matches!(self.choices(part, inherited), Choice::None) {
                    return Ok(None);
                }
                self.ways_of_any(parts, inherited)
            }
        }
    }

    fn ways_of_any(
        &mut self,
        parts: &[Formula],
        inherited: &[usize],
    ) -> Result<Option<Ways>, S::Error> {
        let (mut work, mut all, mut ways) = (0.0, Vec::new(), Some(Vec::new()));
        for part in parts {
            let Some(of_part) = self.ways(part, inherited)? else {
                return Ok(None);
            };
            work += of_part.single.0;
            all.extend(of_part.single.1);
            match (&mut ways, of_part.lists) {
                (Some(ways), Some(way)) => ways.push(way),
                _ => ways = None,
            }
        }
        let in_all = |test: &usize, ways: &[Way]| ways.iter().all(|way| way.tests.contains(test));
        let lists = ways.map(|ways| Way {
            of: vec![Lists::Any(ways.iter().map(Way::lists).collect())],
            but: Vec::new(),
            tests: match ways.first() {
                Some(first) => first
                    .tests
                    .iter()
                    .copied()
                    .filter(|t| in_all(t, &ways))
                    .collect(),
                None => Vec::new(),
            },
            has_branches: true,
            begins: ways.iter().map(|way| way.begins).sum(),
            candidates: ways.iter().map(|way| way.candidates).sum(),
            listing: ways.iter().map(|way| way.listing).sum(),
            fetch: ways.iter().map(|way| way.fetch).fold(0.0, f64::max),
        });
        Ok(Some(Ways {
            single: (work, all),
            lists,
            too_much: None,
        }))
    }

    fn ways_of_all(
        &mut self,
        part: &Formula,
        inherited: &[usize],
    ) -> Result<Option<Ways>, S::Error> {
        let scope = scope_of(part, inherited);
        let mut single: Option<(f64, Vec<usize>)> = None;
        let mut ways: Vec<Way> = Vec::new();
        for part in conjuncts_of(part) {
            let of_part = match part {
                Formula::Test(test) => self.ways_of_test(*test)?,
                part => self.ways(part, &scope)?,
            };
            let Some(of_part) = of_part else { continue };
            let least = single.as_ref().map(|(least, _)| *least);
            if least.is_none_or(|least| of_part.single.0 < least) {
                single = Some(of_part.single);
            }
            ways.extend(of_part.lists);
        }
        // What is combined: the parts, or the parts and what follows from some of them.
        let mut alternatives = vec![ways.clone()];
        let compiled = self.compiled;
        for implied in compiled.implied_in(&scope, inherited) {
            let Some((work, way)) = self.expect(implied.place)? else {
                continue;
            };
            let in_doubt = self.in_doubt(implied.place);
            let least = single.as_ref().map(|(least, _)| *least);
            if least.is_none_or(|least| work <= in_doubt * least) {
                single = Some((work, vec![implied.place]));
            }
            let with_parts = |way: Way| {
                let tests = implied.tests.clone();
                let way = Way { tests, ..way };
                [way].into_iter().chain(ways.iter().cloned()).collect()
            };
            alternatives.extend(way.map(with_parts));
        }
        let Some(single) = single else {
            return Ok(None);
        };
        let negated = self.negated(part);
        let (mut lists, mut too_much) = (None::<Way>, None);
        for mut ways in alternatives.into_iter().map(without_implied) {
            ways.sort_by(|a, b| a.candidates.total_cmp(&b.candidates));
            let mut ways = ways.into_iter();
            let Some(first) = ways.next() else { continue };
            let (found, more) = self.narrowed(first, ways, &negated)?;
            let Some(found) = found else { continue };
            if lists
                .as_ref()
                .is_none_or(|least| found.work() < least.work())
            {
                (lists, too_much) = (Some(found), more);
            }
        }
        Ok(Some(Ways {
            single,
            lists,
            too_much,
        }))
    }

    fn ways_of_test(&mut self, test: usize) -> Result<Option<Ways>, S::Error> {
        let Some(at) = self.driving(test) else {
            return Ok(None);
        };
        let tests = vec![test];
        Ok(self.expect(at)?.map(|(work, way)| Ways {
            single: (work, vec![at]),
            lists: way.map(|way| Way { tests, ..way }),
            too_much: None,
        }))
    }

    /// Up to which ratio of expected work a constraint that follows from others is preferred.
    fn in_doubt(&self, at: usize) -> f64 {
        let constraint = self.compiled.constraints.get(at);
        let attribute = constraint.and_then(|c| self.shape.attribute(c.attribute));
        match attribute {
            Some(attribute) if attribute.ty.has_place() => IN_DOUBT,
            _ => 1.0,
        }
    }

    /// Adds those of the `others`, and those negations, that save more than they cost. The second
    /// way is the first one that costs too much.
    fn narrowed(
        &mut self,
        mut way: Way,
        others: impl Iterator<Item = Way>,
        negated: &[usize],
    ) -> Result<(Option<Way>, Option<Way>), S::Error> {
        let mut too_much = None;
        let Some(records) = self.records()? else {
            return Ok((None, None));
        };
        let records = (records as f64).max(1.0);
        for other in others {
            let mut more = way.clone();
            more.of.push(other.lists());
            more.tests.extend(&other.tests);
            more.has_branches |= other.has_branches;
            if more.narrow(other.candidates / records, other.listing) {
                way = more;
            } else {
                too_much.get_or_insert(more);
            }
        }
        for at in negated {
            if way.candidates * way.fetch < LITTLE {
                break;
            }
            let Some((_, Some(other))) = self.expect(*at)? else {
                continue;
            };
            let mut more = way.clone();
            more.but.push(*at);
            if more.narrow(1.0 - other.candidates / records, other.listing) {
                way = more;
            } else {
                too_much.get_or_insert(more);
            }
        }
        Ok((Some(way), too_much))
    }

    /// The expected work of the index of a constraint, and its list, if it can be combined.
    fn expect(&mut self, at: usize) -> Result<Option<(f64, Option<Way>)>, S::Error> {
        if let Some(known) = self.expected.get(&at) {
            return Ok(known.clone());
        }
        let expected = self.estimate(at)?;
        self.expected.insert(at, expected.clone());
        Ok(expected)
    }

    fn estimate(&mut self, at: usize) -> Result<Option<(f64, Option<Way>)>, S::Error> {
        let constraint = self.compiled.constraints.get(at);
        let Some((constraint, sought)) = constraint
            .filter(|constraint| constraint.can_drive(self.shape))
            .and_then(|constraint| Some((constraint, constraint.sought()?)))
        else {
            return Ok(None);
        };
        let expected = self.estimates.expect(constraint.attribute, sought)?;
        self.compared.push((at, expected.candidates));
        self.weighed.push(Weighed {
            driver: self.union(vec![at]),
            candidates: expected.candidates,
            work: Some(expected.work),
        });
        let candidates = expected.candidates as f64;
        let way = expected.listing.map(|listing| Way {
            of: vec![Lists::One(at)],
            but: Vec::new(),
            tests: Vec::new(),
            has_branches: false,
            begins: candidates,
            candidates,
            listing,
            fetch: (expected.work - listing).max(0.0) / candidates.max(1.0),
        });
        Ok(Some((expected.work, way)))
    }
}
