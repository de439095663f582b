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
    /// A finite 64-bit float. Integers are accepted, too, and rounded to the nearest float.
    Float = 2,
    /// Text, ordered by code points.
    String = 3,
    /// `false`, then `true`.
    Bool = 4,
    /// A point in time in microseconds: an RFC 3339 string or seconds since 1970.
    Time = 5,
    /// A point on the sphere: longitude and latitude in degrees.
    Point = 6,
    /// A point of the plane: any two numbers.
    PlanePoint = 7,
    /// A point on the sphere at a time: for indexes over both. Its path is `POINT@TIME`, of two attributes.
    PointTime = 8,
    /// A point of the plane at a time.
    PlanePointTime = 9,
}

impl Type {
    /// Every type, in the order of the numbers.
    pub const ALL: [Type; 9] = [
        Type::Int,
        Type::Float,
        Type::String,
        Type::Bool,
        Type::Time,
        Type::Point,
        Type::PlanePoint,
        Type::PointTime,
        Type::PlanePointTime,
    ];

    /// The types of single values: what has no place.
    pub const SCALAR: [Type; 5] = [Type::Int, Type::Float, Type::String, Type::Bool, Type::Time];

    /// The space of points of this type.
    pub fn space(self) -> Option<Space> {
        match self {
            Type::Point => Some(Space::Sphere),
            Type::PlanePoint => Some(Space::Plane),
            _ => None,
        }
    }

    /// The space of points at a time of this type.
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

    /// The type of points of this type at a time; other types are left as they are.
    pub fn at_time(self) -> Type {
        match self {
            Type::Point => Type::PointTime,
            Type::PlanePoint => Type::PlanePointTime,
            other => other,
        }
    }

    /// The type's number on disk.
    pub fn to_byte(self) -> u8 {
        self as u8
    }

    /// The type with the number `byte` on disk.
    pub fn from_byte(byte: u8) -> Option<Type> {
        Type::ALL.into_iter().find(|t| t.to_byte() == byte)
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
            .find(|t| t.name() == text)
            .ok_or_else(|| {
                Error::bad_input(format!(
                    "unknown type {text:?}: use int, float, string, bool, time, point or plane"
                ))
            })
    }
}

/// The type of a dataset's primary key. The numbers are on disk: never change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum KeyType {
    /// A whole number from `i64::MIN` to `u64::MAX`.
    Int = 1,
    /// Text of 1 byte to 64 KiB.
    String = 2,
    /// Several fields, each a whole number or text: the path names them with commas between them. Such a key is written as a JSON array.
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

    /// The type of a key as a value: one of several fields is the text of a JSON array.
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
