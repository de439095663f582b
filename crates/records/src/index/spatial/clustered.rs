//! The records themselves in z-order: an index as in [`super::z`] whose entries have the whole record for their value. The tree
//! of the data has a stub of each, its attributes without its JSON (`crate::store::clustered`).
//!
//! **Invariants.** A record has one point, and so one entry (one for each of its times, where these count), under the number of its write. A write that takes an entry back is a
//! newer write of the same record. So where a stub is the newest entry of its key, the record is the newest entry of its own key
//! here, whatever the maintenance strategy drops.

use esker_lsm::TreeOptions;
use esker_model::record::RecordRef;

use super::super::cost::Figures;
use super::super::{Best, Entry, Index, IndexEntry, Lookup, Range, VisitPosting, Writes, tree_of};
use super::z::{self, Z};
use crate::catalog::Attribute;
use crate::error::{Error, Result};

pub(super) struct Clustered;

/// True for the entry, of those that the tree by place has of one record, which stands for it among those that `admits` takes: the
/// first. Only a record of several times has several.
pub(crate) fn stands_for_record(
    attribute: &Attribute,
    (value, stored): (&[u8], &[u8]),
    admits: impl Fn(&[u8]) -> bool,
) -> Result<bool> {
    if attribute.ty.timed_space().is_none() {
        return Ok(true);
    }
    let record =
        RecordRef::parse(stored).ok_or_else(|| Error::damaged("a stored record is malformed"))?;
    let mut values = record.attributes();
    let first = values.find(|(id, value)| *id == attribute.id && admits(value));
    Ok(first.is_some_and(|(_, first)| first == value))
}

impl Index for Clustered {
    fn add(&self, writes: &mut Writes, index_entry: IndexEntry<'_>) -> Result<()> {
        let mut key = std::mem::take(&mut writes.scratch);
        key.clear();
        key.extend_from_slice(index_entry.value);
        key.extend_from_slice(index_entry.key);
        let tree = tree_of(index_entry.attribute)?;
        let result = writes.batch.also_parts(tree, &key, &index_entry.record);
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
        best: &mut Best,
    ) -> Result<()> {
        z::candidates((lookup, attribute), range, best, true)
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

    /// Unlike other trees of entries it is searched for keys.
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

    /// The records of an area are read with its entries.
    fn weight(&self) -> f64 {
        0.5
    }

    fn figures(&self) -> Figures {
        Z.figures()
    }

    fn is_advised(&self) -> bool {
        false
    }
}
