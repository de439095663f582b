//! Points in trees with spatially partitioned tables ([`super::partition`]): in each run a lookup
//! reads only the tables whose box meets the area, and in them the ranges of z-order, as in
//! [`super::z`]. With leveled compaction (`mbr`), a compaction repacks the points of a table and of
//! the tables that it overlaps in the next level. With tiered compaction (`stacked`), each run is
//! packed separately, as in AsterixDB, with which the paper compares.

use std::sync::Arc;

use esker_lsm::{Partitioner, TreeOptions};
use esker_model::definition::Merging;

use super::partition::Boxes;
use super::point_type::PointType;
use super::z::Z;
use crate::error::Result;
use crate::index::build::Build;
use crate::index::cost::Figures;
use crate::index::{
    Attribute, BestCandidates, Entry, IndexEntry, IndexType, Lookup, Range, VisitPosting, Writes,
};

/// The index of points in spatially partitioned tables.
pub(super) struct Packed {
    /// The tree is compacted tiered, also if the dataset's other trees are leveled.
    pub(super) is_stacked: bool,
    pub(super) points: PointType,
}

impl IndexType for Packed {
    fn add(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        Z.add(writes, index_entry)
    }

    fn cancel(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        Z.cancel(writes, index_entry)
    }

    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut BestCandidates,
    ) -> Result<()> {
        Z.candidates(lookup, attribute, range, best)
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        Z.estimate(lookup, attribute, range)
    }

    fn is_of_points(&self) -> bool {
        true
    }

    fn tree_options(&self, versions: usize) -> Option<TreeOptions> {
        let boxes: Arc<dyn Partitioner> = match self.points {
            PointType::Point => Arc::new(Boxes::<2>),
            PointType::PointTime => Arc::new(Boxes::<3>),
        };
        Some(TreeOptions {
            partitioner: Some(boxes),
            ..Z.tree_options(versions)?
        })
    }

    fn merging(&self, of_dataset: Merging) -> Merging {
        match of_dataset {
            Merging::Leveled | Merging::LazyLeveled if self.is_stacked => Merging::Tiered,
            merging => merging,
        }
    }

    fn entries_of(
        &self,
        attribute: &Attribute,
        entry: Entry<'_>,
        visit: &mut VisitPosting<'_>,
    ) -> Result<()> {
        Z.entries_of(attribute, entry, visit)
    }

    fn builder(&self) -> Option<Box<dyn Build>> {
        Z.builder()
    }

    fn is_built_by_key(&self) -> bool {
        true
    }

    fn figures(&self) -> Figures {
        Z.figures()
    }

    /// As `z`: the advisor considers only values that have an order.
    fn is_advised(&self) -> bool {
        false
    }
}
