//! What a store knows of its indexes before it reads them.

use crate::range::Range;

/// What reading an index for some ranges is expected to give and to cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Expected {
    /// The number of candidates.
    pub candidates: u64,
    /// The work of reading the entries and their records, in a unit that is the same for all
    /// indexes of a store.
    pub work: f64,
    /// The work of reading the entries alone, if they can be combined with those of other indexes
    /// before records are read.
    pub listing: Option<f64>,
}

/// The estimates of a store for the indexes of a dataset. Attributes are named by their places in
/// the [`Shape`](super::Shape).
pub trait Estimate {
    /// The error of a read.
    type Error;

    /// The expectation for the index of an attribute, read for these ranges of tokens.
    ///
    /// # Errors
    /// Any read error.
    fn expect(&mut self, attribute: usize, ranges: &[Range]) -> Result<Expected, Self::Error>;

    /// About how many records the dataset has; `None` if the store does not combine the entries of
    /// several indexes.
    ///
    /// # Errors
    /// Any read error.
    fn records(&mut self) -> Result<Option<u64>, Self::Error> {
        Ok(None)
    }

    /// True if the index of an attribute may have entries of values that the attribute's type has
    /// no encoding for ([`stand_in`](crate::schema::stand_in)).
    ///
    /// # Errors
    /// Any read error.
    fn has_other(&mut self, attribute: usize) -> Result<bool, Self::Error>;
}

/// The estimates of a store without statistics: every index costs the same, and may have every
/// value.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEstimates;

impl Estimate for NoEstimates {
    type Error = crate::Error;

    fn expect(&mut self, _attribute: usize, _ranges: &[Range]) -> crate::Result<Expected> {
        Ok(Expected::default())
    }

    fn has_other(&mut self, _attribute: usize) -> crate::Result<bool> {
        Ok(true)
    }
}
