//! Numbers of JSON texts, read to the last bit. `serde_json` does this only with its feature
//! `float_roundtrip`, and a feature of a library applies to the whole program. Therefore, where the
//! exact value matters, the text is kept (`RawValue`) and parsed here.

use serde_json::value::RawValue;

use super::at_path::Found;
use super::decimal::{int_is_of_float, is_of_float, is_short};

/// Parses a JSON number: an integer of 64 bits, or a decimal with the nearest float (also for
/// `-0`). `None` if the text is not a number, or is beyond all floats.
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
    let found = if is_short(text, v) {
        Found::Float(v)
    } else {
        Found::Long(text, v)
    };
    v.is_finite().then_some(found)
}

/// The float that represents a number in the order of all numbers: the nearest one, unless programs
/// print that float as another number.
pub(super) fn float_of(found: Found<'_>) -> Option<f64> {
    match found {
        Found::Int(v) => int_is_of_float(v).then_some(v as f64),
        Found::Float(v) => Some(v),
        Found::Long(text, v) => is_of_float(text, v).then_some(v),
        _ => None,
    }
}

/// The nearest float of a value; `None` if it is not a number.
pub(crate) fn as_f64(value: &RawValue) -> Option<f64> {
    match number(value.get())? {
        Found::Int(v) => Some(v as f64),
        Found::Float(v) | Found::Long(_, v) => Some(v),
        _ => None,
    }
}

/// The content of a JSON string, if it has no escapes.
pub(super) fn plain_string(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.contains('\\')).then_some(inner)
}
