//! What the fields of a compound value have: whether it is whole, and as text for people.

use std::fmt::Write;

use esker_coding::Reader;

use super::compound::Fields;
use super::value::{Value, stand_in};

/// True if each field has a value, and none of them is a stand-in: such values can be unique.
pub fn compound_is_whole(value: &[u8]) -> bool {
    let Some(mut fields) = Fields::new(value) else {
        return false;
    };
    while !fields.is_end() {
        let field = fields.next().flatten();
        if field.is_none_or(|(ty, value)| stand_in(ty) == Some(value)) {
            return false;
        }
    }
    true
}

/// A compound value for people: `ann, 2024-05-01T12:30:00Z`.
pub fn compound_text(value: &[u8]) -> Option<String> {
    let mut fields = Fields::new(value)?;
    let mut text = String::new();
    while !fields.is_end() {
        if !text.is_empty() {
            text.push_str(", ");
        }
        match fields.next()? {
            Some((ty, value)) => match Value::decode(ty, &mut Reader::new(value)) {
                Some(value) => write!(text, "{value}").ok()?,
                None => text.push_str("(another type)"),
            },
            None => text.push_str("(none)"),
        }
    }
    Some(text)
}
