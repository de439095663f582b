//! The state of a dataset whose files are not the store's: on a cluster.

use esker::Path;

/// The state of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The indexes, also those that are being filled.
    pub indexes: Vec<IndexSummary>,
    /// What was obsolete before this time is removed, in milliseconds since 1970; `None` before the
    /// first repair.
    pub repaired: Option<u64>,
}

/// The state of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSummary {
    /// The path of its field.
    pub path: Path,
    /// True if queries use it; false while it is being filled.
    pub is_ready: bool,
    /// The buckets of its values: a bucket that has become large was split.
    pub buckets: u64,
    /// The partitions of all buckets.
    pub partitions: u64,
}
