//! Predicates on declared attributes: ranges of encoded values.

use std::cmp::Ordering;
use std::ops::Bound;

use super::number::Number;
use super::{Op, Operand, Predicate};
use crate::range::Range;
use crate::region::Region;
use crate::schema::{Type, Value, string_prefix_range, time};

/// Every value.
const ALL: Range = Range::between(Bound::Unbounded, Bound::Unbounded);

impl Predicate {
    /// The encoded values of type `t` that satisfy the predicate, as non-empty ranges in order,
    /// without overlap; no ranges if no value of the type satisfies it.
    ///
    /// # Errors
    /// If the operand is not comparable with the type, or the type has no prefixes.
    pub fn to_ranges(&self, t: Type) -> Result<Vec<Range>, String> {
        if t.timed_space().is_some() {
            return Err("a field of place and time cannot be tested itself: use conditions on its two fields".to_string());
        }
        let ranges = match self {
            Predicate::Exists => vec![ALL],
            Predicate::Within(area) => {
                let space = t.space().ok_or_else(|| {
                    format!("within needs a field of points, but the field is of type {t}")
                })?;
                let area = area.area(space).map_err(|error| error.to_string())?;
                let range = Range::of_region(Region::new(area));
                if range.is_empty() {
                    Vec::new()
                } else {
                    vec![range]
                }
            }
            Predicate::Compare(op, _) if t.space().is_some() && *op != Op::Eq && *op != Op::Ne => {
                return Err("points are not ordered: use =, != or within".to_string());
            }
            Predicate::Compare(Op::Prefix, operand) => vec![prefix(operand, t)?],
            Predicate::Contains(operand) => {
                let (value, order) = operand.nearest(t)?;
                compare(Op::Eq, value.encoded(), order)
            }
            Predicate::Compare(op, operand) => {
                let (value, order) = operand.nearest(t)?;
                compare(*op, value.encoded(), order)
            }
            Predicate::In(operands) => {
                let mut points = Vec::new();
                for operand in operands {
                    let (value, order) = operand.nearest(t)?;
                    if order.is_eq() {
                        points.push(value.encoded());
                    }
                }
                points.sort_unstable();
                points.dedup();
                points.into_iter().map(point).collect()
            }
        };
        Ok(ranges)
    }
}

impl Predicate {
    /// As [`Predicate::to_ranges`], but instead of an error, an operand that is not comparable with
    /// the type equals none of its values and is neither less nor greater.
    pub fn to_ranges_where_comparable(&self, t: Type) -> Vec<Range> {
        match self {
            Predicate::In(operands) => {
                let known = operands.iter().filter(|operand| operand.nearest(t).is_ok());
                let known = Predicate::In(known.cloned().collect());
                known.to_ranges(t).unwrap_or_default()
            }
            Predicate::Compare(Op::Ne, _) => vec![ALL],
            _ => self.to_ranges(t).unwrap_or_default(),
        }
    }

    /// True if values of type `t` are compared with an operand as they are in the record, not in
    /// their encoded form: texts that may contain the operand, and, in a `lenient` attribute,
    /// numbers and texts compared with a time.
    pub fn reads_records(&self, t: Type, lenient: bool) -> bool {
        if matches!(self, Predicate::Contains(_)) && t == Type::String {
            return true;
        }
        let mut operands = self.operands().iter().filter(|_| lenient);
        operands.any(|o| matches!(o, Operand::Value(Value::Time(_))) && !t.is_time())
    }

    /// The encoded values of type `t` that may or may not satisfy the predicate: floats nearest to
    /// an operand that no float represents exactly. In records written by versions that did not
    /// distinguish them, such a float may stand for the operand itself.
    pub fn doubtful(&self, t: Type) -> Vec<Vec<u8>> {
        if t != Type::Float {
            return Vec::new();
        }
        let nearest = self.operands().iter().filter_map(|o| o.nearest(t).ok());
        let doubtful = nearest.filter(|(_, order)| order.is_ne());
        doubtful.map(|(value, _)| value.encoded()).collect()
    }
}

fn point(value: Vec<u8>) -> Range {
    Range::exactly(value)
}

fn prefix(operand: &Operand, t: Type) -> Result<Range, String> {
    let text = operand
        .as_text()
        .filter(|_| t == Type::String)
        .ok_or_else(|| format!("^= needs a field of strings, but the field is of type {t}"))?;
    let (lo, hi) = string_prefix_range(text);
    Ok(Range::between(lo, hi))
}

/// The values that satisfy a comparison with an operand whose nearest value of the type is `value`;
/// `order` compares that with the operand. No value of the type lies between the two.
fn compare(op: Op, value: Vec<u8>, order: Ordering) -> Vec<Range> {
    let above = |bound| Range::between(bound, Bound::Unbounded);
    let below = |bound| Range::between(Bound::Unbounded, bound);
    let (included, excluded) = (Bound::Included::<Vec<u8>>, Bound::Excluded);
    let one = match (op, order) {
        (Op::Eq, Ordering::Equal) => point(value),
        (Op::Eq | Op::Prefix, _) => return Vec::new(),
        (Op::Ne, Ordering::Equal) => {
            return vec![below(excluded(value.clone())), above(excluded(value))];
        }
        (Op::Ne, _) => ALL,
        (Op::Ge, Ordering::Equal | Ordering::Greater) => above(included(value)),
        (Op::Ge, Ordering::Less) => above(excluded(value)),
        (Op::Gt, Ordering::Greater) => above(included(value)),
        (Op::Gt, Ordering::Equal | Ordering::Less) => above(excluded(value)),
        (Op::Le, Ordering::Equal | Ordering::Less) => below(included(value)),
        (Op::Le, Ordering::Greater) => below(excluded(value)),
        (Op::Lt, Ordering::Less) => below(included(value)),
        (Op::Lt, Ordering::Equal | Ordering::Greater) => below(excluded(value)),
    };
    vec![one]
}

impl Operand {
    /// The number that a declared number is compared with.
    fn number(&self) -> Option<Number> {
        match self {
            Operand::Text(text) | Operand::Value(Value::String(text)) => Number::parse(text),
            Operand::Value(Value::Int(v)) => Some(Number::Int(*v)),
            Operand::Value(Value::Float(v)) => Some(Number::Float(*v)),
            Operand::Value(_) => None,
        }
    }

    /// The value of type `t` nearest to the operand, and its order relative to it.
    fn nearest(&self, t: Type) -> Result<(Value, Ordering), String> {
        if let (Type::Int | Type::Float, Some(number)) = (t, self.number()) {
            let nearest = match t {
                Type::Int => number
                    .nearest_int()
                    .map(|(v, order)| (Value::Int(v), order)),
                _ => number
                    .nearest_float()
                    .map(|(v, order)| (Value::Float(v), order)),
            };
            return nearest.ok_or_else(|| format!("{self} cannot be compared with a number"));
        }
        let value = match self {
            Operand::Text(text) | Operand::Value(Value::String(text)) => Value::parse(t, text)?,
            Operand::Value(value) => match (value, t) {
                (Value::Bool(v), Type::Bool) => Value::Bool(*v),
                (Value::Time(v), t) if t.is_time() => Value::Time(*v),
                (Value::Point(..), _) if value.type_of() == t => value.clone(),
                (Value::Int(v), t) if t.is_time() => {
                    Value::Time(time::from_int(t, *v).ok_or_else(|| mismatch(value, t))?)
                }
                (Value::Float(v), t) if t.is_time() => {
                    Value::Time(time::from_decimal(t, *v).ok_or_else(|| mismatch(value, t))?)
                }
                _ => return Err(mismatch(value, t)),
            },
        };
        Ok((value, Ordering::Equal))
    }
}

fn mismatch(value: &Value, t: Type) -> String {
    format!(
        "{value} is of type {}, and cannot be compared with a value of type {t}",
        value.type_of()
    )
}
