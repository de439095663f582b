//! Anchors: a subscription is filed under a value that its condition demands, so that a publication
//! meets only the subscriptions of its topic that its own values can satisfy.
//!
//! - `symbol = "ABC"` is filed under that value.
//! - `price >= 5` is filed under 5, in a list sorted by number; a publication reads the part up to
//!   its own price.
//! - `5 <= price < 6` is filed under the few blocks of numbers, aligned to powers of two, that
//!   cover the range.
//!
//! The rest of a condition is evaluated, and so are conditions without such a demand (`or`, `not`,
//! `contains`). An anchor may lead to a subscription that does not match.
//!
//! Invariant: if a body satisfies a condition, one of the condition's anchors lies in the range
//! that [`AnchorShape::probe`] returns for a value of the body at the anchor's path. So a
//! publication meets every subscription that matches.

use std::sync::Arc;

use esker_coding::{Own, put_bytes};
use esker_model::condition::{Filter, Formula, Op, Operand, Predicate, Test};
use esker_model::schema::{Path, Scalar, Value};

/// How values are filed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Filing {
    /// Under an equal value.
    Equal,
    /// Under any string, for ranges of strings.
    AnyString,
    /// Under the lower bound, a number.
    AtLeast,
    /// Under the upper bound, a number.
    AtMost,
    /// Under this many leading bits, at most 64, of an encoded number.
    Block(u8),
}

impl Filing {
    /// The stored form: a tag, and the bits of a block.
    pub(crate) fn encode(&self) -> [u8; 2] {
        match self {
            Filing::Equal => [1, 0],
            Filing::AnyString => [2, 0],
            Filing::AtLeast => [3, 0],
            Filing::AtMost => [4, 0],
            Filing::Block(bits) => [5, *bits],
        }
    }

    /// Decodes the stored form; `None` if it is malformed.
    pub(crate) fn decode(stored: [u8; 2]) -> Option<Filing> {
        Some(match stored {
            [1, 0] => Filing::Equal,
            [2, 0] => Filing::AnyString,
            [3, 0] => Filing::AtLeast,
            [4, 0] => Filing::AtMost,
            [5, bits] if bits <= 64 => Filing::Block(bits),
            _ => return None,
        })
    }
}

/// The path of an anchor's values, and how they are filed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AnchorShape {
    pub(crate) path: AnchorPath,
    pub(crate) filing: Filing,
}

/// The path of an anchor's values. Keys have its text as it was first written, since other versions
/// may escape names differently.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AnchorPath {
    text: Arc<str>,
    path: Arc<Path>,
}

impl AnchorPath {
    fn new(path: &Path) -> AnchorPath {
        AnchorPath {
            text: path.to_string().into(),
            path: Arc::new(path.clone()),
        }
    }

    /// The path with this stored text; `None` if it is malformed.
    pub(crate) fn decode(text: &[u8]) -> Option<AnchorPath> {
        let text = std::str::from_utf8(text).ok()?;
        Some(AnchorPath {
            path: Arc::new(Path::parse(text).ok()?),
            text: text.into(),
        })
    }

    /// The stored form.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// A shape, and the value under which a subscription is filed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) shape: AnchorShape,
    pub(crate) value: Vec<u8>,
}

/// The anchors that a publication with a value meets, both ends included.
pub(crate) struct AnchorRange {
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
}

impl AnchorRange {
    fn one(value: Vec<u8>) -> AnchorRange {
        AnchorRange {
            first: value.clone(),
            last: value,
        }
    }
}

/// The maximum number of anchors of a subscription, which is written once under each.
const MAX_ANCHORS: usize = 4;

/// The maximum number of a string's bytes in an anchor.
const MAX_STRING: usize = 64;

impl AnchorShape {
    /// The prefix of its anchors' keys, behind the key of the list.
    pub(crate) fn prefix(&self) -> Vec<u8> {
        let path = self.path.text().as_bytes();
        let mut key = Vec::with_capacity(path.len() + 4);
        put_bytes(&mut key, path);
        let [tag, bits] = self.filing.encode();
        key.push(tag);
        if let Filing::Block(_) = self.filing {
            key.push(bits);
        }
        key
    }

    /// The anchors that a publication with this value at the path meets; `None` if it meets none.
    pub(crate) fn probe(&self, value: Scalar<'_>) -> Option<AnchorRange> {
        let number = value.as_f64().map(sortable);
        Some(match self.filing {
            Filing::Equal => AnchorRange::one(encode_value(value)),
            Filing::AnyString => match value {
                Scalar::Str(_) => AnchorRange::one(Vec::new()),
                _ => return None,
            },
            Filing::AtLeast => AnchorRange {
                first: vec![0; 8],
                last: number?.to_be_bytes().to_vec(),
            },
            Filing::AtMost => AnchorRange {
                first: number?.to_be_bytes().to_vec(),
                last: vec![0xff; 8],
            },
            Filing::Block(bits) => {
                AnchorRange::one(leading_bits(number?, bits).to_be_bytes().to_vec())
            }
        })
    }
}

impl Anchor {
    /// The key of the anchor, behind the key of the list.
    pub(crate) fn key(&self) -> Vec<u8> {
        let mut key = self.shape.prefix();
        key.extend_from_slice(&self.value);
        key
    }
}

/// The anchors of a condition: a body that satisfies it meets at least one of them. Empty if the
/// condition demands no value to file it under.
pub(crate) fn anchors(filter: &Filter) -> Vec<Anchor> {
    let demanded: Vec<usize> = match filter.formula() {
        Formula::Test(test) => vec![*test],
        Formula::And(parts) => {
            let tests = parts.iter().filter_map(|part| match part {
                Formula::Test(test) => Some(*test),
                _ => None,
            });
            tests.collect()
        }
        Formula::Or(_) | Formula::Not(_) => Vec::new(),
    };
    let tests = demanded.iter().map(|at| filter.tests().own(*at));
    let best = tests.filter_map(of_test).max_by_key(|ranked| ranked.rank);
    best.map_or_else(Vec::new, |ranked| ranked.anchors)
}

/// How much the anchors of a test select; more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Selectivity {
    /// A comparison with one bound.
    HalfOpen,
    /// A range with two bounds.
    Range,
    /// One of several values.
    Values,
    /// One value.
    Equality,
}

/// The anchors of a test.
struct RankedAnchors {
    rank: Selectivity,
    anchors: Vec<Anchor>,
}

/// The anchors of a test: a body that passes it meets at least one of them. `None` if it demands no
/// value, or too many.
fn of_test(test: &Test) -> Option<RankedAnchors> {
    let path = AnchorPath::new(&test.path);
    let anchor = |filing, value| Anchor {
        shape: AnchorShape {
            path: path.clone(),
            filing,
        },
        value,
    };
    let (rank, values) = match test.predicates.as_slice() {
        [Predicate::Compare(Op::Eq, operand)] => (Selectivity::Equality, equal_values(operand)?),
        [Predicate::In(operands)] => {
            let each: Option<Vec<Vec<Vec<u8>>>> = operands.iter().map(equal_values).collect();
            let mut values = each?.concat();
            values.sort_unstable();
            values.dedup();
            (Selectivity::Values, values)
        }
        predicates => return bounds_of(predicates)?.anchors(&anchor),
    };
    if values.is_empty() || values.len() > MAX_ANCHORS {
        return None;
    }
    let values = values.into_iter();
    let anchors = values.map(|value| anchor(Filing::Equal, value)).collect();
    Some(RankedAnchors { rank, anchors })
}

/// The bounds that a test demands of a value.
struct ValueBounds {
    /// Bounds of a number, encoded by [`sortable`].
    low: Option<u64>,
    high: Option<u64>,
    /// True if a number can pass the test: all bounds are numbers.
    admits_numbers: bool,
    /// True if a string can pass it: all bounds are texts.
    admits_strings: bool,
}

/// The bounds of a test that consists of comparisons by order; `None` for any other test.
fn bounds_of(predicates: &[Predicate]) -> Option<ValueBounds> {
    let mut bounds = ValueBounds {
        low: None,
        high: None,
        admits_numbers: true,
        admits_strings: true,
    };
    for predicate in predicates {
        let Predicate::Compare(op, operand) = predicate else {
            return None;
        };
        let number = match operand {
            Operand::Value(Value::Int(v)) => Some(*v as f64),
            Operand::Value(Value::Float(v)) => Some(*v),
            Operand::Value(Value::String(_)) => None,
            Operand::Text(text) if text.parse::<bool>().is_err() => number_in(text),
            _ => return None,
        };
        bounds.admits_numbers &= number.is_some();
        bounds.admits_strings &= operand.as_text().is_some();
        let bound = number.map(sortable);
        match op {
            Op::Ge | Op::Gt => bounds.low = bounds.low.max(bound),
            Op::Le | Op::Lt => {
                bounds.high = match (bounds.high, bound) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
            _ => return None,
        }
    }
    Some(bounds)
}

impl ValueBounds {
    /// The anchors of values within the bounds; `None` if there are too many, or no value is
    /// demanded.
    fn anchors(&self, anchor: &dyn Fn(Filing, Vec<u8>) -> Anchor) -> Option<RankedAnchors> {
        let mut anchors = Vec::new();
        let mut rank = Selectivity::HalfOpen;
        let under = |filing, number: u64| anchor(filing, number.to_be_bytes().to_vec());
        if self.admits_numbers {
            match (self.low, self.high) {
                (Some(low), Some(high)) => {
                    rank = Selectivity::Range;
                    // The smallest blocks of which few cover the range, or none if it is empty; one
                    // anchor is left for strings.
                    let bits = (0..=64).rev().find(|bits| {
                        let (first, last) = (leading_bits(low, *bits), leading_bits(high, *bits));
                        last.saturating_sub(first) < MAX_ANCHORS as u64 - 1
                    })?;
                    let blocks = leading_bits(low, bits)..=leading_bits(high, bits);
                    anchors.extend(blocks.map(|block| under(Filing::Block(bits), block)));
                }
                (Some(low), None) => anchors.push(under(Filing::AtLeast, low)),
                (None, Some(high)) => anchors.push(under(Filing::AtMost, high)),
                (None, None) => return None,
            }
        }
        if self.admits_strings {
            anchors.push(anchor(Filing::AnyString, Vec::new()));
        }
        debug_assert!(anchors.len() <= MAX_ANCHORS);
        (!anchors.is_empty()).then_some(RankedAnchors { rank, anchors })
    }
}

/// The anchor values of all values that are equal to an operand.
fn equal_values(operand: &Operand) -> Option<Vec<Vec<u8>>> {
    Some(match operand {
        Operand::Value(Value::String(text)) => vec![encode_value(Scalar::Str(text))],
        Operand::Value(Value::Int(v)) => vec![encode_value(Scalar::Int(*v))],
        Operand::Value(Value::Float(v)) => vec![encode_value(Scalar::Float(*v))],
        Operand::Value(Value::Bool(v)) => vec![encode_value(Scalar::Bool(*v))],
        Operand::Text(text) => {
            let mut values = vec![encode_value(Scalar::Str(text))];
            values.extend(number_in(text).map(|v| encode_value(Scalar::Float(v))));
            values.extend(text.parse().ok().map(|v| encode_value(Scalar::Bool(v))));
            values
        }
        _ => return None,
    })
}

/// The number that a text is, as conditions read it.
fn number_in(text: &str) -> Option<f64> {
    let whole = text.parse::<i128>().ok().map(|v| v as f64);
    // `1e999` is a number, though it parses as infinite; `inf` and `nan` are not.
    let is_number = text.ends_with(|c: char| c.is_ascii_digit() || c == '.');
    whole.or_else(|| text.parse().ok().filter(|_| is_number))
}

/// The anchor value of a value, the same for equal values.
fn encode_value(value: Scalar<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let put_number = |out: &mut Vec<u8>, number: f64| {
        out.push(b'n');
        out.extend_from_slice(&sortable(number).to_be_bytes());
    };
    match value {
        Scalar::Str(text) => {
            out.push(b's');
            let bytes = text.as_bytes();
            out.extend_from_slice(bytes.own(..bytes.len().min(MAX_STRING)));
        }
        Scalar::Bool(truth) => out.extend([b'b', u8::from(truth)]),
        Scalar::Int(number) => put_number(&mut out, number as f64),
        Scalar::Float(number) => put_number(&mut out, number),
    }
    out
}

/// Encodes a number so that the encodings sort as the numbers do.
fn sortable(number: f64) -> u64 {
    // Turns -0.0 into 0.0.
    let bits = (number + 0.0).to_bits();
    let is_negative = bits >> 63 == 1;
    if is_negative { !bits } else { bits | 1 << 63 }
}

/// The leading `bits` bits, at most 64, of a number; 0 for no bits.
fn leading_bits(number: u64, bits: u8) -> u64 {
    debug_assert!(bits <= 64);
    if bits == 0 { 0 } else { number >> (64 - bits) }
}
