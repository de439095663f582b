//! Sets of types of JSON values.

use std::fmt;

/// A set of types of JSON values.
///
/// ```
/// use esker_model::fields::JsonTypes;
///
/// let types = JsonTypes::INT | JsonTypes::TEXT;
/// assert!(types.has(JsonTypes::INT) && !types.has(JsonTypes::FLOAT));
/// assert_eq!(types.to_string(), "int, text");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JsonTypes(u8);

/// The types with their names.
const NAMES: [(JsonTypes, &str); 8] = [
    (JsonTypes::NULL, "null"),
    (JsonTypes::BOOL, "bool"),
    (JsonTypes::INT, "int"),
    (JsonTypes::BIG_INT, "big int"),
    (JsonTypes::FLOAT, "float"),
    (JsonTypes::TEXT, "text"),
    (JsonTypes::OBJECT, "object"),
    (JsonTypes::ARRAY, "array"),
];

impl JsonTypes {
    /// `null`.
    pub const NULL: JsonTypes = JsonTypes(1);
    /// `true` and `false`.
    pub const BOOL: JsonTypes = JsonTypes(2);
    /// A number without fraction and exponent that fits 64 bits with a sign.
    pub const INT: JsonTypes = JsonTypes(4);
    /// A number with a fraction or an exponent.
    pub const FLOAT: JsonTypes = JsonTypes(8);
    /// A string.
    pub const TEXT: JsonTypes = JsonTypes(16);
    /// An object.
    pub const OBJECT: JsonTypes = JsonTypes(32);
    /// An array.
    pub const ARRAY: JsonTypes = JsonTypes(64);
    /// A number without fraction and exponent that does not fit 64 bits with a sign.
    pub const BIG_INT: JsonTypes = JsonTypes(128);
    /// Numbers of all types.
    pub const NUMBER: JsonTypes = JsonTypes(4 | 8 | 128);

    /// True without a type.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if one of `types` is in the set.
    pub fn has(self, types: JsonTypes) -> bool {
        self.0 & types.0 != 0
    }

    /// The types of the set that are not in `types`.
    pub fn without(self, types: JsonTypes) -> JsonTypes {
        JsonTypes(self.0 & !types.0)
    }

    /// The names of the types.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = NAMES.iter().filter(move |(ty, _)| self.has(*ty));
        named.map(|(_, name)| *name)
    }

    pub(super) fn from_bits(bits: u8) -> JsonTypes {
        JsonTypes(bits)
    }

    pub(super) fn bits(self) -> u8 {
        self.0
    }
}

impl std::ops::BitOr for JsonTypes {
    type Output = JsonTypes;

    fn bitor(self, other: JsonTypes) -> JsonTypes {
        JsonTypes(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for JsonTypes {
    #[inline]
    fn bitor_assign(&mut self, other: JsonTypes) {
        self.0 |= other.0;
    }
}

impl fmt::Display for JsonTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.names().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}
