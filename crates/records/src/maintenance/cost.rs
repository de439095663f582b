//! The cost model by which `auto` chooses a strategy: microseconds of one core per write. The cost
//! of queries is divided among the writes counted in the same period.

use esker_model::definition::Maintenance;

// Microseconds each.

/// Looking up a key in the cache.
pub(super) const LOOK_UP_KEY: f64 = 1.5;
/// Fetching a record from the cache.
pub(super) const FETCH_CACHED: f64 = 4.0;
/// Reading an uncached block.
pub(super) const READ_BLOCK: f64 = 60.0;
/// Cancelling an index entry.
pub(super) const CANCEL: f64 = 1.5;
/// Setting a bit of the obsolete set.
pub(super) const SET_BIT: f64 = 0.7;
/// A write's share of repair: reading the write, and the write that it may have replaced.
pub(super) const REPAIR: f64 = 1.0;
/// Probing the primary-key index for an index entry.
pub(crate) const PROBE: f64 = 0.4;
/// Testing the bit of an index entry.
pub(super) const TEST_BIT: f64 = 0.01;
/// Skipping an obsolete entry.
pub(super) const SKIP: f64 = 0.1;
/// Fetching the record of an obsolete entry.
pub(crate) const FETCH: f64 = 5.0;
/// Visiting a record in a scan.
pub(super) const SCAN: f64 = 0.9;

/// The strategies that `auto` chooses from.
pub(crate) const CANDIDATES: [Maintenance; 3] = [
    Maintenance::Validation,
    Maintenance::MutableBitmap,
    Maintenance::Eager,
];

/// The automatic strategy until enough is measured to choose one.
pub(crate) const DEFAULT: Maintenance = Maintenance::Validation;

/// A measured workload, per write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WorkPerWrite {
    /// The share of writes that replace a record.
    pub(crate) update_ratio: f64,
    /// The number of stand-alone indexes.
    pub(crate) indexes: f64,
    /// Index entries visited by index-only queries.
    pub(crate) entries: f64,
    /// Records fetched by other index queries.
    pub(crate) fetched: f64,
    /// The share of these records that are obsolete, under validation.
    pub(crate) wasted: f64,
    /// Records visited by scans with range filters.
    pub(crate) scanned: f64,
    /// The share of the primary-key index that fits in the cache.
    pub(crate) keys_cached: f64,
    /// The share of the data that fits in the cache.
    pub(crate) data_cached: f64,
}

impl WorkPerWrite {
    /// The expected cost of reading a block of trees of which the share `cached` is cached.
    pub(super) fn miss(cached: f64) -> f64 {
        (1.0 - cached) * READ_BLOCK
    }

    /// The cost of looking up the key of a write.
    pub(super) fn lookup(&self) -> f64 {
        LOOK_UP_KEY + self.update_ratio * WorkPerWrite::miss(self.keys_cached)
    }

    /// The cost of skipping obsolete entries by their bits.
    pub(super) fn skipped(&self) -> f64 {
        (self.entries + self.fetched) * (TEST_BIT + SKIP * self.update_ratio / 2.0)
    }
}
