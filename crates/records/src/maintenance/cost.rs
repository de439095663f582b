//! What the strategies cost that `auto` chooses from: microseconds of one core per write, queries being divided among the writes
//! that were counted with them.

use esker_model::definition::Maintenance;

/// Looking a key up in the cache; fetching a record from it; reading a block that is not in it.
pub(super) const KEY: f64 = 1.5;
pub(super) const RECORD: f64 = 4.0;
pub(super) const READ: f64 = 60.0;
/// Taking an entry back; setting a bit.
pub(super) const CANCEL: f64 = 1.5;
pub(super) const BIT: f64 = 0.7;
/// A write's share of repairs: it is gone through, and what it may have replaced is.
pub(super) const REPAIR: f64 = 1.0;
/// Asking the primary-key index about an entry; testing its bit; passing by an entry that is obsolete.
pub(crate) const ASK: f64 = 0.4;
pub(super) const TEST: f64 = 0.01;
pub(super) const PASS: f64 = 0.1;
/// Fetching the record of an entry that is obsolete.
pub(crate) const FETCH: f64 = 5.0;
/// Going through a record in a scan.
pub(super) const SCAN: f64 = 0.9;

/// The strategies that are chosen from.
pub(crate) const CANDIDATES: [Maintenance; 3] = [
    Maintenance::Validation,
    Maintenance::MutableBitmap,
    Maintenance::Eager,
];

/// The one that is taken before anything is measured.
pub(crate) const FIRST: Maintenance = Maintenance::Validation;

/// What is measured, per write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Workload {
    /// The share of writes that replace a record.
    pub(crate) update_ratio: f64,
    /// Stand-alone indexes.
    pub(crate) indexes: f64,
    /// Index entries that index-only queries go through.
    pub(crate) entries: f64,
    /// Records that other queries of indexes fetch.
    pub(crate) fetched: f64,
    /// The share of these that are obsolete, under validation.
    pub(crate) wasted: f64,
    /// Records that scans with range filters go through.
    pub(crate) scanned: f64,
    /// The shares of the primary-key index and of the data that the cache has room for.
    pub(crate) keys_cached: f64,
    pub(crate) data_cached: f64,
}

impl Workload {
    /// What is lost where a block has to be read, of trees of which such a share is cached.
    pub(super) fn miss(cached: f64) -> f64 {
        (1.0 - cached) * READ
    }

    /// Looking up the key of a write.
    pub(super) fn lookup(&self) -> f64 {
        KEY + self.update_ratio * Workload::miss(self.keys_cached)
    }

    /// Passing by the entries that are obsolete, by their bits.
    pub(super) fn passed(&self) -> f64 {
        (self.entries + self.fetched) * (TEST + PASS * self.update_ratio / 2.0)
    }
}

/// Microseconds per write.
pub(crate) fn cost(strategy: Maintenance, work: &Workload) -> f64 {
    super::of(strategy).cost(work)
}
