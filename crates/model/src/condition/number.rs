//! Exact comparison of JSON numbers.

use std::cmp::Ordering;

use crate::schema::Found;
use crate::schema::decimal::{Decimal, int_is_of_float, is_short};

/// A number of a record, or one that it is compared with.
#[derive(Debug, Clone)]
pub(super) enum Number {
    /// A whole number.
    Int(i128),
    /// A decimal of few digits: in the order of floats.
    Short(f64),
    /// Any other decimal, and the nearest float.
    Long(Decimal, f64),
    /// A float of a program: compared with the float nearest to a number, and exactly with integers
    /// of 64 bits.
    Float(f64),
}

impl Number {
    /// The number of a text, as a person writes it.
    pub(super) fn parse(text: &str) -> Option<Number> {
        if let Ok(v) = text.parse() {
            return Some(Number::Int(v));
        }
        let decimal = Decimal::parse(text)?;
        let v: f64 = text.parse().ok()?;
        Some(if is_short(text, v) {
            Number::Short(v)
        } else {
            Number::Long(decimal, v)
        })
    }

    /// The number that was found in a record.
    pub(super) fn found(found: Found<'_>) -> Option<Number> {
        match found {
            Found::Int(v) => Some(Number::Int(v)),
            Found::Float(v) => Some(Number::Short(v)),
            Found::Long(text, v) => Some(Number::Long(Decimal::parse(text)?, v)),
            _ => None,
        }
    }

    /// The order of two numbers by their values; `None` only for NaN.
    pub(super) fn compare(&self, other: &Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => Some(a.cmp(b)),
            (Number::Int(a), Number::Short(b) | Number::Float(b)) => compare_mixed(*a, *b),
            (Number::Short(a) | Number::Float(a), Number::Int(b)) => {
                compare_mixed(*b, *a).map(Ordering::reverse)
            }
            (Number::Short(a) | Number::Float(a), Number::Short(b) | Number::Float(b))
            | (Number::Long(_, a), Number::Float(b))
            | (Number::Float(a), Number::Long(_, b)) => a.partial_cmp(b),
            _ => Some(self.decimal().cmp(&other.decimal())),
        }
    }

    fn decimal(&self) -> Decimal {
        match self {
            Number::Int(v) => Decimal::of_int(*v),
            Number::Short(v) | Number::Float(v) => Decimal::of_float(*v),
            Number::Long(decimal, _) => decimal.clone(),
        }
    }

    /// The whole number of 64 bits that is not above it, or the least one, and its order relative
    /// to the number.
    pub(super) fn nearest_int(&self) -> Option<(i128, Ordering)> {
        let whole = match self {
            Number::Int(v) => *v,
            Number::Short(v) | Number::Float(v) => v.floor() as i128,
            Number::Long(decimal, _) => decimal.floor(),
        };
        let inside = whole.clamp(i128::from(i64::MIN), i128::from(u64::MAX));
        Some((inside, Number::Int(inside).compare(self)?))
    }

    /// The float nearest to it, and the order relative to the number of the decimal that programs
    /// write for that float.
    pub(super) fn nearest_float(&self) -> Option<(f64, Ordering)> {
        match self {
            Number::Short(v) | Number::Float(v) => v.is_finite().then_some((*v, Ordering::Equal)),
            Number::Int(v) if int_is_of_float(*v) => Some((*v as f64, Ordering::Equal)),
            Number::Int(v) => Some((*v as f64, Decimal::of_float(*v as f64).cmp(&self.decimal()))),
            Number::Long(decimal, v) => {
                let v = v.clamp(f64::MIN, f64::MAX);
                Some((v, Decimal::of_float(v).cmp(decimal)))
            }
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
