//! The fingerprint index: like the embedded index (`embedded.rs`), but instead of a filter per
//! block a table has one map from fingerprints of values to blocks. So a lookup makes one probe per
//! table.

use esker_lsm::attributes::Summary;

use super::embedded;
use crate::error::Result;
use crate::index::cost::{Access, AttributeProfile, Figures, Workload, percent};
use crate::index::lookup::value_range;
use crate::index::{Attribute, BestCandidates, IndexEntry, IndexType, Lookup, Range, Writes};

/// The fingerprint index.
pub(super) struct Fingerprint;

impl IndexType for Fingerprint {
    fn add(&self, _writes: &mut Writes, _entry: IndexEntry<'_>) -> Result<()> {
        Ok(())
    }

    fn cancel(&self, _writes: &mut Writes, _entry: IndexEntry<'_>) -> Result<()> {
        Ok(())
    }

    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut BestCandidates,
    ) -> Result<()> {
        embedded::candidates(lookup, attribute, range, value_range(range), best)
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        embedded::estimate(lookup, attribute, range, &value_range(range))
    }

    fn work(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        expected: u64,
    ) -> Result<f64> {
        let read = embedded::read_for(lookup, attribute, range, &value_range(range))?;
        Ok(read.max(expected) as f64 * self.weight())
    }

    fn summary(&self) -> Option<Summary> {
        Some(Summary::Fingerprints)
    }

    fn figures(&self) -> Figures {
        Figures {
            access: Access::MappedBlocks,
            write: 0.35,
            lookup: 60.0,
            row: 5.2,
            entry: 0.0,
            bytes: 4.0,
        }
    }

    fn why(&self, work: &Workload, _profile: &AttributeProfile) -> String {
        format!(
            "{} of the operations are writes and only {} query it: writes must stay cheap, and a lookup still probes each table only once",
            percent(work.writes),
            percent(work.queries())
        )
    }
}
