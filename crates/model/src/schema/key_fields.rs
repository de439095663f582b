//! Composite primary keys: written as a JSON array. The encoding has the order of the first field,
//! then of the next one, with whole numbers before text.
//!
//! | bytes | content |
//! | --- | --- |
//! | 1 | the type of the field: `01` a whole number, `02` text |
//! | | the number or the text, encoded as a value; then the next field |

use esker_coding::Reader;
use serde_json::Value as Json;

use super::error::KeyError;
use super::path::Path;
use super::scalars::{decode_int, decode_string, encode_int, encode_string, parse_int};
use super::types::{MAX_PRIMARY_KEY, Type};
use crate::error::{Error, Result};

/// The maximum number of fields.
pub(super) const MOST: usize = 16;

const INT: u8 = 1;
const TEXT: u8 = 2;

/// The paths of a key's fields, from a path that separates them by commas.
///
/// # Errors
/// If one of them is not a valid path, a path occurs twice, or there are too many.
pub fn key_paths(path: &Path) -> Result<Vec<Path>> {
    several_paths(path, "a key")
}

/// The paths of the fields of `what`, from a path that separates them by commas.
pub(super) fn several_paths(path: &Path, what: &str) -> Result<Vec<Path>> {
    let text = path.to_string();
    let paths: Vec<Path> = text.split(',').map(str::parse).collect::<Result<_>>()?;
    if paths.len() > MOST {
        return Err(Error::bad_input(format!(
            "`{path}`: {what} has at most {MOST} fields"
        )));
    }
    let twice = |at: &usize| {
        paths
            .iter()
            .skip(at + 1)
            .any(|other| paths.get(*at) == Some(other))
    };
    match (0..paths.len()).find(twice) {
        Some(_) => Err(Error::bad_input(format!(
            "`{path}`: {what} can have each field only once"
        ))),
        None => Ok(paths),
    }
}

/// The byte before the encoded value of a field of this type in a composite key; it keeps any field
/// from being a prefix of another. `None` for types that a field cannot have.
pub fn field_of_key(ty: Type) -> Option<u8> {
    match ty {
        Type::Int => Some(INT),
        Type::String => Some(TEXT),
        _ => None,
    }
}

/// Appends a field that is a whole number.
pub(super) fn encode_number(number: i128, out: &mut Vec<u8>) {
    out.push(INT);
    encode_int(number, out);
}

/// Appends a field that is text.
pub(super) fn encode_text(text: &str, out: &mut Vec<u8>) {
    out.push(TEXT);
    encode_string(text, out);
}

/// Appends the key for a JSON array.
pub(super) fn encode_array(text: &str, out: &mut Vec<u8>) -> std::result::Result<(), KeyError> {
    let begin = out.len();
    let unreadable = |what: &str| KeyError::Unreadable {
        what: format!("{text:?} is not a composite key: expected {what}, as in [\"a\",1]"),
    };
    let Ok(Json::Array(fields)) = serde_json::from_str(text) else {
        return Err(unreadable("a JSON array"));
    };
    if fields.is_empty() {
        return Err(KeyError::Empty);
    }
    for field in &fields {
        match field {
            Json::String(text) => encode_text(text, out),
            Json::Number(number) => match parse_int(&number.to_string()) {
                Some(number) => encode_number(number, out),
                None => return Err(unreadable("a JSON array of texts and whole numbers")),
            },
            _ => return Err(unreadable("a JSON array of texts and whole numbers")),
        }
    }
    match out.len() - begin {
        length if length > MAX_PRIMARY_KEY => Err(KeyError::TooLong {
            limit: MAX_PRIMARY_KEY,
            length,
        }),
        _ => Ok(()),
    }
}

/// The JSON array of an encoded key; `None` if the bytes are malformed.
pub(super) fn decode_array(bytes: &[u8]) -> Option<String> {
    let mut input = Reader::new(bytes);
    let mut fields = Vec::new();
    while !input.is_empty() {
        fields.push(match input.u8()? {
            INT => decode_int(&mut input)?.to_string(),
            TEXT => Json::String(decode_string(&mut input)?).to_string(),
            _ => return None,
        });
    }
    Some(format!("[{}]", fields.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        encode_array(text, &mut out).unwrap();
        out
    }

    #[test]
    fn keys_are_ordered_by_their_fields() {
        let ordered = [
            "[-5]",
            "[2]",
            "[2,\"\"]",
            "[2,\"a\"]",
            "[10]",
            "[18446744073709551615]",
            "[\"\"]",
            "[\"a\"]",
            "[\"a\",1]",
            "[\"a\",2]",
            "[\"a\",10]",
            "[\"a\",\"1\"]",
            "[\"a\\u0000\"]",
            "[\"ab\"]",
        ];
        for pair in ordered.windows(2) {
            assert!(encoded(pair[0]) < encoded(pair[1]), "{pair:?}");
        }
        for text in ordered {
            assert_eq!(decode_array(&encoded(text)).as_deref(), Some(text));
        }
        assert_eq!(decode_array(&[3]), None);
        assert_eq!(decode_array(&[2, b'a']), None);
    }

    #[test]
    fn what_is_no_key_says_what_would_be_one() {
        for text in ["", "a", "{}", "[1.5]", "[null]", "[[1]]", "[1e400]"] {
            let error = encode_array(text, &mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains("[\"a\",1]"), "{error}");
        }
        assert_eq!(encode_array("[]", &mut Vec::new()), Err(KeyError::Empty));
        let paths = |text: &str| key_paths(&text.parse().unwrap());
        assert_eq!(paths("a.b,c").unwrap().len(), 2);
        assert!(paths("a,a").is_err() && paths("a,").is_err());
    }
}
