//! The records of a batch, kept until its commit, for datasets with unique values: if the commit is
//! refused because two records would share a value, it is repeated without the refused record.

use esker_store::{Batch, Dataset};

use crate::feed::Place;

/// The records of a batch that is not committed yet.
#[derive(Default)]
pub(crate) struct Pending {
    /// The dataset has unique values; otherwise nothing is kept.
    is_needed: bool,
    records: Vec<PendingRecord>,
}

/// A record of the batch.
pub(crate) struct PendingRecord {
    pub(crate) place: Place,
    /// Its encoded key.
    pub(crate) key: Vec<u8>,
    pub(crate) json: Vec<u8>,
}

impl PendingRecord {
    /// Puts it into another batch, where it gets another key if keys are generated.
    pub(crate) fn put(&mut self, batch: &mut dyn Batch) -> esker::Result<()> {
        batch.put_json(&self.json)?;
        self.key.clear();
        self.key.extend_from_slice(batch.last_key());
        Ok(())
    }
}

impl Pending {
    /// For the records of a dataset.
    pub(crate) fn of(dataset: &dyn Dataset) -> Pending {
        let is_needed = dataset.def().indexes.iter().any(|index| index.unique)
            || dataset.unfinished_index().is_some_and(|index| index.unique);
        Pending {
            is_needed,
            records: Vec::new(),
        }
    }

    /// Keeps a record that was put into the batch.
    pub(crate) fn add(&mut self, place: Place, key: &[u8], json: &[u8]) {
        if self.is_needed {
            self.records.push(PendingRecord {
                place,
                key: key.to_vec(),
                json: json.to_vec(),
            });
        }
    }

    /// True if the records are kept.
    pub(crate) fn can_retry(&self) -> bool {
        self.is_needed
    }

    /// The records, in the order of the input; none are kept any more.
    pub(crate) fn take(&mut self) -> Vec<PendingRecord> {
        std::mem::take(&mut self.records)
    }
}
