//! Deferred maintenance (DELI): a write writes, and no more, not even a key; a query fetches the record and looks, and what it finds
//! to be obsolete is noted. Compactions of the data report what they drop, and repairs go by the records.

use super::Strategy;

pub(super) struct Deferred;

impl Strategy for Deferred {
    fn notes_what_queries_find(&self) -> bool {
        true
    }

    fn data_reports(&self) -> bool {
        true
    }
}
