//! The state of a dataset, without reading its records.

use esker_coding::Seq;
use esker_model::schema::Path;

use crate::dataset::Dataset;
use crate::error::Result;
use crate::time::millis;

/// The state of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The indexes, also those that are being filled.
    pub indexes: Vec<IndexSummary>,
    /// What was obsolete before this time is removed, in milliseconds since 1970; `None` before the
    /// first repair.
    pub repaired: Option<u64>,
}

/// The state of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSummary {
    /// The path of its field.
    pub path: Path,
    /// True if queries use it; false while it is being filled.
    pub is_ready: bool,
    /// The buckets of its values: a bucket that has become large was split.
    pub buckets: u64,
    /// The partitions of all buckets.
    pub partitions: u64,
}

impl Dataset {
    /// The state of the dataset.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Error::Unavailable).
    pub fn summary(&self) -> Result<Summary> {
        let bound = self.shared.bound_now(&self.name)?;
        let indexes = bound.indexes.iter().filter_map(|index| {
            let attribute = bound.stored.attributes.get(index.place)?;
            let state = bound.state.indexes.get(&attribute.id)?;
            let buckets = index.layout.buckets(&[], None);
            Some(IndexSummary {
                path: attribute.def.path.clone(),
                is_ready: state.is_ready,
                buckets: buckets.len() as u64,
                partitions: buckets.iter().map(|bucket| u64::from(bucket.shards)).sum(),
            })
        });
        let indexes = indexes.collect();
        let repaired = Some(self.repaired_to()?).filter(|mark: &Seq| *mark > 0);
        Ok(Summary {
            indexes,
            repaired: repaired.map(millis),
        })
    }
}
