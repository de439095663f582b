//! Values of attributes, and their encoding: the order of the bytes is the order of the values.
//!
//! Every encoding is canonical (one value, one encoding) and no encoding is a prefix of another one
//! of its type, so that an index key can be a value followed by anything.
//!
//! | type | bytes |
//! | --- | --- |
//! | int, time | a header and `n` bytes: see below |
//! | float | 8 bytes, big-endian: IEEE bits, the sign (or all if negative) flipped; -0.0 is 0.0 |
//! | string | UTF-8 with `00` written as `00 FF`, then `00 01` |
//! | bool | `00` or `01` |
//! | point, plane | 24 bytes: see [`POINT_LEN`] |
//! | point@time, plane@time | 36 bytes: see [`POINT_TIME_LEN`] |
//! | compound | the values of several fields: see [`super::compound`] |
//!
//! The header of an int is `0x80 + n` (0 and above) or `0x80 - n` (below). The `n` bytes are its
//! magnitude: big-endian, without leading zeros, complemented if the int is negative.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;

use esker_coding::Reader;

use super::compound::compound_length;
use super::error::KeyError;
use super::key_fields::{decode_array, encode_array};
use super::point::{POINT_LEN, decode_point, encode_point};
use super::point_time::{POINT_TIME_LEN, decode_point_time, encode_point_time};
use super::scalars::{
    decode_float, decode_int, encode_bool, encode_float, encode_int, encode_string, escape, is_int,
    parse_int, split_int, take_string, unescape,
};
use super::time;
use super::types::{KeyType, MAX_PRIMARY_KEY, Type};
use crate::geometry::{Point, Space};

/// The stand-ins for values without an encoding ([`stand_in`]).
const STAND_IN_INT: &[u8] = &[0xff];
const STAND_IN_FLOAT: &[u8] = &[0xff; 8];
const STAND_IN_STRING: &[u8] = &[0xff, 0, 1];
const STAND_IN_BOOL: &[u8] = &[2];

/// The stand-in for a value that the attribute's type cannot encode: a number that no float
/// represents exactly, or, in a lenient attribute, a value of another type. It sorts after all
/// values of the type; the record contains the actual value. `None` for types without a stand-in.
pub fn stand_in(t: Type) -> Option<&'static [u8]> {
    match t {
        Type::Int | Type::Time | Type::TimeS | Type::TimeMs | Type::TimeUs | Type::TimeNs => {
            Some(STAND_IN_INT)
        }
        Type::Float => Some(STAND_IN_FLOAT),
        Type::String => Some(STAND_IN_STRING),
        Type::Bool => Some(STAND_IN_BOOL),
        // The fields of a compound value have their own stand-ins.
        Type::Point
        | Type::PlanePoint
        | Type::PointTime
        | Type::PlanePointTime
        | Type::Compound => None,
    }
}

/// A range of encoded values.
pub type ValueRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A value of an attribute or a primary key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number from `i64::MIN` to `u64::MAX`. A number outside is encoded as the nearest one
    /// inside; nothing in this crate creates one.
    Int(i128),
    /// A float. Infinities and NaN are never stored; their encodings sort outside those of the
    /// finite floats.
    Float(f64),
    /// Text.
    String(String),
    /// A boolean.
    Bool(bool),
    /// Microseconds since 1970-01-01T00:00:00Z.
    Time(i64),
    /// A point. Points are not ordered; their encodings are, by cells.
    Point(Space, Point),
    /// A point at a time, in microseconds since 1970. Not ordered either.
    PointTime(Space, Point, i64),
}

/// Values of one type are ordered, and integers with floats; others are not comparable.
impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
            (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
            (Value::Int(a), Value::Float(b)) => (*a as f64).partial_cmp(b),
            (Value::Float(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::Time(a), Value::Time(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

impl Value {
    /// The type of the value.
    pub fn type_of(&self) -> Type {
        match self {
            Value::Int(_) => Type::Int,
            Value::Float(_) => Type::Float,
            Value::String(_) => Type::String,
            Value::Bool(_) => Type::Bool,
            Value::Time(_) => Type::Time,
            Value::Point(Space::Sphere, _) => Type::Point,
            Value::Point(Space::Plane, _) => Type::PlanePoint,
            Value::PointTime(Space::Sphere, ..) => Type::PointTime,
            Value::PointTime(Space::Plane, ..) => Type::PlanePointTime,
        }
    }

    /// Appends the order-preserving encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::Int(v) => encode_int(*v, out),
            Value::Float(v) => encode_float(*v, out),
            Value::String(v) => encode_string(v, out),
            Value::Bool(v) => encode_bool(*v, out),
            Value::Time(v) => encode_int(i128::from(*v), out),
            Value::Point(space, point) => encode_point(*space, *point, out),
            Value::PointTime(space, point, micros) => {
                encode_point_time(*space, *point, *micros, out);
            }
        }
    }

    /// The order-preserving encoding.
    pub fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Decodes a value of type `t`; `None` if the bytes are malformed, or are the values of several
    /// fields.
    pub fn decode(t: Type, input: &mut Reader<'_>) -> Option<Value> {
        match t {
            Type::Int => decode_int(input).map(Value::Int),
            Type::Time | Type::TimeS | Type::TimeMs | Type::TimeUs | Type::TimeNs => {
                i64::try_from(decode_int(input)?).ok().map(Value::Time)
            }
            Type::Float => decode_float(input).map(Value::Float),
            Type::String => {
                let text = unescape(take_string(input)?);
                String::from_utf8(text).ok().map(Value::String)
            }
            Type::Bool => match input.u8()? {
                0 => Some(Value::Bool(false)),
                1 => Some(Value::Bool(true)),
                _ => None,
            },
            Type::Point | Type::PlanePoint => {
                let space = t.space()?;
                let point = decode_point(space, input.take(POINT_LEN)?)?;
                Some(Value::Point(space, point))
            }
            Type::PointTime | Type::PlanePointTime => {
                let space = t.timed_space()?;
                let (point, micros) = decode_point_time(space, input.take(POINT_TIME_LEN)?)?;
                Some(Value::PointTime(space, point, micros))
            }
            Type::Compound => None,
        }
    }

    /// Splits `bytes` after the encoded value of type `t` at their start, without decoding it.
    /// `None` if they are too short.
    pub fn split(t: Type, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let length = match t {
            Type::Int | Type::Time | Type::TimeS | Type::TimeMs | Type::TimeUs | Type::TimeNs => {
                1 + split_int(*bytes.first()?)?
            }
            Type::Float => 8,
            Type::Bool => 1,
            Type::Point | Type::PlanePoint => POINT_LEN,
            Type::PointTime | Type::PlanePointTime => POINT_TIME_LEN,
            Type::String => take_string(&mut Reader::new(bytes))?.len() + 2,
            Type::Compound => compound_length(bytes)?,
        };
        bytes.split_at_checked(length)
    }

    /// Parses a value in text form. Times are text as in records, or a number in the type's unit.
    ///
    /// # Errors
    /// The expected form of `text`.
    pub fn parse(t: Type, text: &str) -> Result<Value, String> {
        let value = match t {
            Type::Int => parse_int(text).map(Value::Int),
            Type::Float => text
                .parse()
                .ok()
                .filter(|v: &f64| v.is_finite())
                .map(Value::Float),
            Type::String => Some(Value::String(text.to_owned())),
            Type::Bool => text.parse().ok().map(Value::Bool),
            Type::Time | Type::TimeS | Type::TimeMs | Type::TimeUs | Type::TimeNs => {
                parse_time(t, text).map(Value::Time)
            }
            Type::Point | Type::PlanePoint => parse_point(t.space(), text),
            Type::PointTime | Type::PlanePointTime => {
                text.rsplit_once('@').and_then(|(at, time)| {
                    match parse_point(t.timed_space(), at)? {
                        Value::Point(space, point) => Some(Value::PointTime(
                            space,
                            point,
                            parse_time(Type::Time, time)?,
                        )),
                        _ => None,
                    }
                })
            }
            Type::Compound => None,
        };
        value.ok_or_else(|| {
            let wanted = match t {
                Type::Int => "a whole number from -9223372036854775808 to 18446744073709551615",
                Type::Float => "a finite number",
                Type::String => "text",
                Type::Bool => "true or false",
                Type::Time | Type::TimeS => {
                    "a time such as 2024-05-01T12:30:00Z, 2024-05-01, or seconds since 1970"
                }
                Type::TimeMs => {
                    "a time such as 2024-05-01T12:30:00Z, 2024-05-01, or milliseconds since 1970"
                }
                Type::TimeUs => {
                    "a time such as 2024-05-01T12:30:00Z, 2024-05-01, or microseconds since 1970"
                }
                Type::TimeNs => {
                    "a time such as 2024-05-01T12:30:00Z, 2024-05-01, or nanoseconds since 1970"
                }
                Type::Point => "a longitude and a latitude in degrees, as in 2.35,48.85",
                Type::PlanePoint => "two finite numbers, as in 2.5,-3",
                Type::PointTime => "a point and a time, as in 2.35,48.85@2024-05-01T12:30:00Z",
                Type::PlanePointTime => "a point and a time, as in 2.5,-3@2024-05-01T12:30:00Z",
                Type::Compound => "a value of each field",
            };
            format!("{text:?} is not of type {t}: expected {wanted}")
        })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(v) => write!(f, "{v}"),
            // The shortest text that parses back to the same float.
            Value::Float(v) => write!(f, "{v:?}"),
            Value::String(v) => f.write_str(v),
            Value::Bool(v) => write!(f, "{v}"),
            Value::Time(v) => time::write_rfc3339(f, *v),
            Value::Point(_, point) => write!(f, "{point}"),
            Value::PointTime(_, point, micros) => {
                write!(f, "{point}@")?;
                time::write_rfc3339(f, *micros)
            }
        }
    }
}

/// The encodings of the strings that begin with `prefix`.
pub fn string_prefix_range(prefix: &str) -> ValueRange {
    let mut low = Vec::new();
    escape(prefix, &mut low);
    let mut high = low.clone();
    while high.last() == Some(&0xff) {
        high.pop();
    }
    let high = match high.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(high)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(low), high)
}

/// Appends a primary key: an int as [`Value`] encodes it, a string as its plain bytes, several
/// fields one after the other.
///
/// # Errors
/// [`KeyError`] if `key` is not a valid primary key of type `t`: another type, a number beyond 64
/// bits, an empty string, or too long.
pub fn encode_key(t: KeyType, key: &Value, out: &mut Vec<u8>) -> Result<(), KeyError> {
    match (t, key) {
        (KeyType::Int, Value::Int(v)) if is_int(*v) => encode_int(*v, out),
        (KeyType::Int, Value::Int(v)) => {
            let what = format!("the key {v} is beyond 64 bits");
            return Err(KeyError::Unreadable { what });
        }
        (KeyType::Fields, Value::String(v)) => encode_array(v, out)?,
        (KeyType::String, Value::String(v)) if v.is_empty() => return Err(KeyError::Empty),
        (KeyType::String, Value::String(v)) if v.len() > MAX_PRIMARY_KEY => {
            return Err(KeyError::TooLong {
                limit: MAX_PRIMARY_KEY,
                length: v.len(),
            });
        }
        (KeyType::String, Value::String(v)) => out.extend_from_slice(v.as_bytes()),
        _ => {
            return Err(KeyError::Type {
                expected: t,
                found: key.type_of(),
            });
        }
    }
    Ok(())
}

/// Decodes a whole primary key; `None` if `bytes` are not a key of type `t`.
pub fn decode_key(t: KeyType, bytes: &[u8]) -> Option<Value> {
    if bytes.is_empty() || bytes.len() > MAX_PRIMARY_KEY {
        return None;
    }
    match t {
        KeyType::Int => decode_int_key(bytes).map(Value::Int),
        KeyType::String => String::from_utf8(bytes.to_vec()).ok().map(Value::String),
        KeyType::Fields => decode_array(bytes).map(Value::String),
    }
}

/// Decodes a whole primary key that is an integer.
#[inline]
pub(crate) fn decode_int_key(bytes: &[u8]) -> Option<i128> {
    let mut input = Reader::new(bytes);
    let key = decode_int(&mut input)?;
    input.is_empty().then_some(key)
}

fn parse_point(space: Option<Space>, text: &str) -> Option<Value> {
    let (x, y) = text.split_once(',')?;
    let (x, y) = (x.trim().parse().ok()?, y.trim().parse().ok()?);
    let space = space?;
    Some(Value::Point(space, Point::new(space, x, y).ok()?))
}

fn parse_time(t: Type, text: &str) -> Option<i64> {
    if let Ok(number) = text.parse() {
        return time::from_int(t, number);
    }
    match text.parse() {
        // Converted as a decimal in a record, so that the two are equal.
        Ok(number) => time::from_decimal(t, number),
        Err(_) => time::parse(text).map(|(micros, _)| micros),
    }
}
