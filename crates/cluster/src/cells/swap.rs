//! The outcome of a compare-and-set.

/// What a compare-and-set found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swapped {
    /// The row was as expected, and is changed.
    Done,
    /// The row is another. It is unchanged, or, if an attempt had no answer, others have changed it
    /// since.
    Other(Option<Vec<u8>>),
}
