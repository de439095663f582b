//! The search for two current records with the same value, through the whole of an index.

use super::unique::{Holder, Holders};
use crate::catalog::UniqueIndex;
use crate::error::{Error, Result};
use esker_lsm::Seq;

/// The most entries of one value that are compared with the records together.
const TOGETHER: usize = 4096;

/// Receives the entries of an index, those of a value one after the other, and reports the first
/// value that two current records have. The search ends there.
pub(crate) struct Duplicates<'a> {
    holders: Holders<'a>,
    index: UniqueIndex<'a>,
    /// A value, and keys that the index has for it.
    value: Vec<u8>,
    holding: Vec<Holder>,
}

impl<'a> Duplicates<'a> {
    /// A search through `index`, by the snapshot of `holders`.
    pub(crate) fn new(holders: Holders<'a>, index: UniqueIndex<'a>) -> Duplicates<'a> {
        Duplicates {
            holders,
            index,
            value: Vec::new(),
            holding: Vec::new(),
        }
    }

    /// Adds an entry of the index. Returns the [`Error::NotUnique`] of a duplicate among the
    /// entries added before.
    ///
    /// # Errors
    /// Any read error.
    pub(crate) fn add(&mut self, value: &[u8], key: &[u8], seq: Seq) -> Result<Option<Error>> {
        if self.index.attribute.may_be_shared(value) {
            return Ok(None);
        }
        let duplicate = if value != self.value || self.holding.len() >= TOGETHER {
            self.compare()?
        } else {
            None
        };
        if value != self.value {
            self.begin(value);
        }
        // The only value of the search.
        let (value_at, key) = (0, key.to_vec());
        self.holding.push(Holder { value_at, key, seq });
        Ok(duplicate)
    }

    /// Compares all entries that the index and its staging tree have of a value. Returns the
    /// [`Error::NotUnique`] of a duplicate.
    ///
    /// # Errors
    /// Any read error.
    pub(crate) fn add_all_of(&mut self, value: &[u8]) -> Result<Option<Error>> {
        // The entries of a value follow each other.
        if value == self.value || self.index.attribute.may_be_shared(value) {
            return Ok(None);
        }
        self.begin(value);
        (self.holders).search(&self.index, value, 0, &mut self.holding)?;
        self.compare()
    }

    /// Begins with the entries of another value.
    fn begin(&mut self, value: &[u8]) {
        self.holding.clear();
        self.value.clear();
        self.value.extend_from_slice(value);
    }

    /// Keeps the keys whose records are current. Returns a duplicate if there are two.
    fn compare(&mut self) -> Result<Option<Error>> {
        if self.holding.len() < 2 {
            return Ok(None);
        }
        self.holders.retain_current(&mut self.holding)?;
        self.holding.dedup_by(|b, a| a.key == b.key);
        let [holder, later, ..] = self.holding.as_slice() else {
            return Ok(None);
        };
        let (attribute, value) = (self.index.attribute, &self.value);
        let refusal = (self.holders).refusal(attribute, value, &later.key, &holder.key);
        Ok(Some(refusal))
    }

    /// Compares the entries of the last value, at the end of a pass through the index. Returns a
    /// duplicate among them.
    ///
    /// # Errors
    /// Any read error.
    pub(crate) fn finish(&mut self) -> Result<Option<Error>> {
        let duplicate = self.compare()?;
        self.begin(&[]);
        Ok(duplicate)
    }
}
