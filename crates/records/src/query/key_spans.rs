//! What a condition says of the primary keys of its matches: a scan reads those records alone.

use std::ops::Bound;
use std::vec;

use esker_lsm::{Cost, Cursor, Seq, Slice, Snapshot, TreeCursor, TreeId};
use esker_model::condition::{Formula, Op, Operand, Predicate as Asked, Test};
use esker_model::range::Range;
use esker_model::schema::{KeyType, Type, Value, field_of_key};

use super::scan::READAHEAD;
use crate::error::Result;

/// With so many keys at most, no index is asked.
const FEW_KEYS: usize = 64;

/// Encoded keys from the first on, up to but without the second; `None` is past the last key.
type Span = (Vec<u8>, Option<Vec<u8>>);

/// The keys that matches can have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeySpans {
    /// In order, without overlap; `None` where any key will do.
    spans: Option<Vec<Span>>,
    /// The spans are of single keys.
    are_points: bool,
}

impl KeySpans {
    /// The keys that meet tests of the key's path, each of which every match meets. What such a test does not say of keys is left open.
    pub(super) fn of<'t>(ty: KeyType, tests: impl Iterator<Item = &'t Test>) -> KeySpans {
        let asked = tests.flat_map(|test| &test.predicates);
        asked
            .filter_map(|asked| spans(ty, asked))
            .fold(KeySpans::default(), KeySpans::and)
    }

    /// The keys of several fields that meet tests of these, each of which every match meets: of each field, in order, its tests.
    ///
    /// Fields that have to be one of a few values are what a key begins with, up to the first that has not: that one has the
    /// rest of what is known.
    pub(super) fn of_fields(fields: &[Vec<&Test>]) -> KeySpans {
        let mut begins = vec![Vec::new()];
        for tests in fields {
            let asked = tests.iter().flat_map(|test| &test.predicates);
            let field = asked
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
            if begins.len() * spans.len() > FEW_KEYS {
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

    /// The keys that begin with one of these, which are in order, and none of which begins with another.
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

    /// The keys that a formula leaves; `of_tests` says which keys some of its tests leave where a match meets them all.
    pub(super) fn of_formula(
        formula: &Formula,
        of_tests: &dyn Fn(&[usize]) -> KeySpans,
    ) -> KeySpans {
        match formula {
            Formula::Test(test) => of_tests(&[*test]),
            // Spans may hold more keys than meet a test, so what is not in them says nothing: any key will do.
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
            Formula::Or(parts) => parts
                .iter()
                .map(|part| KeySpans::of_formula(part, of_tests))
                .reduce(KeySpans::or)
                .unwrap_or_default(),
        }
    }

    /// The keys of either.
    fn or(self, other: KeySpans) -> KeySpans {
        let (Some(mut all), Some(more)) = (self.spans, other.spans) else {
            return KeySpans::default();
        };
        all.extend(more);
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut spans: Vec<Span> = Vec::with_capacity(all.len());
        for (lo, hi) in all {
            match spans.last_mut() {
                // Spans that only touch stay apart, as those of neighbouring keys are.
                Some((_, end)) if end.as_ref().is_none_or(|end| lo < *end) => {
                    if hi.is_none() || end.as_ref().is_some_and(|end| hi.as_ref() > Some(end)) {
                        *end = hi;
                    }
                }
                _ => spans.push((lo, hi)),
            }
        }
        KeySpans {
            spans: Some(spans),
            are_points: self.are_points && other.are_points,
        }
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
            match ends_first {
                true => mine.next(),
                false => theirs.next(),
            };
        }
        KeySpans {
            spans: Some(spans),
            are_points: self.are_points || other.are_points,
        }
    }

    /// True when nothing is known of the keys.
    pub(super) fn is_all(&self) -> bool {
        self.spans.is_none()
    }

    /// True when these are so few keys that looking at each is the quickest way.
    pub(super) fn are_few(&self) -> bool {
        let spans = self.spans.as_ref().filter(|_| self.are_points);
        spans.is_some_and(|spans| spans.len() <= FEW_KEYS)
    }

    /// What a scan of them reads, for people.
    pub(super) fn text(&self) -> String {
        match &self.spans {
            None => "all records".to_owned(),
            Some(_) if !self.are_points => "the records in a range of keys".to_owned(),
            Some(keys) if keys.len() == 1 => "the record of a key".to_owned(),
            Some(keys) => format!("the records of {} keys", keys.len()),
        }
    }

    /// A cursor over the entries of these keys in the tree of the records, at the first of them.
    pub(super) fn cursor(&self, snapshot: &Snapshot, tree: TreeId) -> Result<KeyCursor> {
        let readahead = if self.are_points { 0 } else { READAHEAD };
        let spans = self.spans.clone();
        let mut cursor = KeyCursor {
            cursor: snapshot.cursor(tree, readahead),
            left: spans
                .unwrap_or_else(|| vec![(Vec::new(), None)])
                .into_iter(),
        };
        cursor.settle()?;
        Ok(cursor)
    }
}

/// A cursor over the newest entries of some keys.
pub(super) struct KeyCursor {
    cursor: TreeCursor,
    left: vec::IntoIter<Span>,
}

impl KeyCursor {
    pub(super) fn valid(&self) -> bool {
        self.cursor.valid()
    }

    pub(super) fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    pub(super) fn seq(&self) -> Seq {
        self.cursor.seq()
    }

    pub(super) fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    pub(super) fn value_slice(&self) -> Slice {
        self.cursor.value_slice()
    }

    pub(super) fn cost(&self) -> Cost {
        self.cursor.cost()
    }

    pub(super) fn next(&mut self) -> Result<()> {
        self.cursor.next()?;
        self.settle()
    }

    /// Moves to the first entry of the next span that has one, where the span is at its end.
    fn settle(&mut self) -> Result<()> {
        while !self.cursor.valid()
            && let Some((lo, hi)) = self.left.next()
        {
            self.cursor.within(&lo, hi.as_deref());
            self.cursor.seek_first()?;
        }
        Ok(())
    }
}

/// The first key behind one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The first key behind all that begin with some bytes; `None` where there is none.
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

fn spans(ty: KeyType, asked: &Asked) -> Option<KeySpans> {
    match ty {
        KeyType::Int => of_integers(asked),
        KeyType::String => of_strings(asked),
        KeyType::Fields => None,
    }
}

/// Of a field of a key of several, as [`field_of_key`] encodes it: whole numbers and texts, whichever the operand is compared with.
/// No encoded field begins with another.
fn of_field(asked: &Asked) -> Option<KeySpans> {
    let is_time = |operand: &Operand| matches!(operand, Operand::Value(Value::Time(_)));
    match asked {
        // Times are compared with numbers and texts of many forms.
        _ if asked.operands().iter().any(is_time) => return None,
        Asked::Compare(Op::Ne, _) => return None,
        Asked::Compare(..) | Asked::In(_) => {}
        _ => return None,
    }
    let (mut all, mut are_points) = (Vec::new(), true);
    for ty in [Type::Int, Type::String] {
        for range in asked.to_ranges_where_comparable(ty) {
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

/// Of integers: they are encoded as values are.
fn of_integers(asked: &Asked) -> Option<KeySpans> {
    let ranges = match asked {
        Asked::Compare(Op::Ne, _) => return None,
        Asked::Compare(..) | Asked::In(_) => asked.to_ranges(Type::Int).ok()?,
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

/// Of strings: a key is the text itself.
fn of_strings(asked: &Asked) -> Option<KeySpans> {
    let text = |operand: &Operand| operand.as_text().map(|text| text.as_bytes().to_vec());
    let point = |text: Vec<u8>| {
        let hi = behind(&text);
        (text, Some(hi))
    };
    let (spans, are_points) = match asked {
        Asked::Compare(op, operand) => {
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
        Asked::In(operands) => {
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
