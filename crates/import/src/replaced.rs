//! How many records an import replaces: those whose key had a record before, in the dataset or earlier in the import.
//!
//! Keys that come in ascending order behind all that the dataset has, as numbered records have them, are new without a look. Others are
//! looked up, a batch at a time.

use std::collections::HashSet;

use esker::{Dataset, Key};

use crate::error::Result;

/// Counts what the batches of an import replace.
#[derive(Default)]
pub(crate) struct Replaced {
    /// No key of the dataset is greater; `None` where that is not known.
    greatest: Option<Vec<u8>>,
    /// The keys of the batch, one behind the other, and where each ends.
    keys: Vec<u8>,
    ends: Vec<usize>,
    /// Each key of the batch is greater than the one before, and the first than all of the dataset.
    is_ascending: bool,
    count: u64,
}

impl Replaced {
    /// Looks at the dataset before the first batch.
    pub(crate) fn begin(&mut self, dataset: &Dataset) -> Result<()> {
        let is_empty = dataset.scan(..).next().transpose()?.is_none();
        self.greatest = is_empty.then(Vec::new);
        self.is_ascending = is_empty;
        Ok(())
    }

    /// Notes a record that was put into the batch.
    pub(crate) fn put(&mut self, key: &[u8]) {
        if self.is_ascending {
            let before = match self.ends.last() {
                None => self.greatest.as_deref().unwrap_or_default(),
                Some(_) => self.key(self.ends.len() - 1),
            };
            self.is_ascending = before < key;
        }
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
    }

    fn key(&self, at: usize) -> &[u8] {
        let begin = match at.checked_sub(1) {
            None => 0,
            Some(before) => self.ends.get(before).copied().unwrap_or(0),
        };
        let end = self.ends.get(at).copied().unwrap_or(0);
        self.keys.get(begin..end).unwrap_or_default()
    }

    /// Counts what the batch is about to replace.
    pub(crate) fn look(&mut self, dataset: &Dataset) -> Result<()> {
        if !self.is_ascending {
            let snapshot = dataset.snapshot();
            let ty = dataset.def().key_type;
            let mut seen = HashSet::with_capacity(self.ends.len());
            let mut found = 0;
            for at in 0..self.ends.len() {
                let key = self.key(at);
                let is_known = !seen.insert(key);
                let is_greater = self.greatest.as_deref().is_some_and(|least| least < key);
                if is_known
                    || !is_greater && snapshot.get(Key::from_encoded(ty, key.to_vec()))?.is_some()
                {
                    found += 1;
                }
            }
            self.count += found;
        }
        let last = match self.is_ascending {
            true => self.ends.len().checked_sub(1).map(|at| self.key(at)),
            false => (0..self.ends.len()).map(|at| self.key(at)).max(),
        };
        if let (Some(last), Some(greatest)) = (last, &self.greatest)
            && last > greatest.as_slice()
        {
            self.greatest = Some(last.to_vec());
        }
        self.keys.clear();
        self.ends.clear();
        self.is_ascending = self.greatest.is_some();
        Ok(())
    }

    /// How many records were replaced so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Goes on with what an import had counted that was interrupted.
    pub(crate) fn resume(&mut self, count: u64) {
        self.count = count;
    }
}
