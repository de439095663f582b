//! A condition made ready for evaluation: its tests of declared attributes are ranges of encoded values, the others
//! are found in the body.

use std::ops::Bound;

use esker_model::condition::{
    Expr, Filter, Formula, Op, Operand, Predicate as Asked, Residual, Test,
};
use esker_model::geometry::Space;
use esker_model::record::RecordRef;
use esker_model::schema::{KeyType, Path, Type, other};
use esker_model::tokens::{Tokenizer, prefix_token};

use super::key_spans::KeySpans;
use super::place_time::{self, Window};
use super::plan::Driver;
use crate::catalog::{Attribute, Layout};
use crate::error::{Error, Result};
use crate::index::{self, Best, Lookup, Order, Range};

/// "Some value of the attribute lies in one of the ranges."
pub(super) struct Predicate {
    /// Position in the layout.
    pub(super) attribute: usize,
    /// In order; they do not overlap.
    pub(super) ranges: Vec<Range>,
    /// Values of which the record has to tell whether they meet it.
    doubtful: Vec<Vec<u8>>,
    /// What of a record values do not tell.
    residual: Residual,
    /// The record tells in any case.
    reads_record: bool,
    sought: Sought,
    /// All records with such a token meet it.
    pub(super) answered: bool,
}

/// The tokens that records which meet a predicate have: what the attribute's index can be asked for.
enum Sought {
    /// It cannot be asked.
    Nothing,
    /// The values themselves.
    Values,
    Tokens(Vec<Range>),
}

impl Predicate {
    /// What the index is asked for, where it can be asked.
    pub(super) fn sought(&self) -> Option<&[Range]> {
        match &self.sought {
            Sought::Nothing => None,
            Sought::Values => Some(&self.ranges),
            Sought::Tokens(tokens) => Some(tokens),
        }
    }

    /// The same, where that is one range.
    pub(super) fn sought_range(&self) -> Option<&Range> {
        match self.sought() {
            Some([only]) => Some(only),
            _ => None,
        }
    }

    /// True when it asks for values, not for all between two.
    pub(super) fn is_point(&self) -> bool {
        self.ranges.iter().all(|range| range.point().is_some())
    }

    fn holds(&self, attribute: &Attribute, record: &RecordRef<'_>) -> bool {
        let other = other(attribute.ty);
        let mut in_doubt = false;
        let met = attribute.any_value(record, |value| {
            if other == Some(value) || self.doubtful.iter().any(|doubtful| doubtful == value) {
                in_doubt = true;
                return false;
            }
            self.ranges.iter().any(|range| range.contains(value))
        });
        met || (in_doubt || self.reads_record || attribute.is_unindexed(record))
            && self.residual.holds(record.body())
    }
}

/// The condition of a query.
pub(super) struct Predicates {
    pub(super) declared: Vec<Predicate>,
    /// Paths without a declared attribute.
    pub(super) undeclared: Vec<Path>,
    /// The formula of all tests; without one every record matches.
    filter: Option<Filter>,
    /// For each test of the filter its place among the declared.
    places: Vec<Option<usize>>,
    /// What follows from several tests together.
    implied: Vec<Implied>,
    /// The keys that matches can have.
    pub(super) keys: KeySpans,
    /// A stub is not enough to decide: a path is not declared, or was declared after some records were stored.
    pub(super) needs_json: bool,
}

/// A predicate of an attribute of place and time that every match meets: what the tests of both ask for together.
struct Implied {
    /// Its place among the declared.
    place: usize,
    /// The tests that it follows from. All records that meet an answered one meet them.
    tests: Vec<usize>,
}

impl Predicates {
    /// The condition, made ready. `has_other` tells whether the index of an attribute may have entries of values that its type has no
    /// encoding for ([`other`]).
    pub(super) fn new(
        layout: &Layout,
        condition: Option<Expr>,
        has_other: &mut HasOther<'_>,
    ) -> Result<Predicates> {
        let mut predicates = Predicates {
            declared: Vec::new(),
            undeclared: Vec::new(),
            filter: None,
            places: Vec::new(),
            implied: Vec::new(),
            keys: KeySpans::default(),
            needs_json: false,
        };
        let Some(condition) = condition else {
            return Ok(predicates);
        };
        condition.check().map_err(Error::bad_input)?;
        let place = |path: &Path| layout.attributes.iter().position(|a| a.path == *path);
        let filter = Filter::with(condition, |path| place(path).is_some());
        for test in filter.tests() {
            let at = place(&test.path);
            match at.and_then(|at| Some((at, layout.attributes.get(at)?))) {
                Some((at, attribute)) => {
                    predicates.places.push(Some(predicates.declared.len()));
                    (predicates.declared).push(declared(at, attribute, test, has_other)?);
                }
                None => {
                    for asked in &test.predicates {
                        if let Asked::Within(area) = asked {
                            // Evaluated in degrees; a plane is declared.
                            area.area(Space::Sphere)?;
                        }
                    }
                    predicates.places.push(None);
                    predicates.undeclared.push(test.path.clone());
                }
            }
        }
        predicates.undeclared.dedup();
        predicates.filter = Some(filter);
        predicates.imply(layout)?;
        predicates.keys = predicates.keys(layout);
        let declared = (predicates.declared.iter())
            .filter_map(|predicate| layout.attributes.get(predicate.attribute));
        let mut declared = declared.map(|attribute| layout.stored.in_all_records(attribute.id));
        // Of what is not indexed a stub does not tell.
        let untold = (predicates.declared.iter()).any(|predicate| !predicate.answered);
        predicates.needs_json = layout.clustered().is_some()
            && (!predicates.undeclared.is_empty() || untold || declared.any(|known| !known));
        Ok(predicates)
    }

    /// Adds what the tests of places and times imply for the attributes of both.
    fn imply(&mut self, layout: &Layout) -> Result<()> {
        let attributes = layout.attributes.iter().enumerate();
        let timed = attributes.filter(|(_, a)| a.ty.timed_space().is_some() && a.kind.is_indexed());
        for (at, attribute) in timed {
            let tests = self.conjunct_tests();
            let Some(filter) = &self.filter else { break };
            let asked = tests
                .iter()
                .filter_map(|test| Some((*test, filter.tests().get(*test)?)));
            let window = |test: usize| {
                let predicate = self.declared.get(self.place(test)?)?;
                let ty = layout.attributes.get(predicate.attribute)?.ty;
                let range = predicate.ranges.as_slice();
                // Where other values may meet it, it says nothing of the times that were understood.
                let ([range], Sought::Values) = (range, &predicate.sought) else {
                    return None;
                };
                Window::of(range, ty)
            };
            let asked = place_time::asked(attribute, asked, &window)?;
            if let Some((range, tests, exact)) = asked {
                self.implied.push(Implied {
                    place: self.declared.len(),
                    tests,
                });
                let residual = Residual::new(
                    &Test {
                        path: attribute.path.clone(),
                        predicates: Vec::new(),
                    },
                    attribute.ty,
                );
                self.declared.push(Predicate {
                    attribute: at,
                    ranges: vec![range],
                    doubtful: Vec::new(),
                    residual,
                    reads_record: false,
                    sought: Sought::Values,
                    answered: exact,
                });
            }
        }
        Ok(())
    }

    /// The keys that matches can have.
    fn keys(&self, layout: &Layout) -> KeySpans {
        let ty = layout.stored.key_type;
        let fields = layout.key_paths();
        let tests = self.filter.as_ref().map(Filter::tests).unwrap_or_default();
        // A declared field of another type than the key compares other values.
        let is_other = |path: &Path| {
            let declared = layout.attributes.iter().find(|a| a.path == *path);
            declared.is_some_and(|attribute| {
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

    /// The tests that every match meets.
    fn conjunct_tests(&self) -> Vec<usize> {
        let parts = match self.formula() {
            Some(Formula::And(parts)) => parts.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        let tests = parts.iter().filter_map(|part| match part {
            Formula::Test(test) => Some(*test),
            _ => None,
        });
        tests.collect()
    }

    /// The places of the predicates that follow from several tests, and that every match meets.
    pub(super) fn implied(&self) -> impl Iterator<Item = usize> {
        self.implied.iter().map(|implied| implied.place)
    }

    /// What must hold; `None` where every record matches.
    pub(super) fn formula(&self) -> Option<&Formula> {
        self.filter.as_ref().map(Filter::formula)
    }

    /// The place among the declared predicates of a test of the formula.
    pub(super) fn place(&self, test: usize) -> Option<usize> {
        self.places.get(test).copied().flatten()
    }

    /// The predicates that every match meets.
    pub(super) fn conjuncts(&self) -> impl Iterator<Item = &Predicate> {
        let tests = self.conjunct_tests().into_iter();
        let places = tests
            .filter_map(|test| self.place(test))
            .chain(self.implied());
        places.filter_map(|at| self.declared.get(at))
    }

    /// The conditions that a declared predicate came from, for people.
    pub(super) fn text(&self, at: usize) -> String {
        let Some(filter) = &self.filter else {
            return String::new();
        };
        let implied = self.implied.iter().find(|implied| implied.place == at);
        let own = self.places.iter().position(|place| *place == Some(at));
        let from = implied.map_or(own.as_slice(), |implied| implied.tests.as_slice());
        let tests = from.iter().filter_map(|test| filter.tests().get(*test));
        tests.map(text).collect::<Vec<_>>().join(" & ")
    }

    /// True when no record can match, whatever it holds.
    pub(super) fn is_never(&self) -> bool {
        self.conjuncts().any(|predicate| {
            let sought = predicate.sought().unwrap_or_default();
            !predicate.reads_record
                && predicate.ranges.iter().all(Range::is_empty)
                && sought.iter().all(Range::is_empty)
        })
    }

    /// True when every candidate that the driver gives matches, if it is current.
    pub(super) fn is_answered_by(&self, driver: &Driver) -> bool {
        let probed = driver.predicates();
        let answers = |part: &Formula| match part {
            Formula::Test(test) => self.place(*test).is_some_and(|at| {
                probed.contains(&at) && self.declared.get(at).is_some_and(|p| p.answered)
            }),
            _ => false,
        };
        let together = |part: &Formula| match part {
            Formula::Test(test) => self.implied.iter().any(|implied| {
                let predicate = self.declared.get(implied.place);
                probed.contains(&implied.place)
                    && implied.tests.contains(test)
                    && predicate.is_some_and(|p| p.answered)
            }),
            _ => false,
        };
        match self.formula() {
            Some(Formula::Or(parts)) => parts.iter().all(answers),
            Some(Formula::And(parts)) => parts.iter().all(together),
            Some(one) => answers(one),
            None => false,
        }
    }

    /// True when a record matches. The predicate that the driving index has answered holds.
    pub(super) fn confirm(
        &self,
        record: &RecordRef<'_>,
        layout: &Layout,
        answered: Option<usize>,
    ) -> bool {
        let Some(filter) = &self.filter else {
            return true;
        };
        let mut holds = |test: usize| {
            let at = self.place(test);
            let Some(predicate) = at.and_then(|at| self.declared.get(at)) else {
                return false;
            };
            (at == answered && predicate.answered)
                || layout
                    .attributes
                    .get(predicate.attribute)
                    .is_some_and(|attribute| predicate.holds(attribute, record))
        };
        filter.matches(&mut holds, record.body())
    }
}

/// A test of a declared attribute. Several predicates are bounds of one range.
fn declared(
    at: usize,
    attribute: &Attribute,
    test: &Test,
    has_other: &mut HasOther<'_>,
) -> Result<Predicate> {
    let reads = |asked: &Asked| asked.reads_records(attribute.ty, attribute.lenient);
    if test.predicates.iter().any(reads) {
        return Ok(Predicate {
            attribute: at,
            ranges: Vec::new(),
            doubtful: Vec::new(),
            residual: Residual::of_all(test),
            reads_record: true,
            sought: Sought::Nothing,
            answered: false,
        });
    }
    let mut ranges: Option<Vec<Range>> = None;
    let mut doubtful = Vec::new();
    for asked in &test.predicates {
        let more = match asked.to_ranges(attribute.ty) {
            Ok(more) => more,
            // It may still be compared with values of other types.
            Err(_) if attribute.lenient => asked.to_ranges_where_comparable(attribute.ty),
            Err(why) => return Err(Error::bad_input(format!("{}: {why}", text(test)))),
        };
        doubtful.extend(asked.doubtful(attribute.ty));
        ranges = Some(match (ranges.as_deref(), more.as_slice()) {
            (Some([known]), [more]) => vec![known.clone().and(more.clone())],
            (Some(_), []) | (Some([]), _) => Vec::new(),
            _ => more,
        });
    }
    let ranges = ranges.unwrap_or_default();
    if let [range] = ranges.as_slice() {
        refuse_upside_down(range, test)?;
    }
    let (mut sought, mut answered) = sought(attribute.tokenizer, test);
    let may_be_other = attribute.lenient || attribute.ty == Type::Float;
    let others = match (&sought, other(attribute.ty)) {
        (Sought::Values | Sought::Tokens(_), Some(other)) if may_be_other => {
            has_other(attribute)?.then_some(other)
        }
        _ => None,
    };
    if others.is_some() || !doubtful.is_empty() {
        let found = match std::mem::replace(&mut sought, Sought::Nothing) {
            Sought::Nothing => None,
            Sought::Values => Some(ranges.clone()),
            Sought::Tokens(tokens) => Some(tokens),
        };
        if let Some(mut found) = found {
            let more = doubtful.iter().cloned().chain(others.map(<[u8]>::to_vec));
            for value in more {
                if !found.iter().any(|range| range.contains(&value)) {
                    found.push(Range::exactly(value));
                }
            }
            sought = Sought::Tokens(found);
        }
        answered = false;
    }
    Ok(Predicate {
        attribute: at,
        ranges,
        doubtful,
        residual: Residual::new(test, attribute.ty),
        reads_record: false,
        sought,
        answered,
    })
}

/// Tells whether the index of an attribute may have an entry of [`other`].
pub(super) type HasOther<'h> = dyn FnMut(&Attribute) -> Result<bool> + 'h;

/// Looks for one; an attribute without an index may have some in any record.
pub(super) fn has_other(lookup: &Lookup<'_>, attribute: &Attribute) -> Result<bool> {
    let (Some(index), Some(other)) = (index::of(attribute.kind), other(attribute.ty)) else {
        return Ok(true);
    };
    let mut best = Best::new(index::Window {
        order: Order::Newest,
        after: None,
        want: 1,
        bytes: usize::MAX,
    });
    let range = Range::exactly(other.to_vec());
    index.candidates(lookup, attribute, &range, &mut best)?;
    Ok(!best.finish().0.is_empty())
}

fn text(test: &Test) -> String {
    let text = test.to_expr().map(|e| e.to_string()).unwrap_or_default();
    without_types(&text)
}

/// A condition without the types that its text has for being read again: `n >= 5` for `n >= int(5)`.
fn without_types(text: &str) -> String {
    const TYPES: [&str; 4] = ["int(", "float(", "bool(", "time("];
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    let (mut in_quotes, mut before) = (false, ' ');
    while let Some(c) = rest.chars().next() {
        let typed = TYPES
            .iter()
            .filter(|_| !in_quotes && " (,".contains(before))
            .find_map(|ty| rest.strip_prefix(ty)?.split_once(')'));
        if let Some((value, behind)) = typed {
            out += value;
            (rest, before) = (behind, ')');
            continue;
        }
        let mut taken = c.len_utf8();
        if in_quotes && c == '\\' {
            taken += rest.chars().nth(1).map_or(0, char::len_utf8);
        } else if c == '"' {
            in_quotes = !in_quotes;
        }
        let (part, behind) = rest.split_at(taken);
        out += part;
        (rest, before) = (behind, c);
    }
    out
}

/// What an index with this tokenizer is asked for, and whether that answers the test.
fn sought(tokenizer: Tokenizer, test: &Test) -> (Sought, bool) {
    // What almost every record has is better found by a scan.
    let is_wide = |asked: &Asked| matches!(asked, Asked::Exists | Asked::Compare(Op::Ne, _));
    if test.predicates.iter().any(is_wide) {
        return (Sought::Nothing, false);
    }
    if tokenizer != Tokenizer::Prefix {
        return (Sought::Values, true);
    }
    let point = |text: &str| {
        let (token, whole) = prefix_token(text);
        let (lo, hi) = (Bound::Included(token.clone()), Bound::Included(token));
        (Range::between(lo, hi), whole)
    };
    match test.predicates.as_slice() {
        [Asked::Compare(Op::Prefix, operand)] => match operand.as_text() {
            Some(text) if !text.is_empty() => {
                let (point, whole) = point(text);
                (Sought::Tokens(vec![point]), whole)
            }
            // Every string begins with the empty one, which is the token of no other.
            _ => (Sought::Nothing, false),
        },
        [Asked::Compare(Op::Eq, operand)] => {
            let sought = operand.as_text().map(|text| vec![point(text).0]);
            (sought.map_or(Sought::Nothing, Sought::Tokens), false)
        }
        [Asked::In(operands)] => {
            let each = operands
                .iter()
                .map(|operand| Some(point(operand.as_text()?).0));
            let sought: Option<Vec<Range>> = each.collect();
            (sought.map_or(Sought::Nothing, Sought::Tokens), false)
        }
        _ => (Sought::Nothing, false),
    }
}

fn refuse_upside_down(range: &Range, test: &Test) -> Result<()> {
    let (Bound::Included(lo) | Bound::Excluded(lo), Bound::Included(hi) | Bound::Excluded(hi)) =
        (&range.lo, &range.hi)
    else {
        return Ok(());
    };
    if lo <= hi {
        return Ok(());
    }
    let text = |ops: [Op; 2]| {
        let bound = test.predicates.iter().find_map(|asked| match asked {
            Asked::Compare(op, operand) if ops.contains(op) => Some(operand),
            _ => None,
        });
        bound.map(Operand::to_string).unwrap_or_default()
    };
    Err(super::upside_down(
        &test.path,
        &text([Op::Ge, Op::Gt]),
        &text([Op::Le, Op::Lt]),
    ))
}

#[cfg(test)]
mod tests {
    use super::without_types;

    #[test]
    fn conditions_for_people_have_no_types() {
        for (text, plain) in [
            ("n >= int(5)", "n >= 5"),
            (
                "a in (int(-1), float(2.5), \"int(3)\")",
                "a in (-1, 2.5, \"int(3)\")",
            ),
            (
                "a = \"x \\\" int(3)\" & t < time(7)",
                "a = \"x \\\" int(3)\" & t < 7",
            ),
            ("print(x) = 1", "print(x) = 1"),
        ] {
            assert_eq!(without_types(text), plain);
        }
    }
}
