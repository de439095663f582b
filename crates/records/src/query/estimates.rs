//! The estimates of this store for the planner.

use esker_model::query::{Estimate, Expected};
use esker_model::range::Range;

use crate::error::{Error, Result};
use crate::index::{self, Best, Lookup, Order, Window};

/// Data blocks that may be read for the estimate of a test.
const LOOKS: u32 = 1;

/// Estimates of the indexes that a lookup reads.
pub(super) struct Estimates<'a>(pub(super) &'a Lookup<'a>);

impl Estimate for Estimates<'_> {
    type Error = Error;

    fn expect(&mut self, attribute: usize, ranges: &[Range]) -> Result<Expected> {
        let lookup = self.0;
        let attribute = lookup.layout.attributes.get(attribute);
        let (Some(attribute), Some(index)) = (attribute, attribute.and_then(|a| index::of(a.kind)))
        else {
            return Ok(Expected::default());
        };
        lookup.looks.renew(LOOKS);
        let mut expected = Expected::default();
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let candidates = index.estimate(lookup, attribute, range)?;
            expected.work += index.work(lookup, attribute, range, candidates)?;
            expected.candidates += candidates;
        }
        Ok(expected)
    }

    /// Looks for one entry. Without an index any record may have such a value.
    fn has_other(&mut self, attribute: usize) -> Result<bool> {
        let lookup = self.0;
        let Some(attribute) = lookup.layout.attributes.get(attribute) else {
            return Ok(true);
        };
        let other = esker_model::schema::other(attribute.ty);
        let (Some(index), Some(other)) = (index::of(attribute.kind), other) else {
            return Ok(true);
        };
        let mut best = Best::new(Window {
            order: Order::Newest,
            after: None,
            want: 1,
            bytes: usize::MAX,
        });
        let range = Range::exactly(other.to_vec());
        index.candidates(lookup, attribute, &range, &mut best)?;
        Ok(!best.finish().0.is_empty())
    }
}
