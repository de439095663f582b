//! Conditions on a place and on a time, combined to a range of an index over both.

use std::ops::Bound;

use esker_coding::Reader;

use super::Attribute;
use crate::condition::{Predicate, Test};
use crate::error::{Error, Result};
use crate::range::Range;
use crate::region::Region;
use crate::schema::{Type, Value, point_time_paths};

/// The first and the last microsecond of a range of times.
pub(super) struct Window {
    from: i64,
    to: i64,
    /// True if every time in the window is in the range that it was made of. (The converse always
    /// holds.)
    exact: bool,
    /// True if no value in the range is beyond all times.
    pub(super) has_all: bool,
}

impl Window {
    /// The window of a range of an attribute; `None` for a range without bounds, and for values
    /// that are not times.
    pub(super) fn of(range: &Range, ty: Type) -> Option<Window> {
        if (&range.lo, &range.hi) == (&Bound::Unbounded, &Bound::Unbounded) {
            return None;
        }
        let step = match ty {
            ty if ty.is_time() => 1,
            Type::Int => 1_000_000,
            Type::Float => 0,
            _ => return None,
        };
        let bound = |bound: &Bound<Vec<u8>>, beyond: i128, towards: i128| {
            let (bytes, excluded) = match bound {
                Bound::Included(bytes) => (bytes, false),
                Bound::Excluded(bytes) => (bytes, true),
                Bound::Unbounded => return Some(beyond),
            };
            let micros = match Value::decode(ty, &mut Reader::new(bytes))? {
                Value::Time(micros) => i128::from(micros),
                Value::Int(seconds) => seconds.saturating_mul(1_000_000),
                // As the time of a record is rounded; the conversion saturates.
                Value::Float(seconds) => (seconds * 1e6).round() as i128,
                _ => return None,
            };
            Some(if excluded {
                micros + towards * step
            } else {
                micros
            })
        };
        let (least, most) = (i128::from(i64::MIN), i128::from(i64::MAX));
        let ends = [bound(&range.lo, least, 1)?, bound(&range.hi, most, -1)?];
        let [from, to] = ends;
        Some(Window {
            from: from.clamp(least, most) as i64,
            to: to.clamp(least, most) as i64,
            // No time is beyond what the attribute can have.
            exact: ty != Type::Float && from <= most && to >= least,
            has_all: ends.iter().all(|end| (least..=most).contains(end))
                && [&range.lo, &range.hi]
                    .into_iter()
                    .all(|end| *end != Bound::Unbounded),
        })
    }
}

/// The range of an attribute of place and time that follows from some tests.
pub(super) struct Combined {
    pub(super) range: Range,
    /// The tests.
    pub(super) tests: Vec<usize>,
    /// True if the range implies them.
    pub(super) is_exact: bool,
}

/// Combines tests that every match satisfies, if at least one is of an area at the place of
/// `attribute`, and one bounds its time. `window` gives the window of a test on a declared
/// attribute.
pub(super) fn combine<'t>(
    attribute: &Attribute,
    tests: impl Iterator<Item = (usize, &'t Test)>,
    window: &dyn Fn(usize) -> Option<Window>,
) -> Result<Option<Combined>> {
    let Some(space) = attribute.ty.timed_space() else {
        return Ok(None);
    };
    let (point, time) = point_time_paths(&attribute.path)?;
    let (mut areas, mut when, mut combined) = (Vec::new(), None, Vec::new());
    for (number, test) in tests {
        if test.path == point
            && let [Predicate::Within(area)] = test.predicates.as_slice()
        {
            areas.push(area.area(space)?);
        } else if test.path == time
            && when.is_none()
            && let Some(window) = window(number)
        {
            // Two tests of an array of times may hold for different elements, so that the two
            // windows must not be intersected: the first test alone is used.
            when = Some(window);
        } else {
            continue;
        }
        combined.push(number);
    }
    let (Some(window), false) = (when, areas.is_empty()) else {
        return Ok(None);
    };
    let regions = areas.into_iter();
    let ranges =
        regions.map(|area| Range::of_region(Region::at_times(area, window.from, window.to)));
    let range = ranges.reduce(Range::and);
    Ok(Some(Combined {
        range: range.ok_or_else(|| Error::damaged("a place without an area"))?,
        tests: combined,
        is_exact: window.exact,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_the_times_of_a_range() {
        let window = |lo: Bound<Value>, hi: Bound<Value>, ty| {
            let range = Range::between(lo.map(|v| v.encoded()), hi.map(|v| v.encoded()));
            Window::of(&range, ty).map(|w| (w.from, w.to, w.exact, w.has_all))
        };
        use Bound::{Excluded, Included, Unbounded};
        let (int, time) = (Value::Int, Value::Time);
        let (max, min) = (i64::MAX, i64::MIN);
        for (lo, hi, ty, wanted) in [
            (
                Included(int(3)),
                Excluded(int(5)),
                Type::Int,
                Some((3_000_000, 4_000_000, true, true)),
            ),
            (
                Excluded(time(3)),
                Included(time(9)),
                Type::Time,
                Some((4, 9, true, true)),
            ),
            (
                Excluded(time(max)),
                Unbounded,
                Type::Time,
                Some((max, max, false, false)),
            ),
            (
                Unbounded,
                Included(int(-1)),
                Type::Int,
                Some((min, -1_000_000, true, false)),
            ),
            (
                Included(int(1 << 62)),
                Unbounded,
                Type::Int,
                Some((max, max, false, false)),
            ),
            (Unbounded, Unbounded, Type::Time, None),
            (
                Included(Value::Float(0.5)),
                Included(Value::Float(1e300)),
                Type::Float,
                Some((500_000, max, false, false)),
            ),
            (
                Included(int(-5)),
                Included(int(9_223_372_036_854)),
                Type::Int,
                Some((-5_000_000, 9_223_372_036_854_000_000, true, true)),
            ),
            (
                Included(int(-5)),
                Included(int(9_223_372_036_855)),
                Type::Int,
                Some((-5_000_000, max, true, false)),
            ),
            (Included(Value::Bool(true)), Unbounded, Type::Bool, None),
        ] {
            assert_eq!(window(lo.clone(), hi.clone(), ty), wanted, "{lo:?} {hi:?}");
        }
    }
}
