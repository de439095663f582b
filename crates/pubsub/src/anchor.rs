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
//! `contains`). An anchor may lead to a subscription that does not match, but a publication meets
//! every subscription that does.

use std::sync::Arc;

use esker_coding::put_bytes;
use esker_model::condition::{Filter, Formula, Op, Operand, Predicate, Test};
use esker_model::schema::{Scalar, Value};

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
    /// Under this many leading bits of an encoded number.
    Block(u8),
}

/// The path of an anchor's values, and how they are filed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AnchorShape {
    pub(crate) path: Arc<str>,
    pub(crate) filing: Filing,
}

/// A shape, and the value under which a subscription is filed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) shape: AnchorShape,
    pub(crate) value: Vec<u8>,
}

/// The maximum number of anchors of a subscription, which is written once under each.
const MOST: usize = 4;

/// The maximum number of a string's bytes in an anchor.
const STRING: usize = 64;

impl AnchorShape {
    /// The prefix of its anchors' keys, behind the key of the list.
    pub(crate) fn prefix(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.path.len() + 4);
        put_bytes(&mut key, self.path.as_bytes());
        match self.filing {
            Filing::Equal => key.push(1),
            Filing::AnyString => key.push(2),
            Filing::AtLeast => key.push(3),
            Filing::AtMost => key.push(4),
            Filing::Block(bits) => key.extend([5, bits]),
        }
        key
    }

    /// The range of anchors (both ends included) that a publication with this value at the path
    /// meets; `None` if it meets none.
    pub(crate) fn probe(&self, value: Scalar<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
        let number = value.as_f64().map(sortable);
        let point = |bytes: Vec<u8>| Some((bytes.clone(), bytes));
        match self.filing {
            Filing::Equal => point(equal(value)),
            Filing::AnyString => match value {
                Scalar::Str(_) => point(Vec::new()),
                _ => None,
            },
            Filing::AtLeast => Some((vec![0; 8], number?.to_be_bytes().to_vec())),
            Filing::AtMost => Some((number?.to_be_bytes().to_vec(), vec![0xff; 8])),
            Filing::Block(bits) => point(block(number?, bits).to_be_bytes().to_vec()),
        }
    }
}

impl Anchor {
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
    let tests = demanded.iter().filter_map(|at| filter.tests().get(*at));
    let best = tests.filter_map(of_test).max_by_key(|(worth, _)| *worth);
    best.map_or_else(Vec::new, |(_, anchors)| anchors)
}

/// The anchors of a test, and a rank of their selectivity.
fn of_test(test: &Test) -> Option<(u8, Vec<Anchor>)> {
    let path: Arc<str> = test.path.to_string().into();
    let anchor = |filing, value| Anchor {
        shape: AnchorShape {
            path: path.clone(),
            filing,
        },
        value,
    };
    let (worth, anchors) = match test.predicates.as_slice() {
        [Predicate::Compare(Op::Eq, operand)] => (4, equals(operand)?),
        [Predicate::In(operands)] => {
            let each: Option<Vec<Vec<Vec<u8>>>> = operands.iter().map(equals).collect();
            let mut values = each?.concat();
            values.sort_unstable();
            values.dedup();
            (3, values)
        }
        predicates => return of_range(predicates, &anchor),
    };
    let anchors: Vec<Anchor> = anchors
        .into_iter()
        .map(|value| anchor(Filing::Equal, value))
        .collect();
    (anchors.len() <= MOST && !anchors.is_empty()).then_some((worth, anchors))
}

fn of_range(
    predicates: &[Predicate],
    anchor: &dyn Fn(Filing, Vec<u8>) -> Anchor,
) -> Option<(u8, Vec<Anchor>)> {
    let (mut low, mut high) = (None::<u64>, None::<u64>);
    let mut has_strings = true;
    let mut has_numbers = true;
    for predicate in predicates {
        let Predicate::Compare(op, operand) = predicate else {
            return None;
        };
        let number = match operand {
            Operand::Value(Value::Int(v)) => Some(*v as f64),
            Operand::Value(Value::Float(v)) => Some(*v),
            Operand::Value(Value::String(_)) => None,
            Operand::Text(text) if text.parse::<bool>().is_err() => number(text),
            _ => return None,
        };
        has_numbers &= number.is_some();
        has_strings &= operand.as_text().is_some();
        let bound = number.map(sortable);
        match op {
            Op::Ge | Op::Gt => low = low.max(bound),
            Op::Le | Op::Lt => {
                high = match (high, bound) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
            _ => return None,
        }
    }
    let mut anchors = Vec::new();
    let mut worth = 1;
    if has_numbers {
        match (low, high) {
            (Some(low), Some(high)) => {
                worth = 2;
                // The smallest blocks of which few cover the range.
                let bits = (0..=64).rev().find(|bits| {
                    block(high, *bits).saturating_sub(block(low, *bits)) < MOST as u64 - 1
                })?;
                let blocks = block(low, bits)..=block(high, bits);
                let each = blocks.map(|n| anchor(Filing::Block(bits), n.to_be_bytes().to_vec()));
                anchors.extend(each);
            }
            (Some(low), None) => anchors.push(anchor(Filing::AtLeast, low.to_be_bytes().to_vec())),
            (None, Some(high)) => anchors.push(anchor(Filing::AtMost, high.to_be_bytes().to_vec())),
            (None, None) => return None,
        }
    }
    if has_strings {
        anchors.push(anchor(Filing::AnyString, Vec::new()));
    }
    (!anchors.is_empty()).then_some((worth, anchors))
}

/// The filed forms of all values that are equal to an operand.
fn equals(operand: &Operand) -> Option<Vec<Vec<u8>>> {
    Some(match operand {
        Operand::Value(Value::String(text)) => vec![equal(Scalar::Str(text))],
        Operand::Value(Value::Int(v)) => vec![equal(Scalar::Int(*v))],
        Operand::Value(Value::Float(v)) => vec![equal(Scalar::Float(*v))],
        Operand::Value(Value::Bool(v)) => vec![equal(Scalar::Bool(*v))],
        Operand::Text(text) => {
            let mut values = vec![equal(Scalar::Str(text))];
            values.extend(number(text).map(|v| equal(Scalar::Float(v))));
            values.extend(text.parse().ok().map(|v| equal(Scalar::Bool(v))));
            values
        }
        _ => return None,
    })
}

fn number(text: &str) -> Option<f64> {
    let whole = text.parse::<i128>().ok().map(|v| v as f64);
    // `1e999` is a number, though it parses as infinite; `inf` and `nan` are not.
    let is_number = text.ends_with(|c: char| c.is_ascii_digit() || c == '.');
    whole.or_else(|| text.parse().ok().filter(|_| is_number))
}

/// The filed form of a value, the same for equal values.
fn equal(value: Scalar<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Scalar::Str(text) => {
            out.push(b's');
            let bytes = text.as_bytes();
            out.extend_from_slice(bytes.get(..STRING).unwrap_or(bytes));
        }
        Scalar::Bool(truth) => out.extend([b'b', u8::from(truth)]),
        Scalar::Int(_) | Scalar::Float(_) => {
            out.push(b'n');
            let number = sortable(value.as_f64().unwrap_or_default());
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
    out
}

/// Encodes a number so that the encodings sort as the numbers do.
fn sortable(number: f64) -> u64 {
    // Turns -0.0 into 0.0.
    let bits = (number + 0.0).to_bits();
    match bits >> 63 {
        0 => bits | 1 << 63,
        _ => !bits,
    }
}

/// The leading `bits` bits of a number.
fn block(number: u64, bits: u8) -> u64 {
    number
        .checked_shr(64 - u32::from(bits.min(64)))
        .unwrap_or(0)
}
