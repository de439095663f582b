//! The cost model by which `auto` chooses a strategy: microseconds of one core per write. The cost
//! of queries is divided among the writes counted in the same period.

use esker_model::definition::Maintenance;

/// Looking up a key in the cache; fetching a record from the cache; reading an uncached block.
pub(super) const KEY: f64 = 1.5;
pub(super) const RECORD: f64 = 4.0;
pub(super) const READ: f64 = 60.0;
/// Cancelling an index entry; setting a bit.
pub(super) const CANCEL: f64 = 1.5;
pub(super) const BIT: f64 = 0.7;
/// A write's share of repair: reading the write, and the write that it may have replaced.
pub(super) const REPAIR: f64 = 1.0;
/// Probing the primary-key index for an index entry; testing its bit; skipping an obsolete entry.
pub(crate) const ASK: f64 = 0.4;
pub(super) const TEST: f64 = 0.01;
pub(super) const PASS: f64 = 0.1;
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

/// The strategy before anything is measured.
pub(crate) const FIRST: Maintenance = Maintenance::Validation;

/// A measured workload, per write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Workload {
    /// The share of writes that replace a record.
    pub(crate) update_ratio: f64,
    /// Stand-alone indexes.
    pub(crate) indexes: f64,
    /// Index entries visited by index-only queries.
    pub(crate) entries: f64,
    /// Records fetched by other index queries.
    pub(crate) fetched: f64,
    /// The share of these records that are obsolete, under validation.
    pub(crate) wasted: f64,
    /// Records visited by scans with range filters.
    pub(crate) scanned: f64,
    /// The shares of the primary-key index and of the data that fit in the cache.
    pub(crate) keys_cached: f64,
    pub(crate) data_cached: f64,
}

impl Workload {
    /// The expected cost of reading a block of trees of which the share `cached` is cached.
    pub(super) fn miss(cached: f64) -> f64 {
        (1.0 - cached) * READ
    }

    /// Looking up the key of a write.
    pub(super) fn lookup(&self) -> f64 {
        KEY + self.update_ratio * Workload::miss(self.keys_cached)
    }

    /// Skipping obsolete entries by their bits.
    pub(super) fn passed(&self) -> f64 {
        (self.entries + self.fetched) * (TEST + PASS * self.update_ratio / 2.0)
    }
}
