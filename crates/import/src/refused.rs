//! What an import does when a batch is refused because two records would share a value that must be
//! unique: it commits the batch without the refused record, which is rejected like other bad lines.
//! After [`FEW`] refusals, and in a strict import, it commits the rest line by line. Each commit
//! has the note of the progress, so that a killed import continues behind it.

use std::collections::HashSet;

use esker::{Error as StoreError, Key};
use esker_store::Dataset;

use crate::error::{Error, Result};
use crate::load::{Import, Progress};
use crate::observer::{Note, Observer};
use crate::pending::PendingRecord;
use crate::put::is_of_record;

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
            for record in &mut records {
                record.put(&mut *batch)?;
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

    /// Commits the records of each line by themselves, with the progress. A strict import returns
    /// the first record that is refused; of its line, no record is committed.
    fn commit_each(
        &mut self,
        dataset: &dyn Dataset,
        records: Vec<PendingRecord>,
        observer: &mut dyn Observer,
    ) -> Result<Option<String>> {
        let mut done = self.committed;
        let mut records = records.into_iter().peekable();
        while let Some(first) = records.next() {
            let place = first.place;
            let mut line = vec![first];
            while let Some(other) = records.next_if(|record| record.place == place) {
                line.push(other);
            }
            if let Some(reason) = self.commit_line(dataset, line, observer)? {
                self.done = done;
                let name = self.feed.name(place.source);
                return Ok(Some(format!("{name}, line {}: {reason}", place.line)));
            }
            done = place;
        }
        Ok(None)
    }

    /// Commits the records of a line at once, but for those that are refused: a line that an import
    /// which resumes reads again was not loaded in part. A strict import returns why a record is
    /// refused.
    fn commit_line(
        &mut self,
        dataset: &dyn Dataset,
        mut line: Vec<PendingRecord>,
        observer: &mut dyn Observer,
    ) -> Result<Option<String>> {
        while let Some(place) = line.first().map(|record| record.place) {
            let mut batch = dataset.batch();
            let (mut replaces, mut keys) = (0, HashSet::new());
            let mut put = Ok(());
            for (at, record) in line.iter_mut().enumerate() {
                // The definition may have changed meanwhile.
                put = record.put(&mut *batch).map_err(|error| (at, error));
                if put.is_err() {
                    break;
                }
                let is_known = !keys.insert(record.key.clone()) || holds(dataset, &record.key)?;
                replaces += u64::from(is_known);
            }
            let (refused, error) = match put {
                Ok(()) => {
                    let progress = Progress {
                        place,
                        loaded: self.loaded + line.len() as u64,
                        replaced: self.replaced.count() + replaces,
                        is_last: false,
                    };
                    match self.commit_with_note(&mut *batch, progress) {
                        Ok(()) => {
                            self.loaded = progress.loaded;
                            self.replaced.add(replaces);
                            return Ok(None);
                        }
                        Err(Error::Store(error)) => (take_refused(&mut line, &error), error),
                        Err(error) => return Err(error),
                    }
                }
                Err((at, error)) if is_of_record(&error) => (Some(line.remove(at)), error),
                Err((_, error)) => return Err(error.into()),
            };
            let Some(refused) = refused else {
                return Err(error.into());
            };
            self.reject(&refused, &error, observer)?;
            if self.strict {
                return Ok(Some(error.to_string()));
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
