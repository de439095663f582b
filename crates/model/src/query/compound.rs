//! Conditions on the leading fields of a compound index, combined to ranges of its values.
//!
//! Fields with a list of values begin the ranges; the first field with a range ends them, and
//! nothing is sought of the fields behind it. All combinations of a record's values are in the
//! index (`schema/compound.rs`), so one test of each field can be used, whichever elements of an
//! array meet it. Two tests of one field may hold for different elements, so only one of them is
//! used; bounds of one range are a single test.

use std::ops::Bound;

use super::{Attribute, Constraint};
use crate::range::{Range, after_prefix};
use crate::schema::{Type, compound_begin, compound_field, compound_head, compound_tag, several};

/// The most ranges that lists of values of several fields are combined to.
const MOST_RANGES: usize = 1 << 10;

/// A test of a field: the ranges of values that satisfy it, at least one.
pub(super) struct FieldTest {
    /// The number of the test.
    pub(super) test: usize,
    pub(super) ty: Type,
    pub(super) ranges: Vec<Range>,
    /// True if all values in the ranges satisfy it.
    pub(super) is_exact: bool,
}

impl FieldTest {
    /// The values, if the ranges are single ones.
    fn points(&self) -> Option<Vec<&[u8]>> {
        self.ranges.iter().map(Range::point).collect()
    }

    /// Tests with few values come first, then ranges with two bounds, then the others.
    fn width(&self) -> (usize, usize) {
        let is_open = |range: &Range| {
            matches!(range.lo, Bound::Unbounded) || matches!(range.hi, Bound::Unbounded)
        };
        match self.points() {
            Some(points) => (0, points.len()),
            None => (1 + usize::from(self.ranges.iter().any(is_open)), 0),
        }
    }
}

/// The ranges of a compound index that follow from some tests.
pub(super) struct Combined {
    pub(super) ranges: Vec<Range>,
    /// The tests.
    pub(super) tests: Vec<usize>,
    /// True if the ranges imply them.
    pub(super) is_exact: bool,
}

/// Combines tests that every match satisfies; `tests` has those of each field of the index. `None`
/// if there is none of the first field.
pub(super) fn combine(attribute: &Attribute, tests: Vec<Vec<FieldTest>>) -> Option<Combined> {
    let mut begins = vec![compound_begin(attribute.fields.len())];
    let (mut used, mut is_exact) = (Vec::new(), true);
    for of_field in tests {
        let Some(chosen) = of_field.into_iter().min_by_key(FieldTest::width) else {
            break;
        };
        let tag = compound_tag(chosen.ty)?;
        if begins.len() > 1 && begins.len().saturating_mul(chosen.ranges.len()) > MOST_RANGES {
            break;
        }
        used.push(chosen.test);
        is_exact &= chosen.is_exact;
        let begun = begins
            .iter()
            .map(|begin| [begin.as_slice(), &[tag]].concat());
        let Some(points) = chosen.points() else {
            let of_begin = |begin: Vec<u8>| {
                let ranges = chosen.ranges.iter();
                ranges
                    .map(move |range| behind(&begin, range))
                    .collect::<Vec<_>>()
            };
            return Some(Combined {
                ranges: begun.flat_map(of_begin).collect(),
                tests: used,
                is_exact,
            });
        };
        let joined = begun.flat_map(|begin| {
            let points = points.iter();
            points.map(move |point| [begin.as_slice(), point].concat())
        });
        begins = joined.collect();
    }
    let is_whole = used.len() == attribute.fields.len();
    let of_begin = if is_whole {
        Range::exactly
    } else {
        beginning_with
    };
    let ranges = begins.into_iter().map(of_begin);
    (!used.is_empty()).then(|| Combined {
        ranges: ranges.collect(),
        tests: used,
        is_exact,
    })
}

/// The values of a compound index in the order of one of its fields: all have the same values of
/// the fields before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldWalk {
    /// The place of the index in the shape.
    pub attribute: usize,
    /// The place of the constraint whose range is walked through.
    pub constraint: usize,
    /// The values, in one direction up to the last one that can match.
    pub range: Range,
    field: usize,
    /// The type of the field.
    pub ty: Type,
    /// The beginning of the values up to the tag of the field.
    begin: Vec<u8>,
    /// True if the range leaves out values at the beginning of the walk.
    leaves_out: bool,
}

impl FieldWalk {
    /// The walk through the values of `attribute` that are in the range of its constraint, which is
    /// at this place; `None` if they are not in the order of the field.
    ///
    /// A record with several values of the field is ordered by the first one that the walk meets,
    /// which may be outside of the range ([`FieldWalk::excluded`]).
    pub(super) fn new(
        at: usize,
        constraint: &Constraint,
        attribute: &Attribute,
        field: usize,
        ty: Type,
        is_backward: bool,
    ) -> Option<FieldWalk> {
        let (lo, hi) = constraint.sought_range()?.key_bounds();
        let mut begin = compound_head(&lo, field)?.to_vec();
        let end = after_prefix(&begin)?;
        let is_fixed = hi.as_ref().is_some_and(|hi| *hi <= end);
        if !is_fixed || field >= attribute.fields.len() {
            return None;
        }
        begin.push(compound_tag(ty)?);
        let (first, last) = (begin.clone(), after_prefix(&begin)?);
        let hi = hi?;
        let leaves_out = if is_backward { hi < last } else { lo > first };
        // Records with several values of the first field have no mark.
        (!leaves_out || field > 0).then(|| FieldWalk {
            attribute: constraint.attribute,
            constraint: at,
            range: Range::between(
                Bound::Included(lo.max(first)),
                Bound::Excluded(hi.min(last)),
            ),
            field,
            ty,
            begin,
            leaves_out,
        })
    }

    /// The bounds of the values that no current record may have for the walk to be in order: those
    /// of records with several values of the field. `None` if the range leaves nothing out where
    /// the walk begins.
    pub fn excluded(&self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mark = several(self.field).to_vec();
        let end = after_prefix(&mark);
        self.leaves_out.then_some((mark, end))
    }

    /// Begins at a value of the field, in the direction of the walk.
    pub fn begin_at(&mut self, value: &[u8], is_backward: bool) {
        let whole = [self.begin.as_slice(), value].concat();
        if is_backward {
            self.range.hi = end_of(&whole);
        } else {
            self.range.lo = Bound::Included(whole);
        }
    }

    /// The value of the field in one of the index.
    pub fn value_in<'a>(&self, value: &'a [u8]) -> Option<&'a [u8]> {
        compound_field(value, self.field)
    }
}

/// The values that begin with some bytes.
fn beginning_with(begin: Vec<u8>) -> Range {
    let hi = end_of(&begin);
    Range::between(Bound::Included(begin), hi)
}

/// The values that begin with some bytes and then have a value of the range.
fn behind(begin: &[u8], range: &Range) -> Range {
    let join = |value: &[u8]| [begin, value].concat();
    let lo = match &range.lo {
        Bound::Included(lo) => join(lo),
        // Never without an end: the first byte is the number of fields.
        Bound::Excluded(lo) => after_prefix(&join(lo)).unwrap_or_else(|| join(lo)),
        Bound::Unbounded => begin.to_vec(),
    };
    let hi = match &range.hi {
        Bound::Included(hi) => end_of(&join(hi)),
        Bound::Excluded(hi) => Bound::Excluded(join(hi)),
        Bound::Unbounded => end_of(begin),
    };
    Range::between(Bound::Included(lo), hi)
}

/// The end of the values that begin with some bytes.
fn end_of(begin: &[u8]) -> Bound<Vec<u8>> {
    after_prefix(begin).map_or(Bound::Unbounded, Bound::Excluded)
}
