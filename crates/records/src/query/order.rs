//! The order of answers in bulk.

/// The order in which [`visit`](crate::Query::visit) returns records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BulkOrder {
    /// In no particular order: the fastest.
    Any,
    /// By primary key, ascending.
    Key,
}
