//! The plan of a query: the source of its candidates with the least expected work.

use super::Driver;

/// A driver, and the estimates that led to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The source of candidates.
    pub driver: Driver,
    /// The constraints whose indexes were compared, each with its expected candidates.
    pub compared: Vec<(usize, u64)>,
    /// The drivers that were weighed, including the one that was chosen; empty if there was no
    /// choice.
    pub weighed: Vec<Weighed>,
}

/// A driver that was weighed.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighed {
    /// The driver.
    pub driver: Driver,
    /// The expected number of candidates whose records are read.
    pub candidates: u64,
    /// The expected work, in the unit of the store; `None` if it was not estimated.
    pub work: Option<f64>,
}
