//! The records of a batch, kept until its commit, for datasets with unique values: if the commit is
//! refused because two records would share a value, the records are committed one by one, and
//! those that are refused alone are rejected like other bad lines.

use esker::{Durability, Error, Key};
use esker_store::Dataset;

use crate::error::Result;
use crate::feed::Place;

/// The records of a batch that is not committed yet.
#[derive(Default)]
pub(crate) struct Pending {
    /// The dataset has unique values; otherwise nothing is kept.
    is_needed: bool,
    records: Vec<(Place, Vec<u8>)>,
}

/// What committing records one by one came to.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Records committed.
    pub(crate) records: u64,
    /// Of these, records that replaced another.
    pub(crate) replaced: u64,
    /// The refused records, with reasons.
    pub(crate) refused: Vec<(Place, Vec<u8>, String)>,
    /// The place of the last record that was committed.
    pub(crate) last: Option<Place>,
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
    pub(crate) fn add(&mut self, place: Place, record: &[u8]) {
        if self.is_needed {
            self.records.push((place, record.to_vec()));
        }
    }

    /// True if the records are kept.
    pub(crate) fn can_retry(&self) -> bool {
        self.is_needed
    }

    /// The batch was committed.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
    }

    /// Commits the records one by one, up to the first refused one if `strict`.
    ///
    /// # Errors
    /// Any error but [`Error::NotUnique`].
    pub(crate) fn commit_each(
        &mut self,
        dataset: &dyn Dataset,
        durability: Durability,
        strict: bool,
    ) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let key_type = dataset.def().key_type;
        let mut batch = dataset.batch();
        for (place, record) in self.records.drain(..) {
            let put = batch.put_json(&record);
            let refused = match put {
                Ok(()) => {
                    let key = Key::from_encoded(key_type, batch.last_key().to_vec());
                    let replaces = dataset.get(&key)?.is_some();
                    batch.durability(durability);
                    let committed = batch.commit();
                    outcome.replaced += u64::from(replaces && committed.is_ok());
                    committed
                }
                // The definition may have changed meanwhile.
                Err(error) => Err(error),
            };
            match refused {
                Ok(()) => {
                    outcome.records += 1;
                    outcome.last = Some(place);
                }
                Err(error @ (Error::NotUnique(_) | Error::Record(_))) => {
                    outcome.refused.push((place, record, error.to_string()));
                    if strict {
                        break;
                    }
                    batch = dataset.batch();
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.records.clear();
        Ok(outcome)
    }
}
