//! Conversion of JSON values to values of a type.

use super::at_path::Found;
use super::exact::float_of;
use super::scalars::{encode_bool, encode_float, encode_int, encode_string};
use super::time::{self, Offset};
use super::types::{MAX_INDEXED_VALUE, Type};
use super::value::stand_in;

// Not inlined: otherwise the optimiser runs the slow conversions before the match, for values of
// every type.

#[inline(never)]
pub(super) fn nearest_float(v: i128) -> f64 {
    v as f64
}

/// Encodes a number as a float; if no float represents it exactly, as the nearest one or as
/// [`stand_in`].
#[inline(never)]
fn encode_number(found: Found<'_>, rounds: bool, values: &mut Vec<u8>) {
    match (float_of(found), found) {
        (Some(v), _) => encode_float(v, values),
        (None, Found::Long(_, v)) if rounds => encode_float(v, values),
        (None, Found::Int(v)) if rounds => encode_float(v as f64, values),
        (None, _) => values.extend_from_slice(stand_in(Type::Float).unwrap_or_default()),
    }
}

/// What became of a value in a record.
pub(super) enum Encoded {
    /// It is not of the type.
    Nothing,
    Value,
    /// A time in microseconds since 1970.
    Time(i64, Offset),
}

/// Appends a value of type `ty`.
#[inline]
pub(super) fn encode_found(
    ty: Type,
    rounds: bool,
    found: Found<'_>,
    values: &mut Vec<u8>,
) -> Encoded {
    match (ty, found) {
        (Type::Int, Found::Int(v)) => encode_int(v, values),
        (Type::Float, Found::Float(v)) => encode_float(v, values),
        (Type::Float, found @ (Found::Int(_) | Found::Long(..))) => {
            encode_number(found, rounds, values);
        }
        (Type::String, Found::Str(v)) => encode_string(v, values),
        (Type::Bool, Found::Bool(v)) => encode_bool(v, values),
        (ty, found) if ty.is_time() => {
            let Some((micros, offset)) = time_of(ty, found) else {
                return Encoded::Nothing;
            };
            encode_int(i128::from(micros), values);
            return Encoded::Time(micros, offset);
        }
        _ => return Encoded::Nothing,
    }
    Encoded::Value
}

/// A value as a time of type `ty`, in microseconds since 1970.
#[inline(never)]
pub(crate) fn time_of(ty: Type, found: Found<'_>) -> Option<(i64, Offset)> {
    let number = |micros: Option<i64>| micros.map(|micros| (micros, Offset::Said));
    match found {
        Found::Str(text) => time::parse(text),
        Found::Int(v) => number(time::from_int(ty, v)),
        Found::Float(v) | Found::Long(_, v) => number(time::from_decimal(ty, v)),
        Found::Null | Found::Bool(_) | Found::Object => None,
    }
}

/// True if an attribute of type `ty` has a value for the JSON value, so that it is not replaced by
/// [`stand_in`]. For floats, true for any number; [`float_of`] determines whether a float
/// represents it.
pub(crate) fn fits(ty: Type, found: Found<'_>) -> bool {
    match (ty, found) {
        (Type::Int, Found::Int(_))
        | (Type::Float, Found::Int(_) | Found::Float(_) | Found::Long(..))
        | (Type::Bool, Found::Bool(_)) => true,
        (Type::String, Found::Str(text)) => {
            let zeros = text.bytes().filter(|byte| *byte == 0).count();
            text.len() + zeros + 2 <= MAX_INDEXED_VALUE
        }
        (ty, found) if ty.is_time() => time_of(ty, found).is_some(),
        _ => false,
    }
}

pub(super) fn is_negative_zero(found: Found<'_>) -> bool {
    matches!(found, Found::Float(v) if v == 0.0 && v.is_sign_negative())
}

/// Names the value found where `expected` should have been.
pub(super) fn describe(expected: Type, found: Found<'_>) -> &'static str {
    match (expected, found) {
        (_, Found::Null) => "null",
        (_, Found::Bool(_)) => "bool",
        (_, Found::Object) => "object",
        (ty, Found::Str(_)) if ty.is_time() => "a string that is not an RFC 3339 time",
        (ty, Found::Int(_) | Found::Float(_) | Found::Long(..)) if ty.is_time() => {
            "a number out of range for times"
        }
        (_, Found::Str(_)) => "string",
        (_, Found::Int(_)) => "int",
        // The parser turns integers that do not fit 64 bits into floats.
        (Type::Int, Found::Float(v) | Found::Long(_, v))
            if v.fract() == 0.0 && v.abs() >= 9.2e18 =>
        {
            "a number beyond 64 bits"
        }
        (_, Found::Float(_) | Found::Long(..)) => "float",
    }
}
