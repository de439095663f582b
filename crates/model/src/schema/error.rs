//! The errors of refused records.

use std::fmt;

use super::path::Path;
use super::types::{KeyType, Type};
use crate::error::Error;

/// A refused record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordError {
    /// The record's primary key as text, if it could be read.
    pub key: Option<String>,
    /// The error.
    pub kind: RecordErrorKind,
}

/// The error of a refused record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordErrorKind {
    /// The bytes are not UTF-8.
    InvalidUtf8 {
        /// The offset of the first invalid byte.
        offset: usize,
    },
    /// The text is not valid JSON.
    Json {
        /// The parser's message.
        what: String,
        /// The line, from 1.
        line: usize,
        /// The column in bytes, from 1.
        column: usize,
    },
    /// The text is not a JSON object.
    NotAnObject,
    /// Objects and arrays nest too deeply.
    TooDeep {
        /// The deepest nesting allowed.
        limit: usize,
    },
    /// The record has no primary key.
    KeyMissing {
        /// Its path.
        path: Path,
    },
    /// The primary key is null.
    KeyNull {
        /// Its path.
        path: Path,
    },
    /// The primary key is an empty string.
    KeyEmpty {
        /// Its path.
        path: Path,
    },
    /// The primary key is of another type.
    KeyType {
        /// Its path.
        path: Path,
        /// The declared type.
        expected: KeyType,
        /// The type found.
        found: &'static str,
    },
    /// The primary key is too long.
    KeyTooLong {
        /// Its path.
        path: Path,
        /// The maximum length in bytes.
        limit: usize,
        /// Its length in bytes.
        length: usize,
    },
    /// The value of an indexed attribute is of another type.
    AttributeType {
        /// The attribute.
        path: Path,
        /// The declared type.
        expected: Type,
        /// The type found.
        found: &'static str,
        /// True if the attribute could be declared leniently, to keep such records.
        strict: bool,
    },
    /// The value of an indexed attribute is too long.
    ValueTooLong {
        /// The attribute.
        path: Path,
        /// The maximum length of its encoding in bytes.
        limit: usize,
        /// Its length in bytes.
        length: usize,
    },
    /// Several fields of a compound index have several values each: too many index entries.
    TooManyCombinations {
        /// The fields.
        path: Path,
        /// The maximum number of combinations of their values.
        limit: usize,
        /// Their number.
        count: usize,
    },
    /// The combinations of values of a compound index are too large together: a long value beside
    /// an array is in as many index entries as the array has elements.
    CombinationsTooLarge {
        /// The fields.
        path: Path,
        /// The maximum length of all their encodings in bytes.
        limit: usize,
        /// Their length in bytes.
        length: usize,
    },
}

impl fmt::Display for RecordErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordErrorKind::InvalidUtf8 { offset } => {
                write!(f, "not valid UTF-8 at byte {offset}")
            }
            RecordErrorKind::Json {
                what,
                line: 1,
                column,
            } => {
                write!(f, "not valid JSON: {what} at column {column}")
            }
            RecordErrorKind::Json { what, line, column } => {
                write!(f, "not valid JSON: {what} at line {line} column {column}")
            }
            RecordErrorKind::NotAnObject => f.write_str("not a JSON object"),
            RecordErrorKind::TooDeep { limit } => {
                write!(f, "nested deeper than {limit} objects and arrays")
            }
            RecordErrorKind::KeyMissing { path } => write!(f, "the key {path} is missing"),
            RecordErrorKind::KeyNull { path } => write!(f, "the key {path} is null"),
            RecordErrorKind::KeyEmpty { path } => write!(f, "the key {path} is an empty string"),
            RecordErrorKind::KeyType {
                path,
                expected,
                found,
            } => {
                write!(
                    f,
                    "the key {path} must be of type {expected}, found {found}"
                )
            }
            RecordErrorKind::KeyTooLong {
                path,
                limit,
                length,
            } => {
                write!(
                    f,
                    "the key {path} is {length} bytes long, over the limit of {limit}"
                )
            }
            RecordErrorKind::AttributeType {
                path,
                expected,
                found,
                strict,
            } => {
                write!(f, "field {path} must be of type {expected}, found {found}")?;
                if *strict {
                    write!(
                        f,
                        "; an index of `{path}?` keeps such records, as in {path}?:lazy:{expected}"
                    )
                } else {
                    Ok(())
                }
            }
            RecordErrorKind::ValueTooLong {
                path,
                limit,
                length,
            } => write!(
                f,
                "the value of field {path} is {length} bytes long, over the limit of {limit} for an \
                 indexed attribute"
            ),
            RecordErrorKind::TooManyCombinations { path, limit, count } => write!(
                f,
                "the fields {path} have {count} combinations of values, over the limit of {limit} \
                 for a compound index"
            ),
            RecordErrorKind::CombinationsTooLarge {
                path,
                limit,
                length,
            } => write!(
                f,
                "the combinations of values of the fields {path} are {length} bytes long, over the \
                 limit of {limit} for a compound index"
            ),
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "record {key}: {}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

impl std::error::Error for RecordError {}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Error {
        Error::bad_input(error.to_string())
    }
}

/// The reason why a value or a text is not a primary key of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The key is an empty string.
    Empty,
    /// The key is too long.
    TooLong {
        /// The maximum length in bytes.
        limit: usize,
        /// Its length in bytes.
        length: usize,
    },
    /// The key is of another type.
    Type {
        /// The type of the dataset's keys.
        expected: KeyType,
        /// The type of the value.
        found: Type,
    },
    /// The text does not have the form of such a key, or the number is out of range.
    Unreadable {
        /// The text or the number, and what was expected.
        what: String,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Empty => f.write_str("the key is empty"),
            KeyError::TooLong { limit, length } => {
                write!(
                    f,
                    "the key is {length} bytes long, over the limit of {limit}"
                )
            }
            KeyError::Type { expected, found } => {
                write!(f, "the key must be of type {expected}, not {found}")
            }
            KeyError::Unreadable { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for KeyError {}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Error {
        Error::BadInput(error.to_string())
    }
}

impl From<KeyError> for String {
    fn from(error: KeyError) -> String {
        error.to_string()
    }
}
