//! What the first entries of indexes say of their lengths: by it the index is chosen that drives a
//! query.

use esker_model::query::{Estimate, Expected};
use esker_model::range::Range;

use crate::bound::Bound;
use crate::error::{Error, Result};
use crate::shared::Shared;
use crate::sources::{Sought, Source, fill, sources};
use crate::time::millis;

/// Partitions that are asked of an index; the others are taken to be like them.
const MOST: usize = 16;
/// What a list of unknown length is taken to have at least, beyond its first page.
const LONG: f64 = 1e6;
/// The time for which the rate of the first entries is taken to have held, in milliseconds: the
/// same for all, since lists are only compared.
const AGE: f64 = 2.6e9;

/// The estimates of the indexes of a dataset.
pub(crate) struct Probe<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) bound: &'a Bound,
    /// Entries that were read.
    pub(crate) read: u64,
}

impl Estimate for Probe<'_> {
    type Error = Error;

    fn expect(&mut self, attribute: usize, ranges: &[Range]) -> Result<Expected> {
        let indexes = &self.bound.indexes;
        let Some(index) = indexes.iter().position(|index| index.place == attribute) else {
            return Ok(Expected::default());
        };
        let ranges = ranges.to_vec();
        let mut all = sources(self.bound, &[Sought { index, ranges }], None);
        let count = all.len();
        all.truncate(MOST);
        self.read += fill(self.shared, all.iter_mut().collect())?;
        let asked = all.len().max(1);
        let sum: f64 = all.iter().map(expected).sum();
        let work = sum * count as f64 / asked as f64;
        let candidates = work.min(1e15) as u64;
        Ok(Expected {
            candidates,
            work,
            listing: None,
        })
    }

    fn has_other(&mut self, _attribute: usize) -> Result<bool> {
        Ok(true)
    }
}

/// The entries of a partition, by its first page.
fn expected(source: &Source) -> f64 {
    let held = source.held.len() as f64;
    if source.next.is_none() {
        return held;
    }
    let times = || source.held.iter().map(|candidate| millis(candidate.at));
    let (Some(newest), Some(oldest)) = (times().max(), times().min()) else {
        return held;
    };
    let is_point = source.range.point().is_some();
    held + LONG
        + if is_point {
            // The entries of one value are newest first.
            held * AGE / (newest.saturating_sub(oldest).max(1) as f64)
        } else {
            AGE * 256.0
        }
}
