//! The estimates of this store for the planner.

use esker_lsm::Component;
use esker_lsm::coding::{Misplaced, Own};
use esker_model::query::{Estimate, Expected};
use esker_model::range::Range;

use super::input::Combining;
use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::{BestCandidates, Lookup, Recency, Window};

/// Data blocks that may be read for the estimate of a test.
const LOOKS: u32 = 1;

/// The work of finding the entries of a range, and of reading one without its record, in about
/// microseconds. A block of entries that must be read from a file is not much slower per entry than
/// that; a record that must be is slower by far.
const LISTING: f64 = 20.0;
const ENTRY: f64 = 0.08;

/// Entries of points are read beside others of the same cells.
const POINT: f64 = 2.0 * ENTRY;

/// The least number of records that the planner reckons with.
const FEWEST: u64 = 4;

/// Estimates of the indexes that a lookup reads.
pub(super) struct Estimates<'a> {
    pub(super) lookup: &'a Lookup<'a>,
    pub(super) layout: &'a Layout,
    pub(super) combining: Combining,
}

impl Estimates<'_> {
    /// The estimate, or one by which a combination always or never seems cheaper.
    fn favoured(&mut self, expected: Expected) -> Result<Expected> {
        let (candidates, listing) = match (self.combining, expected.listing) {
            (Combining::Always, Some(listing)) => (expected.candidates, listing),
            (Combining::Never, _) => {
                return Ok(Expected {
                    listing: None,
                    ..expected
                });
            }
            (Combining::Auto | Combining::Always, _) => return Ok(expected),
        };
        let most = self.records()?.unwrap_or_default() / 2;
        let candidates = candidates.clamp(1, most.max(1));
        Ok(Expected {
            candidates,
            work: 1e3 * candidates as f64 + listing,
            listing: Some(0.0),
        })
    }
}

impl Estimate for Estimates<'_> {
    type Error = Error;

    fn expect(&mut self, attribute: usize, ranges: &[Range]) -> Result<Expected> {
        let lookup = self.lookup;
        let attribute = self.layout.attributes.get(attribute);
        let attribute = attribute.ok_or_else(Misplaced::here)?;
        let index = attribute.index().ok_or_else(Misplaced::here)?;
        lookup.looks.renew(LOOKS);
        // The records of other indexes come with their entries, or are the entries.
        let can_list = attribute.kind.is_standalone() && !index.brings_records();
        let entry = if index.is_of_points() { POINT } else { ENTRY };
        let mut expected = Expected {
            listing: can_list.then_some(0.0),
            ..Expected::default()
        };
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let candidates = index.estimate(lookup, attribute, range)?;
            expected.work += index.work(lookup, attribute, range, candidates)?;
            expected.candidates += candidates;
            if let Some(listing) = &mut expected.listing {
                *listing += LISTING + entry * candidates as f64;
            }
        }
        self.favoured(expected)
    }

    /// Counts the versions in the data: indexes have entries of all of them, too.
    fn records(&mut self) -> Result<Option<u64>> {
        let components = self.lookup.snapshot.components(self.lookup.data);
        let entries = components.iter().map(Component::entries);
        // Few and none are the same to an estimate.
        Ok(Some(entries.sum::<u64>().max(FEWEST)))
    }

    /// Looks for one entry. Without an index any record may have such a value.
    fn has_other(&mut self, attribute: usize) -> Result<bool> {
        let lookup = self.lookup;
        let attribute = self.layout.attributes.item(attribute)?;
        let other = esker_model::schema::other(attribute.ty);
        let (Some(index), Some(other)) = (attribute.index(), other) else {
            return Ok(true);
        };
        let mut best = BestCandidates::new(Window {
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
