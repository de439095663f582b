//! Points in the summaries of the data's tables: the index writes nothing besides the records. Each
//! table, partition and block of the data has the bounding box of its points, including their times
//! if they have times. A lookup reads the blocks whose box meets a box around the area. It is the
//! embedded index ([`super::super::embedded`]) with other summaries, and pays off if records are
//! written in the order of location (or time), or if their keys have that order.

use esker_lsm::attributes::Summary;
use esker_lsm::synopsis::{Corners, ValueRange};
use esker_model::region::Region;
use esker_model::schema::{coordinate_bytes, time_coordinate};

use super::partition::first_coordinate;
use crate::error::Result;
use crate::index::cost::Figures;
use crate::index::kinds::embedded::{self, Embedded};
use crate::index::{Attribute, BestCandidates, IndexEntry, IndexType, Lookup, Range, Writes};

/// The index of points in the summaries of the data.
pub(super) struct EmbeddedPoints {
    /// The dimensions of the boxes: two, or three with time.
    pub(super) dimensions: usize,
}

/// Bounding boxes of an area.
fn boxes(region: &Region) -> Vec<Corners> {
    let corner = |x, y, time: Option<i64>| {
        let mut corner = Vec::with_capacity(24);
        corner.extend_from_slice(&coordinate_bytes(x));
        corner.extend_from_slice(&coordinate_bytes(y));
        if let Some(time) = time {
            corner.extend_from_slice(&time_coordinate(time).to_be_bytes());
        }
        corner
    };
    let (from, to) = region.times().unzip();
    let parts = region.area().boxes().iter();
    let corners = parts.map(|part| {
        (
            corner(part.min_x, part.min_y, from),
            corner(part.max_x, part.max_y, to),
        )
    });
    corners.collect()
}

impl EmbeddedPoints {
    /// The range in the form of the summaries.
    fn values(&self, range: &Range) -> ValueRange {
        let point = range.point();
        let corner = point.and_then(|point| point.get(first_coordinate(self.dimensions)..));
        let boxes = match (range.regions.first(), corner) {
            (Some(region), _) => boxes(region),
            (None, Some(corner)) => vec![(corner.to_vec(), corner.to_vec())],
            // The box of all points includes those of any range.
            (None, None) => vec![Corners::default()],
        };
        ValueRange::in_boxes(boxes)
    }
}

impl IndexType for EmbeddedPoints {
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
        best: &mut BestCandidates,
    ) -> Result<()> {
        embedded::candidates(lookup, attribute, range, self.values(range), best)
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        embedded::estimate(lookup, attribute, range, &self.values(range))
    }

    fn work(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        expected: u64,
    ) -> Result<f64> {
        let read = embedded::read_for(lookup, attribute, range, &self.values(range))?;
        Ok(read.max(expected) as f64 * self.weight())
    }

    fn summary(&self) -> Option<Summary> {
        Some(Summary::Boxes(first_coordinate(self.dimensions)))
    }

    fn figures(&self) -> Figures {
        Embedded.figures()
    }

    /// The advisor considers only values that have an order.
    fn is_advised(&self) -> bool {
        false
    }
}
