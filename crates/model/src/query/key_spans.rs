//! The primary keys that the matches of a condition can have: a scan reads these records alone.

use std::ops::Bound;

use crate::condition::{Formula, Op, Operand, Predicate, Test};
use crate::range::Range;
use crate::schema::{KeyType, Type, Value, field_of_key};

/// Up to so many keys are looked up one by one, without an index.
const FEW_KEYS: usize = 64;

/// The most combinations of values of several fields whose keys are read one by one.
const MOST_COMBINED: usize = 1 << 16;

/// Encoded keys from the first on, up to but without the second; `None` is past the last key.
pub type Span = (Vec<u8>, Option<Vec<u8>>);

/// The keys that matches can have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySpans {
    /// Ascending, without overlap; `None` if matches can have any key.
    spans: Option<Vec<Span>>,
    /// True if each span holds a single key.
    are_points: bool,
}

impl KeySpans {
    /// The keys that satisfy tests of the key's path, all of which every match satisfies. A test
    /// that says nothing of keys leaves them open.
    pub(super) fn of<'t>(ty: KeyType, tests: impl Iterator<Item = &'t Test>) -> KeySpans {
        let predicates = tests.flat_map(|test| &test.predicates);
        predicates
            .filter_map(|predicate| spans(ty, predicate))
            .fold(KeySpans::default(), KeySpans::and)
    }

    /// The keys of several fields that satisfy tests of these fields, all of which every match
    /// satisfies: `fields` has the tests of each field, in the order of the fields.
    ///
    /// The leading fields with a list of values give the first bytes of a key; the first field with
    /// a range ends them, and nothing is known of the fields behind it.
    pub(super) fn of_fields(fields: &[Vec<&Test>]) -> KeySpans {
        let mut begins = vec![Vec::new()];
        for tests in fields {
            let predicates = tests.iter().flat_map(|test| &test.predicates);
            let field = predicates
                .filter_map(of_field)
                .fold(KeySpans::default(), KeySpans::and);
            let Some(spans) = field.spans else {
                return KeySpans::beginning_with(begins);
            };
            let each = begins.iter().flat_map(|begin| {
                let join = |end: &Vec<u8>| [begin.as_slice(), end].concat();
                spans.iter().map(move |(lo, hi)| {
                    let hi = hi.as_ref().map(join).or_else(|| behind_all_of(begin));
                    (join(lo), hi)
                })
            });
            if begins.len() > 1 && begins.len() * spans.len() > MOST_COMBINED {
                return KeySpans::beginning_with(begins);
            }
            if !field.are_points {
                return KeySpans {
                    spans: Some(each.collect()),
                    are_points: false,
                };
            }
            begins = each.map(|(lo, _)| lo).collect();
        }
        let points = begins.into_iter().map(|key| {
            let hi = behind(&key);
            (key, Some(hi))
        });
        KeySpans {
            spans: Some(points.collect()),
            are_points: true,
        }
    }

    /// The keys of a span.
    pub fn of_span(span: Span) -> KeySpans {
        KeySpans {
            spans: Some(vec![span]),
            are_points: false,
        }
    }

    /// The keys that begin with one of `begins`. These are ascending, and none begins with another.
    fn beginning_with(begins: Vec<Vec<u8>>) -> KeySpans {
        if begins.iter().any(Vec::is_empty) {
            return KeySpans::default();
        }
        let spans = begins.into_iter().map(|begin| {
            let hi = behind_all_of(&begin);
            (begin, hi)
        });
        KeySpans {
            spans: Some(spans.collect()),
            are_points: false,
        }
    }

    /// The keys that satisfy a formula; `of_tests` gives those that satisfy some of its tests
    /// together.
    pub(super) fn of_formula(
        formula: &Formula,
        of_tests: &dyn Fn(&[usize]) -> KeySpans,
    ) -> KeySpans {
        match formula {
            Formula::Test(test) => of_tests(&[*test]),
            // Spans may hold more keys than satisfy a test, so that their complement may hold too
            // few.
            Formula::Not(_) => KeySpans::default(),
            Formula::And(parts) => {
                let mut tests = Vec::new();
                let mut keys = KeySpans::default();
                for part in parts {
                    match part {
                        Formula::Test(test) => tests.push(*test),
                        other => keys = keys.and(KeySpans::of_formula(other, of_tests)),
                    }
                }
                keys.and(of_tests(&tests))
            }
            Formula::Or(parts) => {
                let parts = parts.iter();
                KeySpans::any(parts.map(|part| KeySpans::of_formula(part, of_tests)))
            }
        }
    }

    /// The keys of one of these at least. They are sorted once, since there may be many.
    fn any(each: impl Iterator<Item = KeySpans>) -> KeySpans {
        let (mut all, mut are_points) = (Vec::new(), true);
        for keys in each {
            let Some(spans) = keys.spans else {
                return KeySpans::default();
            };
            all.extend(spans);
            are_points &= keys.are_points;
        }
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut spans: Vec<Span> = Vec::with_capacity(all.len());
        for (lo, hi) in all {
            match spans.last_mut() {
                // Spans that only touch stay apart, like those of neighbouring keys.
                Some((_, end)) if end.as_ref().is_none_or(|end| lo < *end) => {
                    if hi.is_none() || end.as_ref().is_some_and(|end| hi.as_ref() > Some(end)) {
                        *end = hi;
                    }
                }
                _ => spans.push((lo, hi)),
            }
        }
        let spans = Some(spans);
        KeySpans { spans, are_points }
    }

    fn and(self, other: KeySpans) -> KeySpans {
        let (mine, theirs) = match (self.spans, other.spans) {
            (Some(mine), Some(theirs)) => (mine, theirs),
            (mine, theirs) => {
                return KeySpans {
                    spans: mine.or(theirs),
                    are_points: self.are_points || other.are_points,
                };
            }
        };
        let mut spans = Vec::new();
        let (mut mine, mut theirs) = (mine.iter().peekable(), theirs.iter().peekable());
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            let lo = a.0.as_slice().max(&b.0);
            let (hi, ends_first) = match (&a.1, &b.1) {
                (Some(x), Some(y)) => (Some(x.min(y)), x <= y),
                (x, y) => (x.as_ref().or(y.as_ref()), x.is_some()),
            };
            if hi.is_none_or(|hi| lo < hi.as_slice()) {
                spans.push((lo.to_vec(), hi.cloned()));
            }
            if ends_first {
                mine.next()
            } else {
                theirs.next()
            };
        }
        KeySpans {
            spans: Some(spans),
            are_points: self.are_points || other.are_points,
        }
    }

    /// True if matches can have any key.
    pub fn is_all(&self) -> bool {
        self.spans.is_none()
    }

    /// True if the keys are so few that looking up each is the quickest way.
    pub fn are_few(&self) -> bool {
        let spans = self.spans.as_ref().filter(|_| self.are_points);
        spans.is_some_and(|spans| spans.len() <= FEW_KEYS)
    }

    /// What a scan of the keys reads, for people.
    pub fn text(&self) -> String {
        match &self.spans {
            None => "all records".to_owned(),
            Some(_) if !self.are_points => "the records in a range of keys".to_owned(),
            Some(keys) if keys.len() == 1 => "the record of a key".to_owned(),
            Some(keys) => format!("the records of {} keys", keys.len()),
        }
    }

    /// True if each span holds a single key.
    pub fn are_points(&self) -> bool {
        self.are_points
    }

    /// The spans, ascending and without overlap; `None` if matches can have any key.
    pub fn spans(&self) -> Option<&[Span]> {
        self.spans.as_deref()
    }
}

/// The first key behind one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The first key behind all that begin with some bytes; `None` if these are the last keys.
fn behind_all_of(begin: &[u8]) -> Option<Vec<u8>> {
    let mut next = begin.to_vec();
    while let Some(last) = next.pop() {
        if last < u8::MAX {
            next.push(last + 1);
            return Some(next);
        }
    }
    None
}

fn spans(ty: KeyType, predicate: &Predicate) -> Option<KeySpans> {
    match ty {
        KeyType::Int => of_integers(predicate),
        KeyType::String => of_strings(predicate),
        KeyType::Fields => None,
    }
}

/// The values of one field of a composite key, as [`field_of_key`] encodes it: integers and texts,
/// as far as the operand is comparable with them. No encoded field begins with another.
fn of_field(predicate: &Predicate) -> Option<KeySpans> {
    let is_time = |operand: &Operand| matches!(operand, Operand::Value(Value::Time(_)));
    match predicate {
        // A time is compared with numbers and with texts of many forms.
        _ if predicate.operands().iter().any(is_time) => return None,
        Predicate::Compare(Op::Ne, _) => return None,
        Predicate::Compare(..) | Predicate::In(_) => {}
        _ => return None,
    }
    let (mut all, mut are_points) = (Vec::new(), true);
    for ty in [Type::Int, Type::String] {
        for range in predicate.to_ranges_where_comparable(ty) {
            are_points &= range.point().is_some();
            all.push(of_range(ty, range)?);
        }
    }
    Some(KeySpans {
        spans: Some(all),
        are_points,
    })
}

fn of_range(ty: Type, range: Range) -> Option<Span> {
    let tag = field_of_key(ty)?;
    let tagged = |value: Vec<u8>| [&[tag], value.as_slice()].concat();
    let lo = match range.lo {
        Bound::Unbounded => vec![tag],
        Bound::Included(lo) => tagged(lo),
        Bound::Excluded(lo) => behind_all_of(&tagged(lo))?,
    };
    let hi = match range.hi {
        Bound::Unbounded => behind_all_of(&[tag]),
        Bound::Included(hi) => behind_all_of(&tagged(hi)),
        Bound::Excluded(hi) => Some(tagged(hi)),
    };
    Some((lo, hi))
}

/// Keys that are integers, which are encoded like values.
fn of_integers(predicate: &Predicate) -> Option<KeySpans> {
    let ranges = match predicate {
        Predicate::Compare(Op::Ne, _) => return None,
        Predicate::Compare(..) | Predicate::In(_) => predicate.to_ranges(Type::Int).ok()?,
        _ => return None,
    };
    let are_points = ranges.iter().all(|range| range.point().is_some());
    let spans = ranges.into_iter().map(|range| {
        let lo = match range.lo {
            Bound::Unbounded => Vec::new(),
            Bound::Included(lo) => lo,
            Bound::Excluded(lo) => behind(&lo),
        };
        let hi = match range.hi {
            Bound::Unbounded => None,
            Bound::Included(hi) => Some(behind(&hi)),
            Bound::Excluded(hi) => Some(hi),
        };
        (lo, hi)
    });
    Some(KeySpans {
        spans: Some(spans.collect()),
        are_points,
    })
}

/// Keys that are strings: a key is the text itself.
fn of_strings(predicate: &Predicate) -> Option<KeySpans> {
    let text = |operand: &Operand| operand.as_text().map(|text| text.as_bytes().to_vec());
    let point = |text: Vec<u8>| {
        let hi = behind(&text);
        (text, Some(hi))
    };
    let (spans, are_points) = match predicate {
        Predicate::Compare(op, operand) => {
            let text = text(operand)?;
            let span = match op {
                Op::Eq => point(text),
                Op::Ge => (text, None),
                Op::Gt => (behind(&text), None),
                Op::Le => (Vec::new(), Some(behind(&text))),
                Op::Lt => (Vec::new(), Some(text)),
                // No byte of a text is the greatest, so this is behind all that begin with it.
                Op::Prefix => (text.clone(), Some([text.as_slice(), &[u8::MAX]].concat())),
                _ => return None,
            };
            (vec![span], *op == Op::Eq)
        }
        Predicate::In(operands) => {
            let texts: Option<Vec<Vec<u8>>> = operands.iter().map(text).collect();
            let mut texts = texts?;
            texts.sort_unstable();
            texts.dedup();
            (texts.into_iter().map(point).collect(), true)
        }
        _ => return None,
    };
    let spans = Some(spans);
    Some(KeySpans { spans, are_points })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joining them one by one would take hours.
    #[test]
    fn the_keys_of_a_long_or_are_joined_at_once() {
        const MANY: usize = 1 << 20;
        let key = |test: usize| {
            let mut key = Vec::new();
            // Descending, each twice.
            Value::Int(((MANY - test) / 2) as i128).encode(&mut key);
            key
        };
        let of_tests = |tests: &[usize]| {
            let points = tests
                .iter()
                .map(|test| (key(*test), Some(behind(&key(*test)))));
            KeySpans {
                spans: Some(points.collect()),
                are_points: true,
            }
        };
        let formula = Formula::Or((0..MANY).map(Formula::Test).collect());
        let keys = KeySpans::of_formula(&formula, &of_tests);
        let spans = keys.spans().unwrap();
        assert!(keys.are_points() && spans.is_sorted());
        assert_eq!(spans.len(), MANY / 2 + 1);
    }
}
