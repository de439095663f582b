//! Counts the records that an import replaces: records whose key existed before, in the dataset or
//! earlier in the import.
//!
//! In a dataset that was empty, keys in ascending order, such as numbers, are new without a lookup.
//! From the first other key on, a filter in memory recognises most new keys; the remaining ones are
//! looked up. In a dataset that had records, every key is looked up.

use std::collections::HashSet;

use esker::Key;
use esker_store::Dataset;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::Result;

/// Counts the records replaced by the batches of an import.
#[derive(Default)]
pub(crate) struct Replaced {
    /// The dataset was empty at the beginning, so all its keys are from this import.
    was_empty: bool,
    /// The last of the keys that came in ascending order.
    greatest: Vec<u8>,
    /// The keys since then; `None` while keys are ascending.
    later: Option<Filter>,
    /// The keys of the batch, concatenated, and the end of each.
    keys: Vec<u8>,
    ends: Vec<usize>,
    /// The keys of the batch are ascending, and greater than all keys of earlier batches.
    is_ascending: bool,
    count: u64,
}

impl Replaced {
    /// Reads, before the first batch, whether the dataset is empty.
    pub(crate) fn begin(&mut self, dataset: &dyn Dataset) -> Result<()> {
        self.was_empty = dataset.has_no_record()?;
        self.is_ascending = self.was_empty;
        Ok(())
    }

    /// Adds the key of a record that was put into the batch.
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

    /// Counts the records that the batch will replace; call it before the commit.
    pub(crate) fn look(&mut self, dataset: &dyn Dataset) -> Result<()> {
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

    fn look_up(&mut self, dataset: &dyn Dataset) -> Result<u64> {
        let mut later = self.later.take().unwrap_or_default();
        let ty = dataset.def().key_type;
        let snapshot = dataset.snapshot()?;
        // The earlier keys of the batch, once a key may exist.
        let mut seen: Option<HashSet<&[u8]>> = None;
        let (mut found, mut asked) = (0, Vec::new());
        for at in 0..self.ends.len() {
            let key = self.key(at);
            let may_be_known =
                !self.was_empty || later.insert(key) || key <= self.greatest.as_slice();
            if may_be_known && seen.is_none() {
                seen = Some((0..at).map(|at| self.key(at)).collect());
            }
            let Some(seen) = &mut seen else { continue };
            let is_first = seen.insert(key);
            if may_be_known && is_first {
                asked.push(Key::from_encoded(ty, key.to_vec()));
            } else if may_be_known {
                found += 1;
            }
        }
        let known = snapshot.get_many(&asked)?;
        found += known.iter().flatten().count() as u64;
        self.later = Some(later);
        Ok(found)
    }

    /// The number of replaced records so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Counts records that are committed apart from the batch.
    pub(crate) fn add(&mut self, records: u64) {
        self.count += records;
    }

    /// Takes back records that were counted and then refused.
    pub(crate) fn subtract(&mut self, records: u64) {
        self.count = self.count.saturating_sub(records);
    }

    /// Continues with the count of an interrupted import.
    pub(crate) fn resume(&mut self, count: u64) {
        self.count = count;
    }
}

/// The number of keys in the first part of a filter; each further part has four times as many.
const FIRST: usize = 1 << 16;

/// Bits per key, of which each key sets four: one new key in a hundred is a false positive.
const BITS: usize = 16;

/// A set of keys with false positives: a Bloom filter in parts, so that it can grow.
#[derive(Default)]
struct Filter {
    parts: Vec<Vec<u64>>,
    /// The number of keys that still fit into the last part.
    left: usize,
}

impl Filter {
    /// Adds a key; true if it may have been in the filter before.
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
