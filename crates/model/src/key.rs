//! Primary keys.

use std::fmt;

use crate::schema::{KeyError, KeyType, Type, Value, decode_int_key, decode_key, encode_key};

/// The maximum number of bytes of an encoded integer.
const MAX_INT: usize = 9;

/// A primary key of a dataset, in its order-preserving encoding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    ty: KeyType,
    bytes: Vec<u8>,
}

impl Key {
    /// The key of `value`.
    ///
    /// # Errors
    /// [`KeyError`] if it is not a valid key of this type.
    pub fn new(ty: KeyType, value: &Value) -> Result<Key, KeyError> {
        let room = match value {
            Value::String(text) => text.len(),
            _ => MAX_INT,
        };
        let mut bytes = Vec::with_capacity(room);
        encode_key(ty, value, &mut bytes)?;
        Ok(Key { ty, bytes })
    }

    /// Parses a key.
    ///
    /// # Errors
    /// [`KeyError`] if it is not a valid key of this type.
    pub fn parse(ty: KeyType, text: &str) -> Result<Key, KeyError> {
        let value = match ty {
            KeyType::Int => {
                Value::parse(Type::Int, text).map_err(|what| KeyError::Unreadable { what })?
            }
            KeyType::String | KeyType::Fields => Value::String(text.to_string()),
        };
        Key::new(ty, &value)
    }

    /// The value of the key.
    pub fn value(&self) -> Value {
        // Malformed bytes are shown as in `display`.
        decode_key(self.ty, &self.bytes)
            .unwrap_or_else(|| Value::String(Key::display(self.ty, &self.bytes)))
    }

    /// The key as an integer; `None` for other keys.
    #[inline]
    pub(crate) fn int(&self) -> Option<i128> {
        match self.ty {
            KeyType::Int => decode_int_key(&self.bytes),
            KeyType::String | KeyType::Fields => None,
        }
    }

    /// The type.
    pub fn key_type(&self) -> KeyType {
        self.ty
    }

    /// A key from its stored form.
    pub fn from_encoded(ty: KeyType, bytes: Vec<u8>) -> Key {
        Key { ty, bytes }
    }

    /// The encoded key: the byte order is the order of the keys.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Formats an encoded key.
    pub fn display(ty: KeyType, bytes: &[u8]) -> String {
        decode_key(ty, bytes).map_or_else(|| format!("{bytes:02x?}"), |value| value.to_string())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<std::cmp::Ordering> {
        (self.ty == other.ty).then(|| self.bytes.cmp(&other.bytes))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Key::display(self.ty, &self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::MAX_PRIMARY_KEY;

    #[test]
    fn a_key_that_is_none_says_why() {
        assert_eq!(Key::parse(KeyType::String, ""), Err(KeyError::Empty));
        let long = "k".repeat(MAX_PRIMARY_KEY + 1);
        let too_long = KeyError::TooLong {
            limit: MAX_PRIMARY_KEY,
            length: MAX_PRIMARY_KEY + 1,
        };
        assert_eq!(Key::parse(KeyType::String, &long), Err(too_long));
        let other = KeyError::Type {
            expected: KeyType::Int,
            found: Type::Bool,
        };
        assert_eq!(Key::new(KeyType::Int, &Value::Bool(true)), Err(other));
        let unreadable = Key::parse(KeyType::Int, "seven").unwrap_err();
        assert!(matches!(unreadable, KeyError::Unreadable { .. }));
        assert!(unreadable.to_string().contains("seven"), "{unreadable}");
        for v in [
            i128::from(u64::MAX) + 1,
            i128::from(i64::MIN) - 1,
            i128::MAX,
        ] {
            let beyond = Key::new(KeyType::Int, &Value::Int(v)).unwrap_err();
            assert!(beyond.to_string().contains(&v.to_string()), "{beyond}");
        }
        for v in [i128::from(u64::MAX), i128::from(i64::MIN)] {
            let key = Key::new(KeyType::Int, &Value::Int(v)).unwrap();
            assert_eq!(key.value(), Value::Int(v));
        }
        assert_eq!(
            crate::Error::from(KeyError::Empty),
            crate::Error::bad_input("the key is empty")
        );
    }
}
