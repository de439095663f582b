//! How a store validates the candidates of its indexes. The answer of a query does not depend on
//! it.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// How candidates of an index are validated (Luo & Carey section 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Validation {
    /// Chooses by expected cost: timestamps if many candidates were obsolete before, and for
    /// answers without records.
    #[default]
    Auto,
    /// Fetches the records, which decide; answers without records fetch them, too.
    Direct,
    /// Probes the primary-key index first, if the strategy has one.
    Timestamp,
}

impl FromStr for Validation {
    type Err = Error;
    fn from_str(text: &str) -> Result<Validation> {
        match text {
            "auto" => Ok(Validation::Auto),
            "direct" => Ok(Validation::Direct),
            "timestamp" => Ok(Validation::Timestamp),
            _ => Err(Error::bad_input(format!(
                "unknown validation `{text}`: use one of auto, direct, timestamp"
            ))),
        }
    }
}

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Validation::Auto => "auto",
            Validation::Direct => "direct",
            Validation::Timestamp => "timestamp",
        })
    }
}
