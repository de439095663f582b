//! Exact comparison of JSON numbers.

use std::cmp::Ordering;

#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    /// The number of a text: the one that this text is in a record, so an integer of 64 bits, or the nearest float.
    pub(super) fn parse(text: &str) -> Option<Number> {
        let is_held = |v: &i128| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(v);
        if let Some(v) = text.parse().ok().filter(is_held) {
            return Some(Number::Int(v));
        }
        text.parse()
            .ok()
            .filter(|v: &f64| v.is_finite())
            .map(Number::Float)
    }

    /// The exact order of two numbers; `None` only for NaN.
    pub(super) fn compare(self, other: Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
            (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b),
            (Number::Int(a), Number::Float(b)) => compare_mixed(a, b),
            (Number::Float(a), Number::Int(b)) => compare_mixed(b, a).map(Ordering::reverse),
        }
    }
}

/// The whole parts are compared as integers, since rounding `a` to a float could make them equal.
fn compare_mixed(a: i128, b: f64) -> Option<Ordering> {
    const LIMIT: f64 = (1u128 << 127) as f64;
    if b >= LIMIT {
        return Some(Ordering::Less);
    }
    if b < -LIMIT {
        return Some(Ordering::Greater);
    }
    let whole = b.trunc();
    Some(a.cmp(&(whole as i128)).then(0.0.partial_cmp(&(b - whole))?))
}
