//! Primary keys of several fields: written as a JSON array, and encoded so that the order of the bytes is the order of the first field,
//! then of the next, whole numbers before text.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | what follows: `01` a whole number, `02` text |
//! | | the number or the text, as a value is encoded; then the next field |

use coding::Reader;
use serde_json::Value as Json;

use super::error::KeyError;
use super::path::Path;
use super::types::Type;
use super::value::{MAX_PRIMARY_KEY, Value, encode_int, encode_string, parse_int};
use crate::error::{Error, Result};

/// The most fields of a key.
const MOST: usize = 16;

const INT: u8 = 1;
const TEXT: u8 = 2;

/// The paths of the fields of a key, of a path with commas between them.
///
/// # Errors
/// One of them is no path, stands there twice, or they are too many.
pub fn key_paths(path: &Path) -> Result<Vec<Path>> {
    let text = path.to_string();
    let paths: Vec<Path> = text.split(',').map(str::parse).collect::<Result<_>>()?;
    if paths.len() > MOST {
        let what = format!("`{path}`: a key has at most {MOST} fields");
        return Err(Error::bad_input(what));
    }
    let twice = |at: &usize| {
        paths
            .iter()
            .skip(at + 1)
            .any(|other| paths.get(*at) == Some(other))
    };
    match (0..paths.len()).find(twice) {
        Some(_) => Err(Error::bad_input(format!(
            "`{path}`: a key has each field once"
        ))),
        None => Ok(paths),
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

/// Appends the key that a JSON array is.
pub(super) fn encode_array(text: &str, out: &mut Vec<u8>) -> std::result::Result<(), KeyError> {
    let begin = out.len();
    let unreadable = |what: &str| KeyError::Unreadable {
        what: format!("{text:?} is no key of several fields: {what}, as in [\"a\",1]"),
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

/// The JSON array that an encoded key is; `None` when the bytes are malformed.
pub(super) fn decode_array(bytes: &[u8]) -> Option<String> {
    let mut input = Reader::new(bytes);
    let mut fields = Vec::new();
    while !input.is_empty() {
        let ty = match input.u8()? {
            INT => Type::Int,
            TEXT => Type::String,
            _ => return None,
        };
        fields.push(match Value::decode(ty, &mut input)? {
            Value::String(text) => Json::String(text).to_string(),
            number => number.to_string(),
        });
    }
    Some(format!("[{}]", fields.join(",")))
}
