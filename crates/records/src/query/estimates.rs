//! The estimates of this store for the planner.

use esker_lsm::coding::{Misplaced, Own};
use esker_model::query::{Estimate, Expected};
use esker_model::range::Range;

use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::{Best, Lookup, Recency, Window};

/// Data blocks that may be read for the estimate of a test.
const LOOKS: u32 = 1;

/// Estimates of the indexes that a lookup reads.
pub(super) struct Estimates<'a> {
    pub(super) lookup: &'a Lookup<'a>,
    pub(super) layout: &'a Layout,
}

impl Estimate for Estimates<'_> {
    type Error = Error;

    fn expect(&mut self, attribute: usize, ranges: &[Range]) -> Result<Expected> {
        let lookup = self.lookup;
        let attribute = self.layout.attributes.get(attribute);
        let attribute = attribute.ok_or_else(Misplaced::here)?;
        let index = attribute.index().ok_or_else(Misplaced::here)?;
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
        let lookup = self.lookup;
        let attribute = self.layout.attributes.item(attribute)?;
        let other = esker_model::schema::other(attribute.ty);
        let (Some(index), Some(other)) = (attribute.index(), other) else {
            return Ok(true);
        };
        let mut best = Best::new(Window {
            order: Recency::Newest,
            after: None,
            want: 1,
            bytes: usize::MAX,
        });
        let range = Range::exactly(other.to_vec());
        index.candidates(lookup, attribute, &range, &mut best)?;
        Ok(!best.finish().0.is_empty())
    }
}
