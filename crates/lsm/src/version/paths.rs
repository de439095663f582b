//! The engine's files: their names, and where in them a table is.

use std::path::{Path, PathBuf};

use super::limits::MAX_FILE;

/// The number in the name of an engine file: at least six digits.
pub(crate) fn own_number(name: &str, prefix: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    let number = digits.parse().ok().filter(|number| *number <= MAX_FILE)?;
    (format!("{number:06}") == digits).then_some(number)
}

/// The path of log segment `number`.
pub(crate) fn log_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.log"))
}

/// The path of manifest `number`.
pub(crate) fn manifest_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("MANIFEST-{number:06}"))
}

/// The location of a table in a shared file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file's number.
    pub(crate) file: u64,
    /// The table's offset in the file.
    pub(crate) offset: u64,
    /// Bytes of the whole file.
    pub(crate) len: u64,
}
