//! A condition compiled for a dataset: its tests of declared attributes are constraints on encoded
//! values, the others are evaluated on the JSON.

use super::compound::{self, FieldTest, FieldWalk};
use super::constraint::{self, Constraint, Sought};
use super::place_time::{self, Window};
use super::{Attribute, Driver, Estimate, KeySpans, Lists, Shape};
use crate::condition::{Expr, Filter, Formula, Predicate, Test};
use crate::error::Error;
use crate::geometry::Space;
use crate::record::RecordRef;
use crate::schema::{KeyType, Path, Type};

/// A condition, compiled for a dataset of one shape.
#[derive(Debug, Default)]
pub struct Compiled {
    /// The tests of declared attributes, then the constraints that follow from several of them.
    pub constraints: Vec<Constraint>,
    /// The paths of tests without a declared attribute.
    pub undeclared: Vec<Path>,
    /// The keys of all records that match.
    pub keys: KeySpans,
    /// The formula of all tests; every record matches without one.
    filter: Option<Filter>,
    /// For each test of the filter, the place of its constraint.
    places: Vec<Option<usize>>,
    /// In the order of their places.
    implied: Vec<Implied>,
    /// For each test, those that follow from it and others.
    implied_by_test: Vec<Vec<usize>>,
}

/// The most ranges of all constraints that follow from tests of branches of an `or`. Beyond it
/// branches get none: each range is estimated, and takes memory.
const MOST_BRANCH_RANGES: usize = 1 << 12;

/// The most branches of an `or` for which constraints on place and time are looked for: each makes
/// the areas of its tests again.
const MOST_PLACE_BRANCHES: usize = 64;

/// A constraint that follows from tests of the fields of an attribute: of place and time, or of a
/// compound index.
#[derive(Debug)]
pub(super) struct Implied {
    /// Its place among the constraints.
    pub(super) place: usize,
    /// The tests that it follows from. If the constraint is answered, it implies them.
    pub(super) tests: Vec<usize>,
}

impl Compiled {
    /// Compiles a condition; without one, every record matches.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the condition is invalid, or compares an attribute with an operand of
    /// another type; errors of the estimates.
    pub fn new<S: Estimate>(
        shape: &Shape,
        condition: Option<Expr>,
        estimates: &mut S,
    ) -> Result<Compiled, S::Error>
    where
        S::Error: From<Error>,
    {
        let mut compiled = Compiled::default();
        let Some(condition) = condition else {
            return Ok(compiled);
        };
        condition.check().map_err(Error::bad_input)?;
        let filter = Filter::with(condition, |path| shape.place_of(path).is_some());
        for test in filter.tests() {
            let at = shape.place_of(&test.path);
            match at.and_then(|at| Some((at, shape.attribute(at)?))) {
                Some((at, attribute)) => {
                    compiled.places.push(Some(compiled.constraints.len()));
                    let constraint = Constraint::new(at, attribute, test, estimates)?;
                    compiled.constraints.push(constraint);
                }
                None => {
                    for predicate in &test.predicates {
                        if let Predicate::Within(area) = predicate {
                            // Points in the plane are declared.
                            area.area(Space::Sphere)?;
                        }
                    }
                    compiled.places.push(None);
                    compiled.undeclared.push(test.path.clone());
                }
            }
        }
        compiled.undeclared.dedup();
        let mut scopes = Vec::new();
        add_scopes(filter.formula(), &[], &mut scopes);
        compiled.implied_by_test = vec![Vec::new(); filter.tests().len()];
        compiled.filter = Some(filter);
        let mut ranges = 0;
        for (at, scope) in scopes.iter().enumerate() {
            let before = compiled.constraints.len();
            if at <= MOST_PLACE_BRANCHES {
                compiled.imply(shape, scope)?;
            }
            compiled.imply_compounds(shape, scope);
            let added = compiled.constraints.iter().skip(before);
            ranges += added.map(|added| added.ranges.len()).sum::<usize>();
            if ranges > MOST_BRANCH_RANGES {
                break;
            }
        }
        compiled.keys = compiled.key_spans(shape);
        Ok(compiled)
    }

    /// Adds a constraint that follows from some tests, if there is none yet.
    fn add_implied(&mut self, tests: Vec<usize>, constraint: Constraint) {
        let is_known = self.implied_in(&tests, &[]).any(|implied| {
            let known = self.constraints.get(implied.place);
            implied.tests == tests && known.is_some_and(|c| c.attribute == constraint.attribute)
        });
        if is_known {
            return;
        }
        for test in &tests {
            if let Some(all) = self.implied_by_test.get_mut(*test) {
                all.push(self.implied.len());
            }
        }
        let place = self.constraints.len();
        self.implied.push(Implied { place, tests });
        self.constraints.push(constraint);
    }

    /// Adds the constraints on attributes of place and time that follow from the tests of a scope.
    fn imply(&mut self, shape: &Shape, scope: &[usize]) -> Result<(), Error> {
        let attributes = shape.attributes.iter().enumerate();
        let timed = attributes.filter(|(_, a)| a.ty.timed_space().is_some() && a.kind.is_indexed());
        for (at, attribute) in timed {
            let Some(filter) = &self.filter else { break };
            let tests = scope
                .iter()
                .filter_map(|test| Some((*test, filter.tests().get(*test)?)));
            let window = |test: usize| {
                let constraint = self.constraints.get(self.place(test)?)?;
                let Attribute { ty, lenient, .. } = shape.attribute(constraint.attribute)?;
                // If other values may satisfy the test, its range does not bound the times.
                let ([range], Sought::Values) = (constraint.ranges.as_slice(), &constraint.sought)
                else {
                    return None;
                };
                // The index lacks numbers beyond all times, which only lenient fields have.
                Window::of(range, *ty).filter(|w| !lenient || ty.is_time() || w.has_all)
            };
            if let Some(found) = place_time::combine(attribute, tests, &window)? {
                let ranges = vec![found.range];
                let constraint = Constraint::implied(at, attribute, ranges, found.is_exact);
                self.add_implied(found.tests, constraint);
            }
        }
        Ok(())
    }

    /// Adds the constraints on compound indexes that follow from the tests of a scope.
    fn imply_compounds(&mut self, shape: &Shape, scope: &[usize]) {
        let attributes = shape.attributes.iter().enumerate();
        for (at, attribute) in
            attributes.filter(|(_, a)| !a.fields.is_empty() && a.kind.is_indexed())
        {
            let of_field = |path: &Path| {
                let tests = scope.iter().filter_map(|test| {
                    let found = self.filter.as_ref()?.tests().get(*test)?;
                    let constraint = self.constraints.get(self.place(*test)?)?;
                    let declared = shape.attribute(constraint.attribute)?;
                    let values = constraint.values(declared, found);
                    let (ranges, is_exact) = values.filter(|_| found.path == *path)?;
                    Some(FieldTest {
                        test: *test,
                        ty: declared.ty,
                        ranges,
                        is_exact,
                    })
                });
                tests.collect::<Vec<_>>()
            };
            let tests = attribute.fields.iter().map(of_field).collect();
            if let Some(found) = compound::combine(attribute, tests) {
                let (ranges, is_exact) = (found.ranges, found.is_exact);
                let constraint = Constraint::implied(at, attribute, ranges, is_exact);
                self.add_implied(found.tests, constraint);
            }
        }
    }

    fn key_spans(&self, shape: &Shape) -> KeySpans {
        let ty = shape.key_type;
        let fields = shape.key_paths();
        let tests = self.filter.as_ref().map(Filter::tests).unwrap_or_default();
        // A field that is declared with another type than the key compares other values.
        let is_other = |path: &Path| {
            shape.declared(path).is_some_and(|attribute| {
                let is_same = matches!(
                    (ty, attribute.ty),
                    (KeyType::Int | KeyType::Fields, Type::Int)
                        | (KeyType::String | KeyType::Fields, Type::String)
                );
                !is_same
            })
        };
        let of_path = |some: &[usize], path: &Path| -> Vec<&Test> {
            let some = some.iter().filter_map(|test| tests.get(*test));
            some.filter(|test| test.path == *path && !is_other(path))
                .collect()
        };
        let of_tests = |some: &[usize]| match (ty, fields.as_slice()) {
            (KeyType::Fields, fields) => {
                let of_each = fields.iter().map(|path| of_path(some, path));
                KeySpans::of_fields(&of_each.collect::<Vec<_>>())
            }
            (_, [path]) => KeySpans::of(ty, of_path(some, path).into_iter()),
            _ => KeySpans::default(),
        };
        let formula = self.formula();
        formula.map_or_else(KeySpans::default, |formula| {
            KeySpans::of_formula(formula, &of_tests)
        })
    }

    /// The tests that every match satisfies.
    fn conjunct_tests(&self) -> Vec<usize> {
        self.formula()
            .map(|formula| scope_of(formula, &[]))
            .unwrap_or_default()
    }

    /// The constraints that follow from tests of a scope, and not from the inherited ones alone.
    pub(super) fn implied_in<'c>(
        &'c self,
        scope: &'c [usize],
        inherited: &'c [usize],
    ) -> impl Iterator<Item = &'c Implied> {
        let own = scope.iter().filter(|test| !inherited.contains(test));
        let mut found: Vec<usize> = own
            .filter_map(|test| self.implied_by_test.get(*test))
            .flatten()
            .copied()
            .collect();
        found.sort_unstable();
        found.dedup();
        let found = found.into_iter().filter_map(|at| self.implied.get(at));
        found.filter(|implied| implied.tests.iter().all(|test| scope.contains(test)))
    }

    /// The places of the constraints that follow from several tests and that every match satisfies.
    fn implied(&self) -> impl Iterator<Item = usize> {
        let tests = self.conjunct_tests();
        let implied = self.implied_in(&tests, &[]);
        let implied: Vec<usize> = implied.map(|implied| implied.place).collect();
        implied.into_iter()
    }

    /// A compound index that every match is in, in the order of the field at `path` from one end.
    /// `None` also for a field in which values may be of other types, or floats.
    pub fn walk_by(&self, shape: &Shape, path: &Path, is_backward: bool) -> Option<FieldWalk> {
        let declared = shape.attribute(shape.place_of(path)?)?;
        if declared.lenient || declared.ty == Type::Float {
            return None;
        }
        self.implied().find_map(|at| {
            let constraint = self.constraints.get(at)?;
            let attribute = shape.attribute(constraint.attribute)?;
            let field = attribute.fields.iter().position(|field| field == path)?;
            FieldWalk::new(at, constraint, attribute, field, declared.ty, is_backward)
        })
    }

    /// The formula of the tests; `None` if every record matches.
    pub fn formula(&self) -> Option<&Formula> {
        self.filter.as_ref().map(Filter::formula)
    }

    /// The place of the constraint of a test of the formula; `None` if its path is not declared.
    pub fn place(&self, test: usize) -> Option<usize> {
        self.places.get(test).copied().flatten()
    }

    /// The constraints that every match satisfies.
    pub fn conjuncts(&self) -> impl Iterator<Item = &Constraint> {
        let tests = self.conjunct_tests().into_iter();
        let places = tests
            .filter_map(|test| self.place(test))
            .chain(self.implied());
        places.filter_map(|at| self.constraints.get(at))
    }

    /// The condition that the constraint at a place stands for, for people.
    pub fn text(&self, at: usize) -> String {
        let Some(filter) = &self.filter else {
            return String::new();
        };
        let implied = self.implied.iter().find(|implied| implied.place == at);
        let own = self.places.iter().position(|place| *place == Some(at));
        let from = implied.map_or(own.as_slice(), |implied| implied.tests.as_slice());
        let tests = from.iter().filter_map(|test| filter.tests().get(*test));
        tests.map(constraint::text).collect::<Vec<_>>().join(" & ")
    }

    /// True if no record can match.
    pub fn is_never(&self) -> bool {
        self.conjuncts().any(Constraint::is_never)
    }

    /// True if every current candidate that the driver gives matches.
    pub fn is_answered_by(&self, driver: &Driver) -> bool {
        let lists = match driver {
            Driver::Scan => return false,
            Driver::Index(at) => Lists::One(*at),
            Driver::Union(all) => Lists::Any(all.iter().copied().map(Lists::One).collect()),
            Driver::Combined(combined) => combined.lists.clone(),
        };
        let formula = self.formula();
        formula.is_some_and(|formula| self.is_answered_by_lists(formula, &lists))
    }

    /// True if every record of the list of the constraint at a place meets a test.
    fn answers(&self, at: usize, test: usize) -> bool {
        let implied = self
            .implied
            .binary_search_by_key(&at, |implied| implied.place);
        let implied = implied.ok().and_then(|found| self.implied.get(found));
        self.constraints.get(at).is_some_and(|c| c.answered)
            && (self.place(test) == Some(at)
                || implied.is_some_and(|implied| implied.tests.contains(&test)))
    }

    /// The constraints of the tests of declared attributes.
    pub fn of_tests(&self) -> impl Iterator<Item = (usize, &Constraint)> {
        let places = self.places.iter().flatten();
        places.filter_map(|at| Some((*at, self.constraints.get(*at)?)))
    }

    /// True if every current record of an entry of the combination matches the formula.
    fn is_answered_by_lists(&self, formula: &Formula, lists: &Lists) -> bool {
        let by_one = |lists: &[Lists]| {
            let mut lists = lists.iter();
            lists.any(|one| self.is_answered_by_lists(formula, one))
        };
        match (formula, lists) {
            (Formula::Not(_), _) => false,
            // Each entry is in one of these lists, which mostly come in the order of the branches.
            (Formula::Or(parts), Lists::Any(all)) => all.iter().enumerate().all(|(at, one)| {
                let same = parts.get(at);
                same.is_some_and(|part| self.is_answered_by_lists(part, one))
                    || self.is_answered_by_lists(formula, one)
            }),
            (_, Lists::Any(all)) => {
                let mut all = all.iter();
                all.all(|one| self.is_answered_by_lists(formula, one))
            }
            (Formula::Test(test), Lists::One(at)) => self.answers(*at, *test),
            (Formula::Test(_), Lists::All { of, .. }) => by_one(of),
            (Formula::And(parts), lists) => {
                let mut parts = parts.iter();
                parts.all(|part| self.is_answered_by_lists(part, lists))
            }
            (Formula::Or(parts), lists) => {
                let mut parts = parts.iter();
                parts.any(|part| self.is_answered_by_lists(part, lists))
                    || matches!(lists, Lists::All { of, .. } if by_one(of))
            }
        }
    }

    /// True if a record matches. The constraint at place `answered`, which the driving index has
    /// answered, is taken to hold.
    pub fn confirm(&self, record: &RecordRef<'_>, shape: &Shape, answered: Option<usize>) -> bool {
        let Some(filter) = &self.filter else {
            return true;
        };
        let mut holds = |test: usize| {
            let at = self.place(test);
            let Some(constraint) = at.and_then(|at| self.constraints.get(at)) else {
                return false;
            };
            (at == answered && constraint.answered)
                || shape
                    .attribute(constraint.attribute)
                    .is_some_and(|attribute| constraint.holds(attribute, record))
        };
        filter.matches(&mut holds, record.body())
    }
}

/// The parts that every match of a formula satisfies.
pub(super) fn conjuncts_of(formula: &Formula) -> &[Formula] {
    match formula {
        Formula::And(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

/// The tests that every match of a part of the condition satisfies, with those that it inherits
/// from the parts around it.
pub(super) fn scope_of(part: &Formula, inherited: &[usize]) -> Vec<usize> {
    let own = conjuncts_of(part).iter().filter_map(|part| match part {
        Formula::Test(test) => Some(*test),
        _ => None,
    });
    inherited.iter().copied().chain(own).collect()
}

/// Adds the scopes ([`scope_of`]) of a part of the condition, and of the branches of each `or` in
/// it.
fn add_scopes(part: &Formula, inherited: &[usize], scopes: &mut Vec<Vec<usize>>) {
    let scope = scope_of(part, inherited);
    let inner = |part: &Formula, scopes: &mut Vec<Vec<usize>>| {
        if let Formula::Or(branches) = part {
            branches
                .iter()
                .for_each(|branch| add_scopes(branch, &scope, scopes));
        }
    };
    if scope.len() > inherited.len() {
        scopes.push(scope.clone());
    }
    conjuncts_of(part)
        .iter()
        .for_each(|part| inner(part, scopes));
}
