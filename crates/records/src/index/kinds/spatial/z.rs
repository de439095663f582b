//! Points in z-order: a tree whose keys are point and primary key together. The encoding of a point
//! begins with its cell (`esker_model::schema::POINT_LEN`), so that neighbours in space are mostly
//! neighbours in the tree, and an area is a bounded number of key ranges (`esker_model::region`).
//! The key has the exact coordinates, so entries in the ranges but outside of the area are dropped
//! without reading their records.

use std::sync::Arc;

use esker_lsm::version::TableFile;
use esker_lsm::{Slice, TreeOptions};

use super::each::each_put;
use super::ranges::meets;
use crate::error::Result;
use crate::index::build::Build;
use crate::index::cost::{Access, Figures};
use crate::index::estimate::PointKeys;
use crate::index::kinds::composite::{Builder, Composite};
use crate::index::{
    Attribute, BestCandidates, Entry, IndexEntry, IndexType, Lookup, Origin, Range, VisitPosting,
    Writes,
};

/// The index of the layout `z`; the other layouts of trees share its entries.
pub(super) struct Z;

impl IndexType for Z {
    fn add(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        Composite.add(writes, index_entry)
    }

    fn cancel(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        Composite.cancel(writes, index_entry)
    }

    fn candidates(
        &self,
        lookup: &Lookup<'_>,
        attribute: &Attribute,
        range: &Range,
        best: &mut BestCandidates,
    ) -> Result<()> {
        candidates(lookup, attribute, range, best, Offered::Keys)
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        let meets = |file: &TableFile| meets(file, range);
        let bounds = self.bounds(range);
        if lookup.looks.is_planning() {
            lookup.estimate_area(attribute, range, &bounds, &meets)
        } else {
            lookup.approximate_where(attribute, bounds.iter(), &meets)
        }
    }

    fn is_of_points(&self) -> bool {
        true
    }

    fn tree_options(&self, versions: usize) -> Option<TreeOptions> {
        Some(TreeOptions {
            extractor: Some(Arc::new(PointKeys)),
            ..Composite.tree_options(versions)?
        })
    }

    fn entries_of(
        &self,
        attribute: &Attribute,
        entry: Entry<'_>,
        visit: &mut VisitPosting<'_>,
    ) -> Result<()> {
        Composite.entries_of(attribute, entry, visit)
    }

    fn builder(&self) -> Option<Box<dyn Build>> {
        Some(Box::new(Builder::default()))
    }

    fn is_built_by_key(&self) -> bool {
        true
    }

    fn figures(&self) -> Figures {
        Figures {
            access: Access::Entries,
            write: 1.1,
            lookup: 45.0,
            row: 5.0,
            entry: 0.05,
            bytes: 15.0,
        }
    }

    /// The advisor considers only values that have an order.
    fn is_advised(&self) -> bool {
        false
    }
}

/// The content of the offered candidates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Offered {
    /// Keys alone.
    Keys,
    /// Keys and the records in the values of the entries.
    Records,
}

/// Offers the points in `range` of a tree in z-order.
///
/// # Errors
/// Any read error.
pub(super) fn candidates(
    lookup: &Lookup<'_>,
    attribute: &Attribute,
    range: &Range,
    best: &mut BestCandidates,
    offered: Offered,
) -> Result<()> {
    each_put(
        lookup,
        attribute,
        range,
        best,
        &mut |_, key, entry, best| {
            let record = || match offered {
                Offered::Keys => None,
                Offered::Records => Some((Slice::from(entry.value), Origin::IndexEntry)),
            };
            best.offer_with(entry.seq, key, record);
            Ok(())
        },
    )
}
