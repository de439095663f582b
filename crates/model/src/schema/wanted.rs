//! What is extracted of records, and what may be said of them.

use super::path::Path;
use super::types::Type;

/// An attribute to extract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub(super) path: Path,
    pub(super) ty: Type,
    pub(super) lenient: bool,
    pub(super) refuses_objects: bool,
    /// Of a number that no float stands for, the nearest is taken.
    pub(super) rounds: bool,
    /// Of a point at a time: the type of the time, and whether other values are let pass.
    pub(super) time: (Type, bool),
}

impl Wanted {
    /// The values of a type at a path. A record with a value of another type is refused; an object there is not indexed.
    pub fn new(path: Path, ty: Type) -> Wanted {
        Wanted {
            path,
            ty,
            lenient: false,
            refuses_objects: false,
            rounds: false,
            time: (Type::Time, false),
        }
    }

    /// The same of a point at a time, which is of this type; a lenient one lets values pass that are no times.
    pub fn at_time(self, ty: Type, lenient: bool) -> Wanted {
        // Numbers that are declared as such are seconds.
        let ty = if ty.is_time() { ty } else { Type::Time };
        Wanted {
            time: (ty, lenient),
            ..self
        }
    }

    /// The same, of which a value of another type is [`other`](super::other).
    pub fn lenient(self, lenient: bool) -> Wanted {
        Wanted { lenient, ..self }
    }

    /// The same, where `rounds` with the nearest float for a number that no float stands for.
    pub fn rounding(self, rounds: bool) -> Wanted {
        Wanted { rounds, ..self }
    }

    /// The same, of which an object is refused, too.
    pub fn refusing_objects(self) -> Wanted {
        Wanted {
            refuses_objects: true,
            ..self
        }
    }
}

/// Something about a record that a person may want to know, though it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Remark {
    /// A time without an offset was taken for UTC.
    NoOffset,
    /// A number is a time before 1900 or after 2500: in microseconds since 1970.
    FarNumber(i64),
    /// The same of text.
    FarText(i64),
    /// There is an object in the place of a value.
    Object,
    /// There is no point where there should be one: coordinates out of range, or an object of another kind.
    NoPoint,
}

/// The times that records usually have: of the years 1900 to 2500.
pub(super) const USUAL_MICROS: std::ops::Range<i64> =
    -2_208_988_800_000_000..16_756_761_600_000_000;
