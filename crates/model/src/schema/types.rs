//! The types of attributes and of primary keys.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::geometry::Space;

/// The type of an indexed attribute. The numbers are on disk: never change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Type {
    /// A whole number from `i64::MIN` to `u64::MAX`.
    Int = 1,
    /// A finite 64-bit float. Integers are accepted as well, rounded to the nearest float.
    Float = 2,
    /// Text, ordered by code points.
    String = 3,
    /// `false`, then `true`.
    Bool = 4,
    /// A point in time in microseconds: text or seconds since 1970.
    ///
    /// The text is RFC 3339 (`2024-05-01T12:30:00Z`) or close to it: a date alone, a blank instead
    /// of the `T`, no seconds, offsets such as `+0200`, `+02` or ` UTC`, a comma instead of the
    /// point, slashes between year, month and day. Text without an offset is UTC.
    Time = 5,
    /// A point on the sphere: longitude and latitude in degrees.
    Point = 6,
    /// A point of the plane: any two numbers.
    PlanePoint = 7,
    /// A point on the sphere at a time, for indexes over both. Its path `POINT@TIME` combines two
    /// attributes.
    PointTime = 8,
    /// A point of the plane at a time.
    PlanePointTime = 9,
    /// As [`Type::Time`]: numbers are seconds since 1970.
    TimeS = 10,
    /// As [`Type::Time`], but numbers are milliseconds since 1970.
    TimeMs = 11,
    /// As [`Type::Time`], but numbers are microseconds since 1970.
    TimeUs = 12,
    /// As [`Type::Time`], but numbers are nanoseconds since 1970; the resolution is a microsecond.
    TimeNs = 13,
    /// The values of several fields together, for compound indexes. The path of such an attribute
    /// is that of the fields, with commas between them; each field is declared with its own type.
    Compound = 14,
}

impl Type {
    /// Every type of single values, in the order of the numbers.
    pub const ALL: [Type; 13] = [
        Type::Int,
        Type::Float,
        Type::String,
        Type::Bool,
        Type::Time,
        Type::Point,
        Type::PlanePoint,
        Type::PointTime,
        Type::PlanePointTime,
        Type::TimeS,
        Type::TimeMs,
        Type::TimeUs,
        Type::TimeNs,
    ];

    /// The types of times, by their units.
    pub const TIMES: [Type; 4] = [Type::TimeS, Type::TimeMs, Type::TimeUs, Type::TimeNs];

    /// The types of single values, without points; of the types of times only [`Type::Time`].
    pub const SCALAR: [Type; 5] = [Type::Int, Type::Float, Type::String, Type::Bool, Type::Time];

    /// The space of points of this type; `None` for other types.
    pub fn space(self) -> Option<Space> {
        match self {
            Type::Point => Some(Space::Sphere),
            Type::PlanePoint => Some(Space::Plane),
            _ => None,
        }
    }

    /// The space of points at a time of this type; `None` for other types.
    pub fn timed_space(self) -> Option<Space> {
        match self {
            Type::PointTime => Some(Space::Sphere),
            Type::PlanePointTime => Some(Space::Plane),
            _ => None,
        }
    }

    /// True for points, at a time or not.
    pub fn has_place(self) -> bool {
        self.space().or(self.timed_space()).is_some()
    }

    /// The type of points of this type at a time; other types are unchanged.
    pub fn at_time(self) -> Type {
        match self {
            Type::Point => Type::PointTime,
            Type::PlanePoint => Type::PlanePointTime,
            other => other,
        }
    }

    /// The number of a time type's units per second; `None` for other types.
    pub(crate) fn per_second(self) -> Option<i128> {
        match self {
            Type::Time | Type::TimeS => Some(1),
            Type::TimeMs => Some(1_000),
            Type::TimeUs => Some(1_000_000),
            Type::TimeNs => Some(1_000_000_000),
            _ => None,
        }
    }

    /// True for the values of several fields together.
    pub fn is_compound(self) -> bool {
        self == Type::Compound
    }

    /// True for times, with any unit of numbers.
    pub fn is_time(self) -> bool {
        self.per_second().is_some()
    }

    /// The unit of a time's numbers; empty for other types.
    pub fn unit_name(self) -> &'static str {
        match self {
            Type::Time | Type::TimeS => "seconds",
            Type::TimeMs => "milliseconds",
            Type::TimeUs => "microseconds",
            Type::TimeNs => "nanoseconds",
            _ => "",
        }
    }

    /// A time, in microseconds since 1970, as a number in the unit of this type, rounded down.
    pub fn number_of(self, micros: i64) -> i128 {
        let per_second = self.per_second().unwrap_or(1);
        (i128::from(micros) * per_second).div_euclid(1_000_000)
    }

    /// True if an attribute declared as `declared` may be of this type: `declared` is the same
    /// type, or time without a unit while this type is a time.
    pub fn is_allowed_by(self, declared: Type) -> bool {
        self == declared || declared == Type::Time && self.is_time()
    }

    /// The type's number on disk.
    pub fn to_byte(self) -> u8 {
        self as u8
    }

    /// The type with the number `byte` on disk.
    pub fn from_byte(byte: u8) -> Option<Type> {
        let mut all = Type::ALL.into_iter().chain([Type::Compound]);
        all.find(|t| t.to_byte() == byte)
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Type::Int => "int",
            Type::Float => "float",
            Type::String => "string",
            Type::Bool => "bool",
            Type::Time => "time",
            Type::Point => "point",
            Type::PlanePoint => "plane",
            Type::PointTime => "point@time",
            Type::PlanePointTime => "plane@time",
            Type::TimeS => "time_s",
            Type::TimeMs => "time_ms",
            Type::TimeUs => "time_us",
            Type::TimeNs => "time_ns",
            Type::Compound => "compound",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Type {
    type Err = Error;

    fn from_str(text: &str) -> Result<Type, Error> {
        Type::ALL
            .into_iter()
            .chain([Type::Compound])
            .find(|t| t.name() == text)
            .ok_or_else(|| {
                Error::bad_input(format!(
                    "unknown type {text:?}: use int, float, string, bool, time (time_s, time_ms, time_us, time_ns), point or plane"
                ))
            })
    }
}

/// The longest value of an indexed attribute, in encoded bytes.
pub(super) const MAX_INDEXED_VALUE: usize = 32 << 10;

/// The longest primary key, in encoded bytes.
pub const MAX_PRIMARY_KEY: usize = 64 << 10;

/// The type of a dataset's primary key. The numbers are on disk: never change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum KeyType {
    /// A whole number from `i64::MIN` to `u64::MAX`.
    Int = 1,
    /// Text of 1 byte to 64 KiB.
    String = 2,
    /// Several fields, each a whole number or text; the path names them, separated by commas. Such
    /// a key is written as a JSON array.
    Fields = 3,
}

impl KeyType {
    /// The key type's number on disk.
    pub fn to_byte(self) -> u8 {
        self as u8
    }

    /// The key type with the number `byte` on disk.
    pub fn from_byte(byte: u8) -> Option<KeyType> {
        match byte {
            1 => Some(KeyType::Int),
            2 => Some(KeyType::String),
            3 => Some(KeyType::Fields),
            _ => None,
        }
    }

    /// The type of a key as a value; a key of several fields is the text of a JSON array.
    pub fn as_type(self) -> Type {
        match self {
            KeyType::Int => Type::Int,
            KeyType::String | KeyType::Fields => Type::String,
        }
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyType::Fields => f.write_str("fields"),
            one => one.as_type().fmt(f),
        }
    }
}

impl FromStr for KeyType {
    type Err = Error;

    fn from_str(text: &str) -> Result<KeyType, Error> {
        match text {
            "int" => Ok(KeyType::Int),
            "string" => Ok(KeyType::String),
            "fields" => Ok(KeyType::Fields),
            _ => Err(Error::bad_input(format!(
                "a key cannot be of type {text:?}: use int or string"
            ))),
        }
    }
}
