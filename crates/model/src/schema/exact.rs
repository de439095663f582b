//! Numbers of JSON texts, read to the last bit. `serde_json` does so with its feature `float_roundtrip` only, and a feature is forced on
//! all who use a library: so where a number counts, its text is kept (`RawValue`) and read here.

use serde_json::value::RawValue;

use super::decimal::{int_is_of_float, is_of_float, is_short};
use super::walk::Found;

/// A number by its text, as JSON has them: an integer of 64 bits, or a decimal with the nearest float (`-0`, too). `None` for what
/// is no number, and for numbers beyond all floats.
pub(super) fn number(text: &str) -> Option<Found<'_>> {
    if !text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return None;
    }
    let whole = !text.contains(['.', 'e', 'E']);
    if whole && text != "-0" {
        if let Ok(v) = text.parse::<u64>() {
            return Some(Found::Int(i128::from(v)));
        }
        if let Ok(v) = text.parse::<i64>() {
            return Some(Found::Int(i128::from(v)));
        }
    }
    let v = text.parse::<f64>().ok()?;
    let found = match is_short(text, v) {
        true => Found::Float(v),
        false => Found::Long(text, v),
    };
    v.is_finite().then_some(found)
}

/// The float that stands for a number that was found, in the order of all such: the nearest one, unless another number is written
/// for it.
pub(super) fn float_of(found: Found<'_>) -> Option<f64> {
    match found {
        Found::Int(v) => int_is_of_float(v).then_some(v as f64),
        Found::Float(v) => Some(v),
        Found::Long(text, v) => is_of_float(text, v).then_some(v),
        _ => None,
    }
}

/// A value as the nearest float; `None` when it is no number.
pub(crate) fn as_f64(value: &RawValue) -> Option<f64> {
    match number(value.get())? {
        Found::Int(v) => Some(v as f64),
        Found::Float(v) | Found::Long(_, v) => Some(v),
        _ => None,
    }
}

/// A string without escapes by its text.
pub(super) fn plain_string(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.contains('\\')).then_some(inner)
}
