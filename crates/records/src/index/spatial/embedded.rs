//! Points that tables of the data summarise: nothing is written beside the records. Each table, partition and block of the
//! data carries the least and the greatest place in z-order of its points; a lookup reads the blocks whose span meets one of
//! the few ranges that cover the area. It is the embedded index ([`super::super::embedded`]), asked for each of these ranges,
//! and pays where records come in the order of place, or keys are.

use std::ops::Bound;

use lsm::attributes::Summary;

use super::super::cost::Figures;
use super::super::embedded::{self, Embedded};
use super::super::{Best, Index, IndexEntry, Lookup, Range, Writes};
use crate::catalog::Attribute;
use crate::error::Result;

pub(super) struct InData;

/// The parts of a range of points that cover it, one after the other.
fn parts(range: &Range) -> Vec<Range> {
    let Some(region) = range.regions.first() else {
        return vec![range.clone()];
    };
    let part = |(lo, hi): (Vec<u8>, Option<Vec<u8>>)| Range {
        lo: Bound::Included(lo),
        hi: hi.map_or(Bound::Unbounded, Bound::Excluded),
        regions: range.regions.clone(),
    };
    region.coarse_ranges().map(part).collect()
}

impl Index for InData {
    fn add(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        Embedded.add(writes, index_entry)
    }

    fn cancel(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        Embedded.cancel(writes, index_entry)
    }

    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut Best,
    ) -> Result<()> {
        for part in parts(range) {
            embedded::candidates(lookup, attribute, &part, best)?;
        }
        Ok(())
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        let mut expected = 0;
        for part in parts(range) {
            expected += embedded::estimate(lookup, attribute, &part)?;
        }
        Ok(expected)
    }

    fn summary(&self) -> Option<Summary> {
        Embedded.summary()
    }

    fn figures(&self) -> Figures {
        Embedded.figures()
    }

    fn is_advised(&self) -> bool {
        false
    }
}
