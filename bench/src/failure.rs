//! The one error of the benchmark: a message for the person at the terminal.

use std::fmt;

/// Why something could not be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String);

/// A result whose error is a message.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure(message.into())
    }

    /// The same, saying first what was being done.
    pub fn context(self, doing: impl fmt::Display) -> Failure {
        Failure(format!("{doing}: {}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}
