//! The outcome of a compare-and-set.

/// What a compare-and-set found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swapped {
    /// The row was as expected, and is changed.
    Done,
    /// The row is another, and unchanged.
    Other(Option<Vec<u8>>),
}
