//! What an import does when a batch is refused because two records would share a value that must be
//! unique: it commits the batch without the refused record, which is rejected like other bad lines.
//! After [`FEW`] refusals, and in a strict import, it commits the rest one by one. Each commit has
//! the note of the progress, so that a killed import continues behind it.

use esker::{Error as StoreError, Key};
use esker_store::Dataset;

use crate::error::{Error, Result};
use crate::feed::Place;
use crate::load::{Import, Progress};
use crate::observer::{Note, Observer};
use crate::pending::PendingRecord;

/// Refused records that are left out of a batch, each by another try of the whole.
const FEW: usize = 8;

impl Import {
    /// Commits the records of a batch that was refused with this error, but for those that are
    /// refused. `replaced` is the number of replaced records before the batch. A strict import ends
    /// at the first refused record, which is returned.
    pub(crate) fn commit_refused(
        &mut self,
        dataset: &dyn Dataset,
        mut error: StoreError,
        is_last: bool,
        replaced: u64,
        observer: &mut dyn Observer,
    ) -> Result<Option<String>> {
        let mut records = self.pending.take();
        for _ in 0..FEW {
            if self.strict {
                break;
            }
            let Some(refused) = take_refused(&mut records, &error) else {
                break;
            };
            let is_again = records.iter().any(|record| record.key == refused.key);
            let replaces = is_again || holds(dataset, &refused.key)?;
            self.replaced.subtract(u64::from(replaces));
            self.reject(&refused, &error, observer)?;
            let mut batch = dataset.batch();
            for record in &records {
                batch.put_json(&record.json)?;
            }
            let progress = Progress {
                place: self.done,
                loaded: self.loaded + records.len() as u64,
                replaced: self.replaced.count(),
                is_last,
            };
            match self.commit_with_note(&mut *batch, progress) {
                Ok(()) => {
                    self.loaded += records.len() as u64;
                    return Ok(None);
                }
                Err(Error::Store(again @ StoreError::NotUnique(_))) => error = again,
                Err(error) => return Err(error),
            }
        }
        self.replaced.resume(replaced);
        let bad = self.commit_each(dataset, records, observer)?;
        if bad.is_none() {
            let progress = Progress {
                place: self.done,
                loaded: self.loaded,
                replaced: self.replaced.count(),
                is_last,
            };
            self.commit_with_note(&mut *dataset.batch(), progress)?;
        }
        Ok(bad)
    }

    /// Commits records one by one, each with the progress.
    fn commit_each(
        &mut self,
        dataset: &dyn Dataset,
        records: Vec<PendingRecord>,
        observer: &mut dyn Observer,
    ) -> Result<Option<String>> {
        // Of several records of one line only the last one completes it.
        let places: Vec<Place> = records.iter().map(|record| record.place).collect();
        let mut done = Progress {
            place: self.committed,
            loaded: self.loaded,
            replaced: self.replaced.count(),
            is_last: false,
        };
        for (at, record) in records.into_iter().enumerate() {
            let is_whole = places.get(at + 1) != Some(&record.place);
            let mut batch = dataset.batch();
            let replaces = holds(dataset, &record.key)?;
            self.replaced.add(u64::from(replaces));
            let progress = if is_whole {
                Progress {
                    place: record.place,
                    loaded: self.loaded + 1,
                    replaced: self.replaced.count(),
                    is_last: false,
                }
            } else {
                done
            };
            let committed = match batch.put_json(&record.json) {
                Ok(()) => self.commit_with_note(&mut *batch, progress),
                // The definition may have changed meanwhile.
                Err(error) => Err(error.into()),
            };
            match committed {
                Ok(()) => self.loaded += 1,
                Err(Error::Store(error @ (StoreError::NotUnique(_) | StoreError::Record(_)))) => {
                    self.replaced.subtract(u64::from(replaces));
                    self.reject(&record, &error, observer)?;
                    if self.strict {
                        self.done = done.place;
                        self.loaded = done.loaded;
                        self.replaced.resume(done.replaced);
                        let name = self.feed.name(record.place.source);
                        return Ok(Some(format!("{name}, line {}: {error}", record.place.line)));
                    }
                }
                Err(error) => return Err(error),
            }
            if is_whole {
                done = Progress {
                    place: record.place,
                    loaded: self.loaded,
                    replaced: self.replaced.count(),
                    is_last: false,
                };
            }
        }
        Ok(None)
    }

    /// Adds a refused record to the rejected lines.
    fn reject(
        &mut self,
        record: &PendingRecord,
        error: &StoreError,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let reason = error.to_string();
        self.add_rejected(record.place, &reason, &record.json, &mut |note: &Note| {
            observer.note(note);
        })
    }
}

/// Takes the refused record out: of several of its key the last one, which counts.
fn take_refused(records: &mut Vec<PendingRecord>, error: &StoreError) -> Option<PendingRecord> {
    let StoreError::NotUnique(not_unique) = error else {
        return None;
    };
    let key = not_unique.key.as_bytes();
    let at = records.iter().rposition(|record| record.key == key)?;
    Some(records.remove(at))
}

/// True if the dataset has a record of an encoded key.
fn holds(dataset: &dyn Dataset, key: &[u8]) -> Result<bool> {
    let key = Key::from_encoded(dataset.def().key_type, key.to_vec());
    Ok(dataset.get(&key)?.is_some())
}
