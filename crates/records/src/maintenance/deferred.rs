//! Deferred maintenance (DELI): a write adds its entries and nothing else, not even a key. A query
//! fetches the record to validate a candidate, and notes obsolete writes. Compactions of the data
//! report their drops, and repairs read the records.

use super::strategy::Strategy;

/// Deferred maintenance.
pub(super) struct Deferred;

impl Strategy for Deferred {
    fn notes_what_queries_find(&self) -> bool {
        true
    }

    fn data_reports(&self) -> bool {
        true
    }
}
