//! How many records an import replaces: those whose key had a record before, in the dataset or earlier in the import.
//!
//! In a dataset that was empty, keys that come in ascending order, as numbered records have them, are new without a look. Once they do
//! not, a filter in memory tells of nearly all that are new; the others are looked up. In a dataset that had records each is.

use std::collections::HashSet;

use esker::{Dataset, Key};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::Result;

/// Counts what the batches of an import replace.
#[derive(Default)]
pub(crate) struct Replaced {
    /// The dataset was empty: all its keys are the import's.
    was_empty: bool,
    /// The greatest of the keys that came in ascending order.
    greatest: Vec<u8>,
    /// The keys that came afterwards; `None` while they are ascending.
    later: Option<Filter>,
    /// The keys of the batch, one behind the other, and where each ends.
    keys: Vec<u8>,
    ends: Vec<usize>,
    /// Each key of the batch is greater than the one before, and the first than all before the batch.
    is_ascending: bool,
    count: u64,
}

impl Replaced {
    /// Looks at the dataset before the first batch.
    pub(crate) fn begin(&mut self, dataset: &Dataset) -> Result<()> {
        self.was_empty = dataset.scan(..).next().transpose()?.is_none();
        self.is_ascending = self.was_empty;
        Ok(())
    }

    /// Notes a record that was put into the batch.
    pub(crate) fn put(&mut self, key: &[u8]) {
        if self.is_ascending {
            let before = match self.ends.last() {
                None => self.greatest.as_slice(),
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
        if self.is_ascending {
            if let Some(last) = self.ends.len().checked_sub(1) {
                self.greatest = self.key(last).to_vec();
            }
        } else {
            self.count += self.look_up(dataset)?;
        }
        self.keys.clear();
        self.ends.clear();
        self.is_ascending = self.was_empty && self.later.is_none();
        Ok(())
    }

    fn look_up(&mut self, dataset: &Dataset) -> Result<u64> {
        let mut later = self.later.take().unwrap_or_default();
        let ty = dataset.def().key_type;
        let snapshot = dataset.snapshot();
        // The keys of the batch before the one that is looked at, from the first on that may be known.
        let mut seen: Option<HashSet<&[u8]>> = None;
        let mut found = 0;
        for at in 0..self.ends.len() {
            let key = self.key(at);
            let may_be_known = match self.was_empty {
                true => later.insert(key) || key <= self.greatest.as_slice(),
                false => true,
            };
            if may_be_known && seen.is_none() {
                seen = Some((0..at).map(|at| self.key(at)).collect());
            }
            if let Some(seen) = &mut seen {
                let is_first = seen.insert(key);
                if may_be_known
                    && (!is_first || snapshot.get(Key::from_encoded(ty, key.to_vec()))?.is_some())
                {
                    found += 1;
                }
            }
        }
        self.later = Some(later);
        Ok(found)
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

/// Keys of a filter's first part; each further one has four times as many.
const FIRST: usize = 1 << 16;

/// Bits for each key, of which each sets four: one key in a hundred is mistaken for a known one.
const BITS: usize = 16;

/// Keys that were seen, or are mistaken for them: a Bloom filter in parts, so that it grows.
#[derive(Default)]
struct Filter {
    parts: Vec<Vec<u64>>,
    /// How many more keys the last part takes.
    left: usize,
}

impl Filter {
    /// Adds a key; whether it may have been there.
    fn insert(&mut self, key: &[u8]) -> bool {
        let hash = xxh3_64(key);
        let mask = 1 << (hash & 63)
            | 1 << (hash >> 6 & 63)
            | 1 << (hash >> 12 & 63)
            | 1 << (hash >> 18 & 63);
        let at = |words: usize| ((u128::from(hash) * words as u128) >> 64) as usize;
        let is_there = |part: &Vec<u64>| {
            let word = part.get(at(part.len()));
            word.is_some_and(|word| word & mask == mask)
        };
        if self.parts.iter().any(is_there) {
            return true;
        }
        if self.left == 0 {
            let keys = FIRST << (2 * self.parts.len().min(16));
            self.parts.push(vec![0; keys * BITS / 64]);
            self.left = keys;
        }
        self.left -= 1;
        if let Some(part) = self.parts.last_mut() {
            let at = at(part.len());
            if let Some(word) = part.get_mut(at) {
                *word |= mask;
            }
        }
        false
    }
}
