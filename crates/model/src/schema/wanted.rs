//! The attributes to extract from records, and remarks about records.

use super::path::Path;
use super::types::Type;

/// An attribute to extract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub(super) path: Path,
    pub(super) ty: Type,
    pub(super) lenient: bool,
    pub(super) refuses_objects: bool,
    /// A number that no float represents exactly becomes the nearest float.
    pub(super) rounds: bool,
    /// For a point at a time: the type of the time, and whether it accepts other values.
    pub(super) time: (Type, bool),
    /// For the values of several fields together: the fields.
    pub(super) fields: Vec<WantedField>,
}

/// A field whose values are extracted together with those of other fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedField {
    /// Its path.
    pub path: Path,
    /// The type that it is declared with.
    pub ty: Type,
    /// True if a value of another type becomes [`stand_in`](super::stand_in).
    pub lenient: bool,
}

impl Wanted {
    /// The values of a type at a path. A record with a value of another type is refused; an object
    /// is not indexed.
    pub fn new(path: Path, ty: Type) -> Wanted {
        Wanted {
            path,
            ty,
            lenient: false,
            refuses_objects: false,
            rounds: false,
            time: (Type::Time, false),
            fields: Vec::new(),
        }
    }

    /// For the values of several fields together: sets the fields.
    pub fn of_fields(self, fields: Vec<WantedField>) -> Wanted {
        Wanted { fields, ..self }
    }

    /// For a point at a time: sets the type of the time; a lenient time accepts other values.
    pub fn at_time(self, ty: Type, lenient: bool) -> Wanted {
        // Numbers without a unit are seconds.
        let ty = if ty.is_time() { ty } else { Type::Time };
        Wanted {
            time: (ty, lenient),
            ..self
        }
    }

    /// Sets whether the attribute is lenient: a value of another type then becomes
    /// [`stand_in`](super::stand_in).
    pub fn lenient(self, lenient: bool) -> Wanted {
        Wanted { lenient, ..self }
    }

    /// Sets whether a number that no float represents exactly becomes the nearest float.
    pub fn rounding(self, rounds: bool) -> Wanted {
        Wanted { rounds, ..self }
    }

    /// Also refuses an object.
    pub fn refusing_objects(self) -> Wanted {
        Wanted {
            refuses_objects: true,
            ..self
        }
    }
}

/// A remark for people about an accepted record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Remark {
    /// A time without an offset was read as UTC.
    NoOffset,
    /// A number is a time before 1900 or after 2500; the time in microseconds since 1970.
    FarNumber(i64),
    /// A text is a time before 1900 or after 2500; the time in microseconds since 1970.
    FarText(i64),
    /// There is an object instead of a value.
    Object,
    /// There is an invalid point: coordinates out of range, or an object of another kind.
    NoPoint,
}

/// The usual times of records: the years 1900 to 2500.
pub(super) const USUAL_MICROS: std::ops::Range<i64> =
    -2_208_988_800_000_000..16_756_761_600_000_000;
