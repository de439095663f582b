//! A test of a declared attribute, as ranges of encoded values.

use std::ops::Bound;

use super::{Attribute, Estimate, Shape};
use crate::condition::{Op, Operand, Predicate, Residual, Test};
use crate::error::Error;
use crate::range::Range;
use crate::record::RecordRef;
use crate::schema::{Type, stand_in};
use crate::tokens::{Tokenizer, prefix_token};

/// A condition on one declared attribute: some value of it lies in one of the ranges.
#[derive(Debug)]
pub struct Constraint {
    /// The place of the attribute in the shape.
    pub attribute: usize,
    /// Ascending ranges of encoded values that do not overlap.
    pub ranges: Vec<Range>,
    /// True if every record with a token that is read from the index satisfies the constraint.
    pub answered: bool,
    /// Values for which only the JSON decides whether they satisfy the constraint.
    doubtful: Vec<Vec<u8>>,
    /// The test on values that have no encoded form.
    residual: Residual,
    /// True if only the JSON decides, whatever the encoded values are.
    pub(super) reads_record: bool,
    /// True if records may have values without an encoded form.
    may_be_other: bool,
    pub(super) sought: Sought,
}

/// The tokens of records that satisfy a constraint: the ranges to read from the attribute's index.
#[derive(Debug)]
pub(super) enum Sought {
    /// The index cannot be used.
    Nothing,
    /// The values themselves.
    Values,
    Tokens(Vec<Range>),
}

impl Constraint {
    /// A constraint that follows from tests of the fields of an attribute: ranges of values of
    /// place and time, or of a compound index.
    pub(super) fn implied(
        at: usize,
        attribute: &Attribute,
        ranges: Vec<Range>,
        answered: bool,
    ) -> Constraint {
        let test = Test {
            path: attribute.path.clone(),
            predicates: Vec::new(),
        };
        Constraint {
            attribute: at,
            ranges,
            answered,
            doubtful: Vec::new(),
            residual: Residual::new(&test, attribute.ty),
            reads_record: false,
            may_be_other: false,
            sought: Sought::Values,
        }
    }

    /// A test of the attribute at place `at`. Several predicates are bounds of one range.
    ///
    /// # Errors
    /// [`Error::BadInput`] if an operand is not comparable with the type, or the bounds are
    /// reversed; errors of the estimates.
    pub(super) fn new<S: Estimate>(
        at: usize,
        attribute: &Attribute,
        test: &Test,
        estimates: &mut S,
    ) -> Result<Constraint, S::Error>
    where
        S::Error: From<Error>,
    {
        let may_be_other = may_be_other(attribute);
        let reads =
            |predicate: &Predicate| predicate.reads_records(attribute.ty, attribute.lenient);
        if test.predicates.iter().any(reads) {
            return Ok(Constraint {
                attribute: at,
                ranges: Vec::new(),
                answered: false,
                doubtful: Vec::new(),
                residual: Residual::of_all(test),
                reads_record: true,
                may_be_other,
                sought: Sought::Nothing,
            });
        }
        let (ranges, doubtful) = ranges_of(attribute, test)?;
        let (mut sought, mut answered) = sought(attribute.tokenizer, test);
        let others = match (&sought, stand_in(attribute.ty)) {
            (Sought::Values | Sought::Tokens(_), Some(other)) if may_be_other => {
                estimates.has_other(at)?.then_some(other)
            }
            _ => None,
        };
        if others.is_some() || !doubtful.is_empty() {
            let more = doubtful.iter().cloned().chain(others.map(<[u8]>::to_vec));
            sought = sought.with_values(&ranges, more);
            answered = false;
        }
        Ok(Constraint {
            attribute: at,
            ranges,
            answered,
            doubtful,
            residual: Residual::new(test, attribute.ty),
            reads_record: false,
            may_be_other,
            sought,
        })
    }

    /// The ranges of values in records that satisfy the constraint, which is of `test`, with the
    /// stand-in of other values if they may; and whether all of them satisfy it. `None` if nearly
    /// all values may, or only the record decides.
    pub(super) fn values(&self, attribute: &Attribute, test: &Test) -> Option<(Vec<Range>, bool)> {
        if self.reads_record || is_wide(test) {
            return None;
        }
        let others = stand_in(attribute.ty).filter(|_| self.may_be_other);
        let some = self.ranges.iter().filter(|range| !range.is_empty());
        let mut ranges: Vec<Range> = some.cloned().collect();
        if let Some(other) = others
            && !ranges.iter().any(|range| range.contains(other))
        {
            ranges.push(Range::exactly(other.to_vec()));
        }
        (!ranges.is_empty()).then_some((ranges, others.is_none()))
    }

    /// The ranges of tokens to read from the attribute's index; `None` if the index cannot be used.
    pub fn sought(&self) -> Option<&[Range]> {
        match &self.sought {
            Sought::Nothing => None,
            Sought::Values => Some(&self.ranges),
            Sought::Tokens(tokens) => Some(tokens),
        }
    }

    /// The range to read from the index, if it is a single one.
    pub fn sought_range(&self) -> Option<&Range> {
        match self.sought() {
            Some([only]) => Some(only),
            _ => None,
        }
    }

    /// True if the index of the attribute can be read for the constraint.
    pub fn can_drive(&self, shape: &Shape) -> bool {
        let attribute = shape.attribute(self.attribute);
        attribute.is_some_and(|attribute| attribute.kind.is_indexed()) && self.sought().is_some()
    }

    /// True if all ranges are single values.
    pub fn is_point(&self) -> bool {
        self.ranges.iter().all(|range| range.point().is_some())
    }

    /// True if no value satisfies the constraint.
    pub(super) fn is_never(&self) -> bool {
        let no_other = match self.sought() {
            // What is sought has the stand-in of other values where the index does.
            Some(sought) => sought.iter().all(Range::is_empty),
            None => !self.may_be_other,
        };
        !self.reads_record && no_other && self.ranges.iter().all(Range::is_empty)
    }

    /// True if the record satisfies the constraint.
    pub(super) fn holds(&self, attribute: &Attribute, record: &RecordRef<'_>) -> bool {
        let other = stand_in(attribute.ty);
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

/// True if records may have values of the attribute without an encoded form.
fn may_be_other(attribute: &Attribute) -> bool {
    attribute.lenient || attribute.ty == Type::Float
}

impl Sought {
    /// The same tokens and some values more.
    fn with_values(self, ranges: &[Range], more: impl Iterator<Item = Vec<u8>>) -> Sought {
        let mut tokens = match self {
            Sought::Nothing => return Sought::Nothing,
            Sought::Values => ranges.to_vec(),
            Sought::Tokens(tokens) => tokens,
        };
        for value in more {
            if !tokens.iter().any(|range| range.contains(&value)) {
                tokens.push(Range::exactly(value));
            }
        }
        Sought::Tokens(tokens)
    }
}

/// The ranges of values that satisfy a test, and the values about which only the JSON decides.
fn ranges_of(attribute: &Attribute, test: &Test) -> Result<(Vec<Range>, Vec<Vec<u8>>), Error> {
    let mut ranges: Option<Vec<Range>> = None;
    let mut doubtful = Vec::new();
    for predicate in &test.predicates {
        let more = match predicate.to_ranges(attribute.ty) {
            Ok(more) => more,
            // The operand may still be compared with values of other types.
            Err(_) if attribute.lenient => predicate.to_ranges_where_comparable(attribute.ty),
            Err(why) => return Err(Error::bad_input(format!("{}: {why}", text(test)))),
        };
        doubtful.extend(predicate.doubtful(attribute.ty));
        ranges = Some(match (ranges.as_deref(), more.as_slice()) {
            (Some([known]), [more]) => vec![known.clone().and(more.clone())],
            (Some(_), []) | (Some([]), _) => Vec::new(),
            _ => more,
        });
    }
    let mut ranges = ranges.unwrap_or_default();
    if attribute.lenient {
        // Bounds that are reversed in this type need not be so in another.
        ranges.retain(|range| !range.is_empty());
    } else if let [range] = ranges.as_slice() {
        refuse_reversed(range, test)?;
    }
    Ok((ranges, doubtful))
}

pub(super) fn text(test: &Test) -> String {
    let text = test.to_expr().map(|e| e.to_string()).unwrap_or_default();
    without_types(&text)
}

/// The text of a condition without the types of its operands: `n >= 5` for `n >= int(5)`.
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

/// True for tests of values that almost every record has: a scan is quicker.
fn is_wide(test: &Test) -> bool {
    let is_wide = |predicate: &Predicate| {
        matches!(predicate, Predicate::Exists | Predicate::Compare(Op::Ne, _))
    };
    test.predicates.iter().any(is_wide)
}

/// The tokens to read from an index with this tokenizer, and whether they answer the test.
fn sought(tokenizer: Tokenizer, test: &Test) -> (Sought, bool) {
    if is_wide(test) {
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
        [Predicate::Compare(Op::Prefix, operand)] => match operand.as_text() {
            Some(text) if !text.is_empty() => {
                let (point, whole) = point(text);
                (Sought::Tokens(vec![point]), whole)
            }
            // Every string begins with the empty one, which is the token of no other.
            _ => (Sought::Nothing, false),
        },
        [Predicate::Compare(Op::Eq, operand)] => {
            let sought = operand.as_text().map(|text| vec![point(text).0]);
            (sought.map_or(Sought::Nothing, Sought::Tokens), false)
        }
        [Predicate::In(operands)] => {
            let each = operands
                .iter()
                .map(|operand| Some(point(operand.as_text()?).0));
            let sought: Option<Vec<Range>> = each.collect();
            (sought.map_or(Sought::Nothing, Sought::Tokens), false)
        }
        _ => (Sought::Nothing, false),
    }
}

fn refuse_reversed(range: &Range, test: &Test) -> Result<(), Error> {
    let (Bound::Included(lo) | Bound::Excluded(lo), Bound::Included(hi) | Bound::Excluded(hi)) =
        (&range.lo, &range.hi)
    else {
        return Ok(());
    };
    if lo <= hi {
        return Ok(());
    }
    let text = |ops: [Op; 2]| {
        let bound = test
            .predicates
            .iter()
            .find_map(|predicate| match predicate {
                Predicate::Compare(op, operand) if ops.contains(op) => Some(operand),
                _ => None,
            });
        bound.map(Operand::to_string).unwrap_or_default()
    };
    let (path, lo, hi) = (&test.path, text([Op::Ge, Op::Gt]), text([Op::Le, Op::Lt]));
    Err(Error::bad_input(format!(
        "{path}: the bounds of the range are reversed: {lo} is above {hi}"
    )))
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
