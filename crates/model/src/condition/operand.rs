//! The operands of comparisons.

use std::time::SystemTime;

use crate::schema::Value;

/// The right side of a comparison.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Operand {
    /// A typed value. A string is converted to the declared type if the path is declared.
    Value(Value),
    /// Unquoted text: takes the type of the value it is compared with.
    Text(String),
}

impl Operand {
    /// Unquoted text, as typed by a person: takes the type of the value it is compared with.
    pub fn text(text: impl Into<String>) -> Operand {
        Operand::Text(text.into())
    }

    /// The text, if the operand is a string or unquoted text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Operand::Value(Value::String(text)) | Operand::Text(text) => Some(text),
            Operand::Value(_) => None,
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Operand::Value(Value::Float(v)) if !v.is_finite() => {
                Err(format!("a condition cannot compare with {v}"))
            }
            _ => Ok(()),
        }
    }
}

impl From<Value> for Operand {
    fn from(value: Value) -> Operand {
        Operand::Value(value)
    }
}

macro_rules! from_int {
    ($($t:ty),*) => {$(
        impl From<$t> for Operand {
            fn from(v: $t) -> Operand {
                Operand::Value(Value::Int(i128::from(v)))
            }
        }
    )*};
}
from_int!(i32, u32, i64, u64);

impl From<f64> for Operand {
    fn from(v: f64) -> Operand {
        Operand::Value(Value::Float(v))
    }
}

impl From<bool> for Operand {
    fn from(v: bool) -> Operand {
        Operand::Value(Value::Bool(v))
    }
}

impl From<&str> for Operand {
    fn from(v: &str) -> Operand {
        Operand::Value(Value::String(v.to_owned()))
    }
}

impl From<&String> for Operand {
    fn from(v: &String) -> Operand {
        Operand::Value(Value::String(v.clone()))
    }
}

impl From<String> for Operand {
    fn from(v: String) -> Operand {
        Operand::Value(Value::String(v))
    }
}

/// Rounded down to the microsecond; times out of range become the nearest possible.
impl From<SystemTime> for Operand {
    fn from(v: SystemTime) -> Operand {
        let micros = match v.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos().div_ceil(1000))
                .map_or(i64::MIN, |micros| -micros),
        };
        Operand::Value(Value::Time(micros))
    }
}

/// Rounded down to the microsecond; times out of range become the nearest possible.
#[cfg(feature = "jiff")]
impl From<jiff::Timestamp> for Operand {
    fn from(v: jiff::Timestamp) -> Operand {
        let micros = v.as_nanosecond().div_euclid(1000);
        let nearest = if micros < 0 { i64::MIN } else { i64::MAX };
        Operand::Value(Value::Time(i64::try_from(micros).unwrap_or(nearest)))
    }
}

/// Rounded down to the microsecond.
#[cfg(feature = "chrono")]
impl<Tz: chrono::TimeZone> From<chrono::DateTime<Tz>> for Operand {
    fn from(v: chrono::DateTime<Tz>) -> Operand {
        Operand::Value(Value::Time(v.timestamp_micros()))
    }
}
