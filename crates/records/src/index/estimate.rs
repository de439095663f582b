//! Estimates how many candidates an index with its own tree has for a range: how many records its
//! entries represent. The numbers come from the metadata of tables, from samples of keys, and from
//! at most three data blocks.

use esker_lsm::attributes::{Extractor, Summary};
use esker_lsm::read::Scattered;
use esker_lsm::read::estimate::{Count, Entries, Sought, Units};
use esker_lsm::table::KeyRange;
use esker_lsm::version::TableFile;
use esker_lsm::{Kind, Seq};
use esker_model::posting::PostingList;
use esker_model::range::Range;
use esker_model::schema::Value;

use super::kind::{Attribute, TreeRange};
use super::lookup::Lookup;
use crate::error::Result;

/// The attribute number of the key, in tables of a tree of points.
const KEY: u32 = 0;

/// Extracts the keys of a tree of points: a sample of them shows how many lie in an area.
pub(super) struct PointKeys;

impl Extractor for PointKeys {
    fn ids(&self) -> &[u32] {
        &[KEY]
    }

    fn summary(&self, _slot: usize) -> Summary {
        Summary::Zones
    }

    fn extract(&self, key: &[u8], _value: &[u8], emit: &mut dyn FnMut(usize, &[u8])) {
        emit(0, key);
    }
}

/// The position of values in the keys of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ValuePosition {
    /// The key is the value.
    WholeKey,
    /// The value, then the key of a record.
    BeforeRecordKey,
    /// The value, then a number.
    BeforeNumber,
}

/// Entries that are posting lists.
pub(super) struct Postings {
    /// True if each new posting rewrites a list.
    pub(super) are_rewritten: bool,
}

impl Count for Postings {
    fn units(&self, since: Seq, seq: Seq, kind: Kind, value: &[u8]) -> Units {
        let mut units = Units::default();
        if kind == Kind::Delete {
            return units;
        }
        // Only an estimate: a query that reads the list reports the damage.
        let Ok(list) = PostingList::parse(value, seq) else {
            return units;
        };
        let since = if self.are_rewritten { since } else { 0 };
        let mut postings = list.reader();
        while let Ok(Some(posting)) = postings.next() {
            units.all += 1;
            units.counted += u64::from(!posting.cancel && posting.seq >= since);
        }
        units.bytes = value.len() as u64;
        units
    }

    fn is_of_lists(&self) -> bool {
        true
    }

    fn repeats(&self) -> bool {
        self.are_rewritten
    }
}

impl Lookup<'_> {
    /// Estimates how many entries of the attribute's tree lie between two keys, without deletes.
    /// Reads metadata, and at most three data blocks if the metadata is not precise enough for the
    /// plan.
    ///
    /// # Errors
    /// Any read error.
    pub fn approximate(
        &self,
        attribute: &Attribute,
        (lo, hi): (&[u8], Option<&[u8]>),
    ) -> Result<u64> {
        let sought = Sought {
            lo,
            hi,
            key: None,
            part: None,
            is_one: false,
        };
        self.estimate_where(attribute, sought, &Entries, &|_| true)
    }

    /// Counts the entries of the blocks that the ranges (ascending, disjoint) touch, deletes
    /// included, in the tables for which `meets` is true; of each memtable about 1,000 at most.
    /// Reads the indexes of blocks only.
    pub(super) fn approximate_where<'r>(
        &self,
        attribute: &Attribute,
        ranges: impl Iterator<Item = &'r TreeRange>,
        meets: &dyn Fn(&TableFile) -> bool,
    ) -> Result<u64> {
        let tree = attribute.index_tree()?;
        let ranges: Vec<KeyRange<'_>> = ranges.map(TreeRange::keys).collect();
        Ok(self
            .snapshot
            .approximate_where(tree, &ranges, meets, self.index_cost)?)
    }

    /// Estimates how many candidates the tree of an attribute has for a range of values. `position`
    /// is that of values in its keys, and `count` counts the records that an entry represents.
    pub(super) fn estimate(
        &self,
        attribute: &Attribute,
        range: &Range,
        position: ValuePosition,
        count: &dyn Count,
    ) -> Result<u64> {
        let (lo, hi) = range.key_bounds();
        let point = range.point();
        // The part of the entries before a key: the keys of the records show how the entries of a
        // value are distributed.
        let part = |key: &[u8]| match point.and_then(|value| key.strip_prefix(value)) {
            Some(key) => self.snapshot.rank(self.data, key, self.data_cost),
            None => Ok(if key < lo.as_slice() { 0.0 } else { 1.0 }),
        };
        let shows_distribution = point.is_some() && position == ValuePosition::BeforeRecordKey;
        let sought = Sought {
            lo: &lo,
            hi: hi.as_deref(),
            key: point.filter(|_| position == ValuePosition::WholeKey),
            part: shows_distribution.then_some(&part),
            is_one: point.is_some(),
        };
        self.estimate_where(attribute, sought, count, &|_| true)
    }

    /// Estimates how many candidates lie in the sought part of the attribute's tree, in the tables
    /// for which `meets` is true.
    pub(super) fn estimate_where(
        &self,
        attribute: &Attribute,
        sought: Sought<'_>,
        count: &dyn Count,
        meets: &dyn Fn(&TableFile) -> bool,
    ) -> Result<u64> {
        let tree = attribute.index_tree()?;
        let looks = (&self.looks, self.index_cost);
        Ok(self.snapshot.estimate(tree, sought, count, meets, looks)?)
    }

    /// Estimates how many points of a tree lie in `range`, whose keys lie in `bounds`.
    pub(super) fn estimate_area(
        &self,
        attribute: &Attribute,
        range: &Range,
        bounds: &[TreeRange],
        meets: &dyn Fn(&TableFile) -> bool,
    ) -> Result<u64> {
        let ranges: Vec<KeyRange<'_>> = bounds.iter().map(TreeRange::keys).collect();
        let inside = |key: &[u8]| {
            let value = Value::split(attribute.ty, key);
            value.is_some_and(|(value, _)| range.contains(value))
        };
        let sought = Scattered {
            ranges: &ranges,
            inside: &inside,
            meets,
            attribute: KEY,
        };
        let tree = attribute.index_tree()?;
        Ok(self
            .snapshot
            .estimate_scattered(tree, sought, self.index_cost)?)
    }
}
