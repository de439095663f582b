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
    /// The encoded values of type `t` that satisfy the predicate: ranges in order, without overlap. No range is
    /// empty, and there are none where no value of the type satisfies it.
    ///
    /// # Errors
    /// The operand is not comparable with the type, or the type has no prefixes.
    pub fn to_ranges(&self, t: Type) -> Result<Vec<Range>, String> {
        if t.timed_space().is_some() {
            return Err("an attribute of place and time answers conditions on its two fields: ask about these".to_string());
        }
        let ranges = match self {
            Predicate::Exists => vec![ALL],
            Predicate::Within(area) => {
                let space = t.space().ok_or_else(|| {
                    format!("within works on points, and the attribute is of type {t}")
                })?;
                let area = area.area(space).map_err(|error| error.to_string())?;
                let range = Range::of_region(Region::new(area));
                match range.is_empty() {
                    true => Vec::new(),
                    false => vec![range],
                }
            }
            Predicate::Compare(op, _) if t.space().is_some() && *op != Op::Eq && *op != Op::Ne => {
                return Err("points are not ordered: use =, != or within".to_string());
            }
            Predicate::Compare(Op::Prefix, operand) => vec![prefix(operand, t)?],
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

fn point(value: Vec<u8>) -> Range {
    Range::exactly(value)
}

fn prefix(operand: &Operand, t: Type) -> Result<Range, String> {
    let text = operand
        .as_text()
        .filter(|_| t == Type::String)
        .ok_or_else(|| format!("^= works on strings, and the attribute is of type {t}"))?;
    let (lo, hi) = string_prefix_range(text);
    Ok(Range::between(lo, hi))
}

/// The values that satisfy a comparison with an operand whose nearest value of the type is `value`; `order` compares
/// that with the operand. No value of the type lies between the two.
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
    /// The value of type `t` nearest to the operand, and its order relative to it.
    fn nearest(&self, t: Type) -> Result<(Value, Ordering), String> {
        let value = match self {
            Operand::Text(text) | Operand::Value(Value::String(text)) => Value::parse(t, text)?,
            Operand::Value(value) => match (value, t) {
                (Value::Int(v), Type::Int) => {
                    let inside = (*v).clamp(i128::from(i64::MIN), i128::from(u64::MAX));
                    return Ok((Value::Int(inside), inside.cmp(v)));
                }
                (Value::Float(v), Type::Int) => {
                    let whole = v.floor() as i128;
                    let inside = whole.clamp(i128::from(i64::MIN), i128::from(u64::MAX));
                    let order = Number::Int(inside).compare(Number::Float(*v));
                    let order = order.ok_or_else(|| mismatch(value, t))?;
                    return Ok((Value::Int(inside), order));
                }
                (Value::Int(v), Type::Float) => Value::Float(*v as f64),
                (Value::Float(v), Type::Float) if v.is_finite() => Value::Float(*v),
                (Value::Bool(v), Type::Bool) => Value::Bool(*v),
                (Value::Time(v), Type::Time) => Value::Time(*v),
                (Value::Point(..), _) if value.type_of() == t => value.clone(),
                (Value::Int(v), Type::Time) => {
                    Value::Time(time::from_seconds(*v).ok_or_else(|| mismatch(value, t))?)
                }
                (Value::Float(v), Type::Time) => {
                    Value::Time(time::from_decimal_seconds(*v).ok_or_else(|| mismatch(value, t))?)
                }
                _ => return Err(mismatch(value, t)),
            },
        };
        Ok((value, Ordering::Equal))
    }
}

fn mismatch(value: &Value, t: Type) -> String {
    format!(
        "{value} is of type {}, and cannot be compared with one of type {t}",
        value.type_of()
    )
}
