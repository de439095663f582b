//! The estimates of this store for the planner: how many entries an index has in a range, and how
//! long it takes to read them, in about microseconds, from metadata and a bounded number of blocks.

use esker_lsm::Component;
use esker_lsm::coding::{Misplaced, Own};
use esker_model::query::{Estimate, Expected};
use esker_model::range::Range;

use super::input::Combining;
use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::{BestCandidates, Lookup, Recency, Window};

/// The number of data blocks that may be read for the estimate of one constraint: more than one
/// only where the first shows little of what may be there.
pub(super) const BLOCKS_PER_ESTIMATE: u32 = 3;

/// The work of finding the first entry of a range, in about microseconds.
const WORK_PER_RANGE: f64 = 20.0;

/// The work of reading an entry without its record, in about microseconds. An entry whose block
/// must be read from a file takes not much longer; a record that must be read takes much longer.
const WORK_PER_ENTRY: f64 = 0.08;

/// As [`WORK_PER_ENTRY`], for points: entries outside of the area share their cells.
const WORK_PER_POINT: f64 = 2.0 * WORK_PER_ENTRY;

/// The work of a candidate, in about microseconds, if the query demands combinations: so much that
/// reading entries seems cheaper than reading any record.
const WORK_IF_COMBINING: f64 = 1e3;

/// The least number of records that the planner assumes.
const MIN_RECORDS: u64 = 4;

/// Estimates of the indexes that a lookup reads.
pub(super) struct Estimates<'a> {
    pub(super) lookup: &'a Lookup<'a>,
    pub(super) layout: &'a Layout,
    pub(super) combining: Combining,
}

impl Estimates<'_> {
    /// The estimate; if the query demands or forbids combinations, one by which a combination
    /// always or never seems cheaper.
    fn adjusted(&self, expected: Expected) -> Expected {
        match (self.combining, expected.listing) {
            (Combining::Always, Some(listing)) => {
                let most = self.stored_versions() / 2;
                let candidates = expected.candidates.clamp(1, most.max(1));
                Expected {
                    candidates,
                    work: WORK_IF_COMBINING * candidates as f64 + listing,
                    listing: Some(0.0),
                }
            }
            (Combining::Never, _) => Expected {
                listing: None,
                ..expected
            },
            (Combining::Auto | Combining::Always, _) => expected,
        }
    }

    /// The number of versions in the data tree, which indexes have entries of; at least
    /// [`MIN_RECORDS`], because an estimate does not distinguish few records from none.
    fn stored_versions(&self) -> u64 {
        let components = self.lookup.snapshot.components(self.lookup.data);
        let entries = components.iter().map(Component::entries);
        entries.sum::<u64>().max(MIN_RECORDS)
    }
}

impl Estimate for Estimates<'_> {
    type Error = Error;

    fn expect(&mut self, attribute_at: usize, ranges: &[Range]) -> Result<Expected> {
        let lookup = self.lookup;
        let attribute = self.layout.attributes.item(attribute_at)?;
        let index = attribute.index().ok_or_else(|| Misplaced::here())?;
        lookup.looks.renew(BLOCKS_PER_ESTIMATE);
        // The records of other indexes come with their entries, or are the entries.
        let can_list = attribute.kind.is_standalone() && !index.brings_records();
        let entry = if index.is_of_points() {
            WORK_PER_POINT
        } else {
            WORK_PER_ENTRY
        };
        let mut expected = Expected {
            listing: can_list.then_some(0.0),
            ..Expected::default()
        };
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let candidates = index.estimate(lookup, attribute, range)?;
            expected.work += index.work(lookup, attribute, range, candidates)?;
            expected.candidates += candidates;
            if let Some(listing) = &mut expected.listing {
                *listing += WORK_PER_RANGE + entry * candidates as f64;
            }
        }
        Ok(self.adjusted(expected))
    }

    fn records(&mut self) -> Result<Option<u64>> {
        Ok(Some(self.stored_versions()))
    }

    /// Searches the index for one entry of a value that has no encoding. Without an index any
    /// record may have such a value.
    fn has_other(&mut self, attribute_at: usize) -> Result<bool> {
        let lookup = self.lookup;
        let attribute = self.layout.attributes.item(attribute_at)?;
        let other = esker_model::schema::stand_in(attribute.ty);
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
        let (others, _) = best.finish();
        Ok(!others.is_empty())
    }
}
