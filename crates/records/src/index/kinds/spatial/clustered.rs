//! The records themselves in z-order: an index as in [`super::z`], with the stored record as the
//! value of each entry. The data tree has the head of each record: its attributes without its JSON
//! (`crate::bodies`).
//!
//! **Invariants.** A record has one point, and so one entry (or one per time, if it has times),
//! under the number of its write. An entry is cancelled only by a newer write of the same record.
//! So if a head is the newest entry of its key, the record is the newest entry of its key here,
//! whatever the maintenance strategy drops.

use esker_lsm::TreeOptions;
use esker_lsm::coding::Misplaced;

use super::z::{self, Offered, Z};
use crate::error::Result;
use crate::index::cost::Figures;
use crate::index::{
    Attribute, BestCandidates, Entry, IndexEntry, IndexType, Lookup, Range, VisitPosting, Writes,
};

/// The index of records that are stored by location.
pub(super) struct Clustered;

impl IndexType for Clustered {
    fn add(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        let tree = index_entry.attribute.index_tree()?;
        let record = index_entry.record.ok_or_else(|| Misplaced::here())?;
        let mut key = std::mem::take(&mut writes.scratch);
        key.clear();
        key.extend_from_slice(index_entry.value);
        key.extend_from_slice(index_entry.key);
        let result = writes.batch.also_parts(tree, &key, &record);
        writes.scratch = key;
        Ok(result?)
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
        z::candidates(lookup, attribute, range, best, Offered::Records)
    }

    fn estimate(&self, lookup: &Lookup<'_>, attribute: &Attribute, range: &Range) -> Result<u64> {
        Z.estimate(lookup, attribute, range)
    }

    fn is_of_points(&self) -> bool {
        true
    }

    fn brings_records(&self) -> bool {
        true
    }

    /// Unlike other trees of entries it is searched by exact key, and so has a key filter.
    fn tree_options(&self, versions: usize) -> Option<TreeOptions> {
        let searched = TreeOptions::default();
        Some(TreeOptions {
            filter_bits_per_key: searched.filter_bits_per_key,
            ..Z.tree_options(versions)?
        })
    }

    fn entries_of(
        &self,
        attribute: &Attribute,
        entry: Entry<'_>,
        visit: &mut VisitPosting<'_>,
    ) -> Result<()> {
        Z.entries_of(attribute, entry, visit)
    }

    /// An area's records are read with its entries.
    fn weight(&self) -> f64 {
        1.0
    }

    fn figures(&self) -> Figures {
        Z.figures()
    }

    /// As `z`: the advisor considers only values that have an order.
    fn is_advised(&self) -> bool {
        false
    }
}
