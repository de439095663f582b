//! What a store can do beyond reads and writes of records.

use esker::{Error, Result};

/// The operations that a store has, beyond reads and writes of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// Named snapshots ([`Store::keep_snapshot`](crate::Store::keep_snapshot)).
    pub snapshots: bool,
    /// Versions of records ([`Records::versions`](crate::Records::versions)).
    pub versions: bool,
    /// Changes of indexes ([`Dataset::add_index`](crate::Dataset::add_index)); without it a
    /// definition only declares fields.
    pub indexes: bool,
    /// The change feed ([`Dataset::changes`](crate::Dataset::changes)).
    pub changes: bool,
    /// Records that expire ([`Dataset::set_ttl`](crate::Dataset::set_ttl)).
    pub expiry: bool,
    /// Compaction, maintenance strategies and repair.
    pub maintenance: bool,
    /// [`Dataset::summary`](crate::Dataset::summary), in place of
    /// [`maintenance`](Self::maintenance).
    pub summaries: bool,
    /// [`Store::check`](crate::Store::check) and [`Store::backup`](crate::Store::backup).
    pub files: bool,
    /// Records lie in the order of their keys: [`Records::scan`](crate::Records::scan) of a range
    /// reads no more than the range.
    pub key_order: bool,
}

/// The error for an operation that a store does not have, with what to do instead.
pub(crate) fn unsupported<T>(what: &str, instead: &str) -> Result<T> {
    Err(Error::Unsupported(format!(
        "this store has no {what}: {instead}"
    )))
}
